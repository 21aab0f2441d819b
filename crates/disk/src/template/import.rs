//! From a source to a finished template: fill a staging tree, make it a root, pack it, publish it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use roost_model::{Name, TemplateDefaults, TemplateId, TemplateRef};

use super::limits::{Counter, TreeLimit};
use super::manifest::{self, Template};
use super::oci::Image;
use super::staging::Staging;
use super::store::Templates;
use super::tree::Tree;
use super::unpack::Whiteouts;
use super::{copy, erofs, finalize, unpack};
use crate::ImageError;

/// Under what a template remembers the command of the image it was made of.
const COMMAND: &str = "command";

/// Where a template's files come from.
pub enum ImportSource {
    /// A tar archive, plain or packed with gzip, zstd or xz.
    Tar(Box<dyn Read + Send>),
    /// A folder on this host, opened; the path says in the template where it came from.
    Folder { path: PathBuf, opened: File },
}

impl ImportSource {
    /// The folder at a path.
    pub fn folder(path: PathBuf) -> Result<Self, ImportError> {
        match File::open(&path) {
            Ok(opened) => Ok(Self::Folder { path, opened }),
            Err(source) => Err(ImportError::Folder { path, source }),
        }
    }
}

impl std::fmt::Debug for ImportSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tar(_) => f.write_str("Tar"),
            Self::Folder { path, .. } => f.debug_tuple("Folder").field(path).finish(),
        }
    }
}

/// What to do when the name is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Fail: templates are immutable.
    Refuse,
    /// Let new sandboxes start from the new one; those made from the old one go on.
    Replace,
}

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A distribution's packages are fetched and installed.
    Bootstrap,
    /// The source's files are copied.
    Copy,
    /// The image is packed.
    Pack,
    /// The image is hashed and put in place.
    Publish,
}

/// A sign of life from a long piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A stage begins.
    Begin(Stage),
    /// So many bytes of this stage are done.
    Bytes { stage: Stage, done: u64 },
    /// A tool said something.
    Line(&'a str),
}

/// Why a template could not be made; nothing of it is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The name is taken and a replacement was not asked for.
    #[error("template `{name}` exists")]
    Exists { name: TemplateRef },
    /// Too little space is left on the host.
    #[error("{free} bytes are free for templates, {reserve} are kept in reserve")]
    NoRoom { free: u64, reserve: u64 },
    /// Too few inodes are left on the host.
    #[error("{free} inodes are free for templates, {reserve} are kept in reserve")]
    NoInodes { free: u64, reserve: u64 },
    /// The archive is not one.
    #[error("failed to read the archive")]
    Archive { source: io::Error },
    /// The folder to import cannot be opened.
    #[error("failed to open the folder `{}`", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// One file could not be copied or unpacked.
    #[error("failed to import `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The tree is larger or deeper than that of a template may be.
    #[error("{limit}{}", path.as_ref().map_or_else(String::new, |path| format!(": `{path}` is beyond that")))]
    Beyond { limit: TreeLimit, path: Option<String> },
    /// A file's owner does not exist in any sandbox.
    #[error("`{}` belongs to {uid}:{gid}, owners must be below 65536", path.display())]
    Owner { path: PathBuf, uid: u32, gid: u32 },
    /// The tree could not be made a root.
    #[error("failed to {attempt} in the template")]
    Finalize { attempt: &'static str, source: io::Error },
    /// The store could not be written.
    #[error("failed to {attempt}")]
    Store { attempt: &'static str, source: io::Error },
    /// A tool could not be started.
    #[error("failed to start `{tool}` (package {package})")]
    StartTool { tool: &'static str, package: &'static str, source: io::Error },
    /// A tool failed.
    #[error("`{tool}` failed: {output}")]
    Tool { tool: &'static str, output: String },
    /// A template cannot stand on an image that is not there.
    #[error("no template has the image `{digest}`")]
    NoBase { digest: String },
    /// The checkpoint to promote could not be kept.
    #[error("failed to keep what checkpoint `{checkpoint}` holds")]
    Checkpoint { checkpoint: String, source: ImageError },
    /// The host's package manager names no mirror to bootstrap from.
    #[error("no Debian or Ubuntu mirror is configured in this host's apt")]
    NoMirror,
}

impl ImportError {
    pub(super) fn store(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Store { attempt, source }
    }

    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// Counts what is written, keeps the host's reserve and tells the progress.
pub(super) struct Meter<'a> {
    folder: File,
    reserve: u64,
    progress: &'a dyn Fn(Progress<'_>),
    counter: Counter,
    told: u64,
}

impl<'a> Meter<'a> {
    const TELL_EVERY: u64 = 8 << 20;
    const LOOK_EVERY_FILES: u64 = 4096;
    /// Kept free where the filesystem has a fixed number of inodes at all.
    const INODE_RESERVE: u64 = 16 * 1024;

    pub(super) fn new(folder: &Path, reserve: u64, progress: &'a dyn Fn(Progress<'_>)) -> Result<Self, ImportError> {
        let folder = File::open(folder).map_err(ImportError::store("open the staging folder"))?;
        let meter = Self { folder, reserve, progress, counter: Counter::default(), told: 0 };
        meter.look()?;
        Ok(meter)
    }

    /// Counts a new file or folder.
    pub(super) fn file(&mut self) -> Result<(), ImportError> {
        let files = self.counter.entry()?;
        if files.is_multiple_of(Self::LOOK_EVERY_FILES) { self.look() } else { Ok(()) }
    }

    /// Counts bytes, before they are written.
    pub(super) fn bytes(&mut self, count: u64) -> Result<(), ImportError> {
        let done = self.counter.bytes(count)?;
        if done - self.told < Self::TELL_EVERY {
            return Ok(());
        }
        self.told = done;
        (self.progress)(Progress::Bytes { stage: Stage::Copy, done });
        self.look()
    }

    fn look(&self) -> Result<(), ImportError> {
        let space = rustix::fs::fstatvfs(&self.folder)
            .map_err(|e| ImportError::store("read the free space for templates")(e.into()))?;
        let free = space.f_bavail * space.f_frsize;
        if free < self.reserve {
            return Err(ImportError::NoRoom { free, reserve: self.reserve });
        }
        if space.f_files > 0 && space.f_favail < Self::INODE_RESERVE {
            return Err(ImportError::NoInodes { free: space.f_favail, reserve: Self::INODE_RESERVE });
        }
        Ok(())
    }
}

impl Templates {
    /// Makes a template of a tar archive or a folder.
    ///
    /// If what is in it is a container image, its layers make the template, and what it says of itself goes where
    /// `defaults` leaves something open.
    pub fn import(
        &self,
        name: impl Into<TemplateRef>,
        source: ImportSource,
        defaults: TemplateDefaults,
        existing: Existing,
        progress: &dyn Fn(Progress<'_>),
    ) -> Result<Template, ImportError> {
        let built_from = match &source {
            ImportSource::Tar(_) => "archive".to_owned(),
            ImportSource::Folder { path, .. } => format!("folder {}", path.display()),
        };
        self.build_from(&name.into(), defaults, built_from, existing, progress, |root| {
            progress(Progress::Begin(Stage::Copy));
            let tree = Tree::open(root).map_err(ImportError::store("open the staging tree"))?;
            let mut meter = Meter::new(root, self.reserve(), progress)?;
            match source {
                ImportSource::Tar(reader) => unpack::unpack(reader, &tree, &mut meter, Whiteouts::Plain)?,
                ImportSource::Folder { path, opened } => {
                    copy::copy(opened, &path, self.folder(), &tree, &mut meter)?;
                }
            }
            let Some(image) = Image::find(&tree)? else { return Ok(None) };
            let empty = || -> io::Result<Tree> {
                std::fs::rename(root, root.with_file_name("layers"))?;
                std::fs::create_dir(root)?;
                Tree::open(root)
            };
            let root = empty().map_err(ImportError::store("make room for the layers of an image"))?;
            image.apply(&tree, &root, &mut meter)?;
            Ok(Some(image))
        })
    }

    /// Makes a template of whatever `fill` puts into an empty folder.
    pub(super) fn build(
        &self,
        name: &Name,
        defaults: TemplateDefaults,
        built_from: String,
        existing: Existing,
        progress: &dyn Fn(Progress<'_>),
        fill: impl FnOnce(&Path) -> Result<(), ImportError>,
    ) -> Result<Template, ImportError> {
        let fill = |root: &Path| fill(root).map(|()| None);
        self.build_from(&name.into(), defaults, built_from, existing, progress, fill)
    }

    /// The same for what may turn out to be an image.
    fn build_from(
        &self,
        name: &TemplateRef,
        defaults: TemplateDefaults,
        built_from: String,
        existing: Existing,
        progress: &dyn Fn(Progress<'_>),
        fill: impl FnOnce(&Path) -> Result<Option<Image>, ImportError>,
    ) -> Result<Template, ImportError> {
        let tags = [name.tag.clone().unwrap_or_default()];
        // Looked at again when it is published; here so that the work is not done in vain.
        self.check_tags_free(&name.name, &tags, existing)?;
        let staging = Staging::new(self.folder()).map_err(ImportError::store("make a staging folder"))?;
        let container = fill(&staging.root())?;
        let defaults = match &container {
            Some(container) => defaults.or(container.defaults()),
            None => defaults,
        };
        finalize::finalize(&staging.root())?;

        progress(Progress::Begin(Stage::Pack));
        let image = manifest::image_in(&staging.image());
        erofs::pack(&staging.root(), &image, progress)?;

        progress(Progress::Begin(Stage::Publish));
        let (digest, size) = seal(&image).map_err(ImportError::store("hash and sync the image"))?;
        let template = Template {
            id: TemplateId::generate(),
            name: name.name.clone(),
            digest,
            created_at: Timestamp::now(),
            size,
            defaults,
            built_from,
            changes: None,
            memory: false,
            origin: container.map(|container| serde_json::json!({ COMMAND: container.command() })),
            folder: staging.image(),
        };
        manifest::write(&template, &staging.image()).map_err(ImportError::store("write the template's description"))?;
        self.publish(template, &tags, existing)
    }
}

impl Template {
    /// What the container image that it was made of would start; nothing is started by itself.
    pub fn command(&self) -> Vec<String> {
        let command = self.origin.as_ref().and_then(|origin| origin.get(COMMAND)).cloned();
        command.and_then(|command| serde_json::from_value(command).ok()).unwrap_or_default()
    }
}

/// Hashes the image and makes it durable.
fn seal(image: &Path) -> io::Result<(String, u64)> {
    let file = File::open(image)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&file)?;
    file.sync_all()?;
    Ok((hasher.finalize().to_hex().to_string(), file.metadata()?.len()))
}
