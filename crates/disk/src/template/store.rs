//! The templates of a data folder: list, find, mount, publish, remove.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use roost_model::{Name, Tag, TemplateDefaults, TemplateId, TemplateRef, TemplateTag};
use roost_sys::mount::{self as sys_mount, UnmountFlags};
use roost_sys::tree;

use super::erofs::{self, MountError};
use super::import::{Existing, ImportError};
use super::manifest::{self, Template};
use super::staging;
use crate::{ImageError, PoolConfig, provide_folder};

const CURRENT: &str = "current";
/// What the pointers of tags start with; an image's folder starts with a digest.
const TAG: &str = "tag-";
const FOLDER: &str = "templates";

/// Why templates could not be opened, read or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no template of that name.
    #[error("no template named `{name}`")]
    NotFound { name: TemplateRef },
    /// The store could not be read or changed.
    #[error("failed to {attempt} `{}`", path.display())]
    Failed { attempt: &'static str, path: PathBuf, source: io::Error },
    /// The pool could not be rid of what belonged to a template.
    #[error("failed to sweep the pool")]
    Pool { source: ImageError },
    /// An image could not be unmounted.
    #[error("failed to unmount a template")]
    Unmount { source: sys_mount::MountError },
}

impl TemplateError {
    fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Failed { attempt, path: path.to_owned(), source }
    }
}

/// The templates of one data folder.
#[derive(Debug)]
pub struct Templates {
    folder: PathBuf,
    mounts: PathBuf,
    reserve: u64,
    /// Held while pointers, image folders and mounts change.
    changing: Mutex<()>,
}

impl Templates {
    /// Opens the templates of `data_dir`, to be mounted in `run_dir`, and removes what killed makers left.
    pub fn open(data_dir: &Path, run_dir: &Path) -> Result<Self, TemplateError> {
        let folder = make_folder(data_dir, &data_dir.join(FOLDER))?;
        let mounts = make_folder(run_dir, &run_dir.join(FOLDER))?;
        if let Err(error) = staging::sweep(data_dir, &folder) {
            tracing::warn!(%error, folder = %folder.display(), "failed to look for leftovers of templates");
        }
        Ok(Self { folder, mounts, reserve: PoolConfig::DEFAULT_RESERVE, changing: Mutex::new(()) })
    }

    /// Keeps that many bytes of the host free when templates are made.
    pub fn with_reserve(mut self, bytes: u64) -> Self {
        self.reserve = bytes;
        self
    }

    /// All templates that sandboxes can start from, by name; damaged ones are left out.
    pub fn list(&self) -> Result<Vec<Template>, TemplateError> {
        let mut templates = Vec::new();
        for name in self.names()? {
            templates.extend(self.get(&name).unwrap_or_else(passed_over));
        }
        Ok(templates)
    }

    /// The template of that name.
    pub fn get(&self, name: &Name) -> Result<Option<Template>, TemplateError> {
        self.find(&TemplateRef { name: name.clone(), tag: None })
    }

    /// The version of a template that a tag means, or the current one.
    pub fn find(&self, wanted: &TemplateRef) -> Result<Option<Template>, TemplateError> {
        let home = self.folder.join(wanted.name.as_str());
        let pointer = home.join(pointer(wanted.tag.as_ref()));
        let digest = match std::fs::read_link(&pointer) {
            Ok(digest) => digest,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(TemplateError::failed("read", &pointer)(e)),
        };
        let folder = home.join(digest);
        manifest::read(&folder).map(Some).map_err(TemplateError::failed("read the template in", &folder))
    }

    /// The versions that sandboxes can start from, by their names and tags; damaged ones are left out.
    pub fn sound_versions(&self) -> Result<Vec<(TemplateRef, Template)>, TemplateError> {
        let mut versions = Vec::new();
        for name in self.names()? {
            for (tag, _) in self.pointers(&name).unwrap_or_else(passed_over) {
                let named = TemplateRef { name: name.clone(), tag };
                let found = self.find(&named).unwrap_or_else(passed_over);
                versions.extend(found.map(|template| (named, template)));
            }
        }
        Ok(versions)
    }

    /// Every version that sandboxes can start from, by its name and each of its tags; a damaged one is an error, so that
    /// nothing of it is taken for unused.
    pub fn versions(&self) -> Result<Vec<(TemplateRef, Template)>, TemplateError> {
        let mut versions = Vec::new();
        for name in self.names()? {
            for (tag, _) in self.pointers(&name)? {
                let named = TemplateRef { name: name.clone(), tag };
                versions.extend(self.find(&named)?.map(|template| (named, template)));
            }
        }
        Ok(versions)
    }

    /// The tags of a template and what they mean, the current version as [`Tag::DEFAULT`].
    pub fn tags(&self, name: &Name) -> Result<Vec<TemplateTag>, TemplateError> {
        let mut tags = Vec::new();
        for (tag, since) in self.pointers(name)? {
            if let Some(template) = self.find(&TemplateRef { name: name.clone(), tag: tag.clone() })? {
                tags.push(TemplateTag { tag: tag.unwrap_or_default(), template: template.id, since });
            }
        }
        Ok(tags)
    }

    /// Lets tags of a template mean one of its versions from now on.
    pub fn tag(&self, version: &TemplateRef, tags: &[Tag]) -> Result<TemplateId, TemplateError> {
        let changing = self.lock();
        let template = self.find(version)?.ok_or_else(|| TemplateError::NotFound { name: version.clone() })?;
        let folder = self.folder.join(version.name.as_str());
        self.point(&changing, &folder, &template.folder_name(), tags)
            .map_err(TemplateError::failed("tag a template in", &folder))?;
        Ok(template.id)
    }

    /// Changes the defaults of this version of a template.
    pub fn set_defaults(
        &self,
        version: &TemplateRef,
        change: impl FnOnce(&mut TemplateDefaults),
    ) -> Result<Template, TemplateError> {
        let _changing = self.lock();
        let mut template = self.find(version)?.ok_or_else(|| TemplateError::NotFound { name: version.clone() })?;
        change(&mut template.defaults);
        manifest::replace(&template)
            .and_then(|()| sync_folder(&template.folder))
            .map_err(TemplateError::failed("describe the template in", &template.folder))?;
        Ok(template)
    }

    /// The template with that image, be it current, replaced or removed while sandboxes stand on it.
    pub fn find_digest(&self, digest: &str) -> Result<Option<Template>, TemplateError> {
        for name in self.names()? {
            for folder in self.images(&name)? {
                if folder.file_name().and_then(|n| n.to_str()).map(manifest::digest_in) == Some(digest) {
                    let read = manifest::read(&folder);
                    return read.map(Some).map_err(TemplateError::failed("read the template in", &folder));
                }
            }
        }
        Ok(None)
    }

    /// Mounts a template's image, once for all its sandboxes, and returns where.
    ///
    /// The mount outlives the daemon. Sandboxes make idmapped clones of it.
    pub fn mount(&self, template: &Template) -> Result<PathBuf, MountError> {
        let target = self.mounts.join(&template.digest);
        // The usual case needs neither the lock nor the mount table.
        if !erofs::is_mounted(&target).unwrap_or(false) {
            let _changing = self.lock();
            erofs::mount(&template.image(), &target)?;
        }
        Ok(target)
    }

    /// Takes a template's name away with all its tags, or one tag, and images that no sandbox stands on then.
    ///
    /// `in_use` says of a digest whether a sandbox needs it, now or when it starts again. Images in use stay until
    /// [`Templates::sweep`].
    pub fn remove(&self, wanted: &TemplateRef, in_use: &dyn Fn(&str) -> bool) -> Result<(), TemplateError> {
        let _changing = self.lock();
        let folder = self.folder.join(wanted.name.as_str());
        let mut doomed = self.pointers(&wanted.name)?;
        if wanted.tag.is_some() {
            doomed.retain(|(tag, _)| *tag == wanted.tag);
        }
        if doomed.is_empty() {
            return Err(TemplateError::NotFound { name: wanted.clone() });
        }
        for (tag, _) in doomed {
            let pointer = folder.join(pointer(tag.as_ref()));
            std::fs::remove_file(&pointer).map_err(TemplateError::failed("remove", &pointer))?;
        }
        sync_folder(&folder).map_err(TemplateError::failed("sync", &folder))?;
        self.sweep_name(&wanted.name, in_use)
    }

    /// Removes all images that are neither current nor tagged nor in use.
    pub fn sweep(&self, in_use: &dyn Fn(&str) -> bool) -> Result<(), TemplateError> {
        let _changing = self.lock();
        for name in self.names()? {
            self.sweep_name(&name, in_use)?;
        }
        Ok(())
    }

    /// Unmounts every template that was mounted in `run_dir`; one that is still in use is an error.
    pub fn unmount_all(run_dir: &Path) -> Result<(), TemplateError> {
        let Ok(mounts) = run_dir.join(FOLDER).canonicalize() else {
            return Ok(());
        };
        let table = sys_mount::mounts_below(&mounts).map_err(|source| TemplateError::Unmount { source })?;
        for entry in table.iter().rev() {
            unmount(&entry.target)?;
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn reserve(&self) -> u64 {
        self.reserve
    }

    pub(super) fn check_free(&self, name: &Name, existing: Existing) -> Result<(), ImportError> {
        self.check_tags_free(name, &[Tag::default()], existing)
    }

    pub(super) fn check_tags_free(&self, name: &Name, tags: &[Tag], existing: Existing) -> Result<(), ImportError> {
        let folder = self.folder.join(name.as_str());
        let taken = |tag: &&Tag| folder.join(pointer(Some(tag))).symlink_metadata().is_ok();
        match tags.iter().find(taken).filter(|_| existing == Existing::Refuse) {
            Some(tag) => {
                let tag = Some(tag.clone()).filter(|tag| !tag.is_default());
                Err(ImportError::Exists { name: TemplateRef { name: name.clone(), tag } })
            }
            None => Ok(()),
        }
    }

    /// Puts a finished image folder in its place and points the name at it.
    pub(super) fn publish(
        &self,
        template: Template,
        tags: &[Tag],
        existing: Existing,
    ) -> Result<Template, ImportError> {
        let changing = self.lock();
        self.publish_locked(&changing, template, tags, existing)
    }

    /// As [`Templates::publish`], for whoever holds the lock already.
    pub(super) fn publish_locked(
        &self,
        changing: &MutexGuard<'_, ()>,
        mut template: Template,
        tags: &[Tag],
        existing: Existing,
    ) -> Result<Template, ImportError> {
        self.check_tags_free(&template.name, tags, existing)?;
        let folder = self.folder.join(template.name.as_str());
        let target = folder.join(template.folder_name());
        let put = || -> io::Result<()> {
            sync_folder(&template.folder)?;
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            if target.exists() {
                // The same image again: sandboxes may stand on it, so it stays and only its description is new.
                let description = manifest::FILE;
                std::fs::rename(template.folder.join(description), target.join(description))?;
            } else {
                std::fs::rename(&template.folder, &target)?;
            }
            self.point(changing, &folder, &template.folder_name(), tags)?;
            sync_folder(&self.folder)
        };
        put().map_err(ImportError::store("put the template in place"))?;
        template.folder = target;
        Ok(template)
    }

    /// Lets tags point at an image folder of the same name's.
    fn point(&self, _changing: &MutexGuard<'_, ()>, folder: &Path, image: &str, tags: &[Tag]) -> io::Result<()> {
        for tag in tags {
            let next = folder.join(".next");
            match std::fs::remove_file(&next) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            symlink(image, &next)?;
            std::fs::rename(&next, folder.join(pointer(Some(tag))))?;
        }
        sync_folder(folder)
    }

    /// The pointers of a name: no tag for the current version; and since when each points where it does.
    fn pointers(&self, name: &Name) -> Result<Vec<(Option<Tag>, Timestamp)>, TemplateError> {
        let folder = self.folder.join(name.as_str());
        let failed = || TemplateError::failed("list", &folder);
        let entries = match std::fs::read_dir(&folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed())?,
        };
        let mut pointers = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed())?;
            let file = entry.file_name();
            let tag = match file.to_str() {
                Some(CURRENT) => None,
                Some(other) => match other.strip_prefix(TAG).and_then(|tag| tag.parse().ok()) {
                    Some(tag) => Some(tag),
                    None => continue,
                },
                None => continue,
            };
            let since = entry.metadata().and_then(|data| data.modified()).map_err(failed())?;
            pointers.push((tag, Timestamp::try_from(since).unwrap_or_default()));
        }
        pointers.sort_unstable();
        Ok(pointers)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        // Nothing is half-changed in memory by a panic: the state is on disk.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn names(&self) -> Result<Vec<Name>, TemplateError> {
        let failed = || TemplateError::failed("list", &self.folder);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let name = entry.file_name().to_str().and_then(|n| n.parse::<Name>().ok());
            names.extend(name.filter(|_| entry.path().is_dir()));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The image folders of a name.
    fn images(&self, name: &Name) -> Result<Vec<PathBuf>, TemplateError> {
        let folder = self.folder.join(name.as_str());
        let failed = || TemplateError::failed("list", &folder);
        let mut images = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            if entry.file_type().map_err(failed())?.is_dir() {
                images.push(entry.path());
            }
        }
        Ok(images)
    }

    fn sweep_name(&self, name: &Name, in_use: &dyn Fn(&str) -> bool) -> Result<(), TemplateError> {
        let folder = self.folder.join(name.as_str());
        let mut pointed = Vec::new();
        for (tag, _) in self.pointers(name)? {
            pointed.extend(std::fs::read_link(folder.join(pointer(tag.as_ref()))).ok());
        }
        let mut left = !pointed.is_empty();
        for image in self.images(name)? {
            let Some(folder_name) = image.file_name().and_then(|n| n.to_str()) else {
                continue;
            };
            if pointed.iter().any(|target| target == Path::new(folder_name)) {
                continue;
            }
            let digest = manifest::digest_in(folder_name);
            if in_use(digest) {
                left = true;
                continue;
            }
            // In use after all, say by a sandbox on its way out: the next sweep finds it.
            if !self.unmount_digest(digest)? {
                left = true;
                continue;
            }
            // Renamed first, so that a removal cut short is swept and never seen as a template.
            let doomed = self.folder.join(format!("{}{folder_name}", staging::PREFIX));
            std::fs::rename(&image, &doomed).map_err(TemplateError::failed("remove", &image))?;
            tree::remove(&doomed).map_err(TemplateError::failed("remove", &doomed))?;
        }
        if !left {
            std::fs::remove_dir(&folder).map_err(TemplateError::failed("remove", &folder))?;
        }
        sync_folder(&self.folder).map_err(TemplateError::failed("sync", &self.folder))
    }

    /// Unmounts an image unless it is busy, and says whether it is gone.
    fn unmount_digest(&self, digest: &str) -> Result<bool, TemplateError> {
        let target = self.mounts.join(digest);
        if !erofs::is_mounted(&target).unwrap_or(false) {
            return Ok(true);
        }
        match unmount(&target) {
            Ok(()) => Ok(true),
            Err(TemplateError::Unmount { source }) if source.is_busy() => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Stands in for a template that cannot be read.
fn passed_over<T: Default>(error: TemplateError) -> T {
    tracing::warn!(error = &error as &dyn std::error::Error, "a template is damaged and is left out");
    T::default()
}

/// The file by which a tag points, or the name itself.
fn pointer(tag: Option<&Tag>) -> String {
    match tag {
        Some(tag) if !tag.is_default() => format!("{TAG}{tag}"),
        _ => CURRENT.to_owned(),
    }
}

/// Unmounts a template and removes its mount point.
fn unmount(target: &Path) -> Result<(), TemplateError> {
    sys_mount::unmount(target, UnmountFlags::empty()).map_err(|source| TemplateError::Unmount { source })?;
    std::fs::remove_dir(target).map_err(TemplateError::failed("remove", target))
}

/// Makes a private folder and returns its canonical path, as the mount table shows it.
fn make_folder(base: &Path, path: &Path) -> Result<PathBuf, TemplateError> {
    let made = provide_folder(base, path, 0o700);
    made.and_then(|()| path.canonicalize()).map_err(TemplateError::failed("make the folder", path))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
