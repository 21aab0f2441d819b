//! An image that is being made: a folder in `.staging` that appears under its name by one rename, or vanishes.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::behind::WriteBehind;
use super::manifest::{self, Manifest};
use super::sync::sync_all;
use super::{Image, ImageError, Lasts, MEMORY, Maker, check_id, seal};
use crate::pool::{remove_tree, rename_new, sync_folder};

/// Memory that is being saved; dropped without a commit, all of it is removed.
#[derive(Debug)]
pub struct StagedImage {
    images: PathBuf,
    /// Absent once it has become something else.
    folder: Option<PathBuf>,
    /// Its lock tells a sweep that the maker lives.
    _lock: File,
    lasts: Lasts,
    behind: Option<WriteBehind>,
}

impl StagedImage {
    pub(super) fn new(images: &Path, folder: PathBuf, lock: File, lasts: Lasts) -> Result<Self, ImageError> {
        let staged = Self { images: images.to_owned(), folder: Some(folder), _lock: lock, lasts, behind: None };
        let memory = staged.memory();
        let made = DirBuilder::new().mode(0o755).create(&memory);
        made.map_err(ImageError::failed("make the folder", &memory))?;
        Ok(staged)
    }

    /// The folder that the memory is to be dumped into.
    pub fn memory(&self) -> PathBuf {
        self.path().join(MEMORY)
    }

    /// Writes large files of the dump out from now on while they grow, until the image is finished.
    ///
    /// For a sandbox that goes to sleep, where the dump and the commit are one wait. One that goes on after the dump
    /// does better without: it would wait for the disk too.
    pub fn write_behind(&mut self) -> Result<(), ImageError> {
        let memory = self.memory();
        let behind = WriteBehind::follow(memory.clone()).map_err(ImageError::failed("follow the dump in", &memory))?;
        self.behind = Some(behind);
        Ok(())
    }

    /// Takes the memory of an image that is there already.
    pub fn copy(&self, source: &Image) -> Result<(), ImageError> {
        let copied = |from: PathBuf, to: PathBuf| link_or_copy(&from, &to).map_err(ImageError::failed("copy", &from));
        for name in source.manifest.files.keys() {
            copied(source.memory().join(name), self.memory().join(name))?;
        }
        if source.is_sealed() {
            copied(source.folder.join(seal::FILE), self.path().join(seal::FILE))?;
        }
        source.manifest.clone().lasting(self.lasts)?.write(self.path())
    }

    /// Describes what was dumped into [`StagedImage::memory`]; a copy is described already.
    pub fn finish(&mut self, maker: &Maker) -> Result<(), ImageError> {
        self.behind = None;
        Manifest::of(self.path(), maker.clone(), self.lasts)?.write(self.path())
    }

    /// Makes it the image `id`; durable on return, unless it need not be.
    ///
    /// It must be finished, or a copy.
    pub fn commit(mut self, id: &str) -> Result<Image, ImageError> {
        check_id(id)?;
        // Looked at as if it were in place already: what is refused later must not get there.
        let image = Image::open(self.path().to_owned(), id)?;
        if self.lasts == Lasts::Always {
            self.sync(&image)?;
        }
        let target = self.images.join(id);
        rename_new(self.path(), &target).map_err(ImageError::taken("put in place", &target, id))?;
        // Until that is durable too, a failure takes all of it back.
        self.folder = Some(target.clone());
        if self.lasts == Lasts::Always {
            sync_folder(&self.images).map_err(ImageError::failed("sync", &self.images))?;
        }
        self.folder = None;
        Image::open(target, id)
    }

    fn sync(&self, image: &Image) -> Result<(), ImageError> {
        let memory = self.memory();
        let mut files: Vec<_> = image.manifest.files.iter().collect();
        // What takes longest begins first.
        files.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
        let mut paths: Vec<PathBuf> = files.into_iter().map(|(name, _)| memory.join(name)).collect();
        paths.extend([self.path().join(manifest::FILE), memory, self.path().to_owned()]);
        paths.extend(image.is_sealed().then(|| self.path().join(seal::FILE)));
        sync_all(&paths).map_err(|(path, error)| ImageError::failed("sync", &path)(error))
    }

    fn path(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for StagedImage {
    fn drop(&mut self) {
        self.behind = None;
        let Some(folder) = self.folder.take() else { return };
        if let Err(error) = remove_tree(&folder) {
            tracing::warn!(%error, path = %folder.display(), "failed to remove an unfinished image");
        }
    }
}

/// Gives a file that never changes a second name; copies it where that cannot be.
fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
    match std::fs::hard_link(from, to) {
        Err(e) if matches!(e.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported) => {
            // Shares the content where the filesystem can.
            std::fs::copy(from, to).map(drop)
        }
        linked => linked,
    }
}
