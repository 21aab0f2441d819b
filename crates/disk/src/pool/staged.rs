//! A checkpoint that is being made: a folder in `staging` that appears under its name by one rename, or vanishes.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use roost_sys::btrfs;

use super::checkpoints::{self, Checkpoint};
use super::disks::{DISK, DiskError};
use super::folders::{self, open_folder, rename_new, stage_in};
use super::{CHECKPOINTS, Pool, STAGING};
use crate::image::{self, Image, ImageError, Images, Lasts, Maker, StagedImage};

const DOOMED: &str = "doomed";
const FLUSH: &str = "flush";

/// A moment that is being saved; dropped without a commit, all of it is removed.
#[derive(Debug)]
pub struct Staged {
    pool: PathBuf,
    images: Images,
    /// Absent once it has become something else.
    folder: Option<PathBuf>,
    /// Held for its lock too, by which a sweep knows that the maker lives.
    open: File,
    lasts: Lasts,
    /// The memory, which is not in the pool.
    image: Option<StagedImage>,
}

impl Pool {
    /// Begins to save a moment.
    pub fn stage(&self) -> Result<Staged, ImageError> {
        self.stage_lasting(Lasts::Always)
    }

    /// Begins to save a moment that is needed shortly and never again: nothing of it waits for the disk, and what is
    /// left of it after a reboot is refused.
    pub fn stage_transient(&self) -> Result<Staged, ImageError> {
        self.stage_lasting(Lasts::ThisBoot)
    }

    fn stage_lasting(&self, lasts: Lasts) -> Result<Staged, ImageError> {
        let staging = self.root.join(STAGING);
        let (folder, open) = stage_in(&staging).map_err(ImageError::failed("make a staging folder in", &staging))?;
        let (pool, images) = (self.root.clone(), self.images.clone());
        Ok(Staged { pool, images, folder: Some(folder), open, lasts, image: None })
    }

    /// Moves something that is kept under an id out of sight and removes it, then its image; what is not there is no
    /// error.
    pub(super) fn unmake(&self, kind: &str, id: &str) -> Result<(), ImageError> {
        image::check_id(id)?;
        let path = self.root.join(kind).join(id);
        if path.try_exists().map_err(ImageError::failed("look at", &path))? {
            let staged = self.stage()?;
            match rename_new(&path, &staged.path().join(DOOMED)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(ImageError::failed("remove", &path)(e)),
            }
            // They are on two filesystems: without this, the image might be gone after a crash and its owner be back.
            if self.images.get(id).is_ok_and(|image| !image.is_transient()) {
                commit(&staged.path().join(DOOMED), &staged.open).map_err(ImageError::failed("commit", &path))?;
            }
            staged.remove().map_err(ImageError::failed("remove", &path))?;
        }
        self.images.delete(id)
    }
}

impl Staged {
    /// Makes the empty folder that the memory is to be dumped into, and returns it.
    pub fn memory(&mut self) -> Result<PathBuf, ImageError> {
        Ok(self.image.insert(self.images.stage(self.lasts)?).memory())
    }

    /// Takes the memory of an image that is there already.
    pub fn copy_image(&mut self, source: &Image) -> Result<(), ImageError> {
        self.image.insert(self.images.stage(self.lasts)?).copy(source)
    }

    /// Takes the disk of a sandbox as it is now; durable on return.
    pub fn snapshot_disk(&self, pool: &Pool, sandbox: &str) -> Result<(), DiskError> {
        self.take_disk(&pool.open_disk(sandbox)?, sandbox)
    }

    pub(super) fn take_disk(&self, source: &File, id: &str) -> Result<(), DiskError> {
        btrfs::create_read_only_snapshot(source, &self.open, OsStr::new(DISK))
            .map_err(DiskError::failed("snapshot", id))
    }

    /// Describes what was dumped into [`Staged::memory`]; a copy is described already.
    pub fn finish_image(&mut self, maker: &Maker) -> Result<(), ImageError> {
        self.image.as_mut().map_or(Ok(()), |image| image.finish(maker))
    }

    /// Makes it the checkpoint `id`, of files only or of memory too; durable on return, unless it need not be.
    ///
    /// An image in it must be finished, or a copy.
    pub fn commit_checkpoint(self, id: &str) -> Result<Checkpoint, ImageError> {
        self.commit_folder(CHECKPOINTS, id)
    }

    pub(super) fn commit_folder(mut self, kind: &str, id: &str) -> Result<Checkpoint, ImageError> {
        image::check_id(id)?;
        checkpoints::describe(self.path(), self.image.is_some(), self.lasts)
            .map_err(ImageError::failed("describe", self.path()))?;
        // Looked at as if it were in place already: what is refused later must not get there.
        Checkpoint::open(self.path().to_owned(), self.images.root(), id)?;
        let image = self.image.take().map(|image| image.commit(id)).transpose()?;
        let placed = self.place(kind, id);
        if placed.is_err() && image.is_some() {
            // The first failure is the one to tell; an image that is nobody's is swept at the next start.
            if let Err(error) = self.images.delete(id) {
                tracing::warn!(%error, id, "failed to take an image back");
            }
        }
        placed
    }

    fn place(&mut self, kind: &str, id: &str) -> Result<Checkpoint, ImageError> {
        let target = self.pool.join(kind).join(id);
        rename_new(self.path(), &target).map_err(ImageError::taken("put in place", &target, id))?;
        // Until that is durable too, a failure takes all of it back.
        self.folder = Some(target.clone());
        if self.lasts == Lasts::Always {
            commit(&target, &self.open).map_err(ImageError::failed("commit", &target))?;
        }
        let placed = Checkpoint::open(target, self.images.root(), id)?;
        self.folder = None;
        Ok(placed)
    }

    fn path(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new(""))
    }

    fn remove(mut self) -> io::Result<()> {
        self.folder.take().map_or(Ok(()), |folder| remove(&self.open, &folder))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        if let Err(error) = remove(&self.open, &folder) {
            tracing::warn!(%error, path = %folder.display(), "failed to remove a staging folder");
        }
    }
}

/// Makes durable what was done in the pool so far, by a throwaway snapshot of the disk in `saved`.
///
/// A sync of the folder would do it through btrfs's log of single files. What that log says of a folder with a
/// subvolume that is deleted soon after cannot be replayed (seen on 6.18: the pool does not mount any more).
fn commit(saved: &Path, into: &File) -> io::Result<()> {
    match open_folder(&saved.join(DISK)) {
        Ok(disk) => folders::flush(&disk, into, OsStr::new(FLUSH)),
        // Nobody can use what has no disk.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes a staging folder with the subvolumes in it, also one level down, where the doomed are.
pub(super) fn remove(open: &File, path: &Path) -> io::Result<()> {
    let doomed = path.join(DOOMED);
    match open_folder(&doomed) {
        Ok(folder) => folders::empty(&folder, &doomed)?,
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Err(_) => {}
    }
    folders::empty(open, path)?;
    std::fs::remove_dir(path)
}
