//! What is being made: a folder in `staging` that becomes an image or a checkpoint by one rename, or vanishes.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use roost_sys::btrfs;
use rustix::fs::{CWD, FlockOperation, RenameFlags, XattrFlags, flock, fsetxattr, renameat_with};
use rustix::io::Errno;

use super::behind::WriteBehind;
use super::checkpoints::{self, Checkpoint};
use super::disks::{DISK, DiskError};
use super::folders::{self, open_folder, sync_folder};
use super::{CHECKPOINTS, IMAGES, Pool, STAGING};
use crate::image::{self, Image, ImageError, Maker};

pub(super) const IMAGE: &str = "image";
const FLUSH: &str = "flush";

/// A moment that is being saved; dropped without a commit, all of it is removed.
#[derive(Debug)]
pub struct Staged {
    pool: PathBuf,
    /// Absent once it has become something else.
    folder: Option<PathBuf>,
    /// Held for its lock too, by which a sweep knows that the maker lives.
    open: File,
    behind: Mutex<Option<WriteBehind>>,
}

impl Pool {
    /// Begins to save a moment.
    pub fn stage(&self) -> Result<Staged, ImageError> {
        let staging = self.root.join(STAGING);
        let make = || -> io::Result<Staged> {
            loop {
                let folder = tempfile::Builder::new().prefix("").rand_bytes(12).tempdir_in(&staging)?.keep();
                let open = open_folder(&folder)?;
                flock(&open, FlockOperation::NonBlockingLockExclusive)?;
                // A sweep may have come between the making and the locking.
                if is_same(&open, &folder)? {
                    return Ok(Staged {
                        pool: self.root.clone(),
                        folder: Some(folder),
                        open,
                        behind: Mutex::new(None),
                    });
                }
            }
        };
        make().map_err(ImageError::failed("make a staging folder in", &staging))
    }

    /// Moves something that is kept under an id out of sight and removes it; what is not there is no error.
    pub(super) fn unmake(&self, kind: &str, id: &str) -> Result<(), ImageError> {
        image::check_id(id)?;
        let path = self.root.join(kind).join(id);
        if !path.try_exists().map_err(ImageError::failed("look at", &path))? {
            return Ok(());
        }
        let staged = self.stage()?;
        match rename(&path, &staged.path().join("doomed")) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(ImageError::failed("remove", &path)(e)),
        }
        staged.remove().map_err(ImageError::failed("remove", &path))
    }
}

impl Staged {
    /// Makes the empty folder that the memory is to be dumped into, and returns it.
    ///
    /// Nothing in it is compressed: a sandbox stands still meanwhile.
    pub fn memory(&self) -> Result<PathBuf, ImageError> {
        let image = self.path().join(IMAGE);
        let memory = image.join(image::MEMORY);
        let make = || -> io::Result<()> {
            btrfs::create_subvolume(&self.open, OsStr::new(IMAGE))?;
            let open = open_folder(&image)?;
            fsetxattr(&open, "btrfs.compression", b"none", XattrFlags::empty())?;
            DirBuilder::new().mode(0o755).create(&memory)
        };
        make().map_err(ImageError::failed("make the folder", &memory))?;
        Ok(memory)
    }

    /// Writes large files of the dump out from now on while they grow, until the image is finished.
    ///
    /// For a sandbox that goes to sleep, where the dump and the finish are one wait. One that goes on after the dump
    /// does better without: it would wait for the disk too.
    pub fn write_behind(&self) -> Result<(), ImageError> {
        let memory = self.path().join(IMAGE).join(image::MEMORY);
        let behind = WriteBehind::follow(memory.clone()).map_err(ImageError::failed("follow the dump in", &memory))?;
        self.set_behind(Some(behind));
        Ok(())
    }

    /// Takes the memory of an image that is there already, in constant time.
    pub fn copy_image(&self, source: &Image) -> Result<(), ImageError> {
        let copy = || btrfs::create_snapshot(open_folder(source.folder())?, &self.open, OsStr::new(IMAGE));
        copy().map_err(ImageError::failed("copy the image", source.folder()))
    }

    /// Takes the disk of a sandbox as it is now; durable on return.
    pub fn snapshot_disk(&self, pool: &Pool, sandbox: &str) -> Result<(), DiskError> {
        self.take_disk(&pool.open_disk(sandbox)?, sandbox)
    }

    pub(super) fn take_disk(&self, source: &File, id: &str) -> Result<(), DiskError> {
        btrfs::create_read_only_snapshot(source, &self.open, OsStr::new(DISK))
            .map_err(DiskError::failed("snapshot", id))
    }

    /// Completes the image that was dumped into [`Staged::memory`]: describes it and writes it out.
    ///
    /// Part of both commits, for callers that want it done, or timed, before.
    pub fn finish_image(&self, maker: &Maker) -> Result<Image, ImageError> {
        self.set_behind(None);
        let folder = self.path().join(IMAGE);
        let image = Image::describe(&folder, maker)?;
        // One commit for all files together; without it each sync below would be one of its own.
        let flush = || folders::flush(&open_folder(&folder)?, &self.open, OsStr::new(FLUSH));
        flush().map_err(ImageError::failed("write out", &folder))?;
        image.sync()?;
        Ok(image)
    }

    /// Makes it the memory image `id`; durable on return.
    ///
    /// The image must be finished, or a copy of one that was.
    pub fn commit_image(self, id: &str) -> Result<Image, ImageError> {
        image::check_id(id)?;
        let (images, source) = (self.pool.join(IMAGES), self.path().join(IMAGE));
        let target = images.join(id);
        Image::open(source.clone(), id)?;
        rename(&source, &target).map_err(ImageError::taken("put in place", &target, id))?;
        // A renamed subvolume makes this a commit.
        if let Err(error) = sync_folder(&images) {
            // Back to where it goes with the rest.
            rename(&target, &source).map_err(ImageError::failed("take back", &target))?;
            return Err(ImageError::failed("sync", &images)(error));
        }
        Image::open(target, id)
    }

    /// Makes it the checkpoint `id`, of files only or of memory too; durable on return.
    ///
    /// An image in it must be finished, or a copy of one that was.
    pub fn commit_checkpoint(self, id: &str) -> Result<Checkpoint, ImageError> {
        self.commit_folder(CHECKPOINTS, id)
    }

    pub(super) fn commit_folder(mut self, kind: &str, id: &str) -> Result<Checkpoint, ImageError> {
        image::check_id(id)?;
        let parent = self.pool.join(kind);
        let target = parent.join(id);
        let describe = || -> io::Result<()> {
            checkpoints::describe(self.path())?;
            self.open.sync_all()
        };
        describe().map_err(ImageError::failed("describe", self.path()))?;
        // Looked at as if it were in place already: what is refused later must not get there.
        Checkpoint::open(self.path().to_owned(), id)?.image()?;
        rename(self.path(), &target).map_err(ImageError::taken("put in place", &target, id))?;
        self.folder = Some(target.clone());
        sync_folder(&parent).map_err(ImageError::failed("sync", &parent))?;
        self.folder = None;
        Checkpoint::open(target, id)
    }

    fn set_behind(&self, behind: Option<WriteBehind>) {
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = behind;
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
        self.set_behind(None);
        let Some(folder) = self.folder.take() else { return };
        if let Err(error) = remove(&self.open, &folder) {
            tracing::warn!(%error, path = %folder.display(), "failed to remove a staging folder");
        }
    }
}

/// Removes what makers that were killed left behind.
pub(super) fn sweep(staging: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(staging)? {
        let path = entry?.path();
        let open = open_folder(&path)?;
        match flock(&open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => remove(&open, &path)?,
            Err(Errno::WOULDBLOCK) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Removes a staging folder with the subvolumes in it, also one level down, where the doomed are.
fn remove(open: &File, path: &Path) -> io::Result<()> {
    let doomed = path.join("doomed");
    match open_folder(&doomed) {
        // A doomed image is a subvolume itself and goes as one.
        Ok(folder) if !btrfs::is_subvolume_root(&folder)? => folders::empty(&folder, &doomed)?,
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    folders::empty(open, path)?;
    std::fs::remove_dir(path)
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

fn is_same(open: &File, path: &Path) -> io::Result<bool> {
    let open = open.metadata()?;
    Ok(path.symlink_metadata().is_ok_and(|now| (now.dev(), now.ino()) == (open.dev(), open.ino())))
}
