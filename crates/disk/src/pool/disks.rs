//! The disk of one sandbox: a subvolume in a folder named after it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use roost_sys::{btrfs, tree};
use rustix::fs::{AtFlags, Mode, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::folders::{self, FOLDER, check_id};
use super::{Pool, SANDBOXES, STAGING};

pub(super) const DISK: &str = "disk";
const FLUSH: &str = "flush";
pub(super) const UPPER: &str = "root";
pub(super) const WORK: &str = "work";

/// Where the parts of a sandbox's disk are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPaths {
    /// The subvolume.
    pub subvolume: PathBuf,
    /// The upper layer of the sandbox's root.
    pub upper: PathBuf,
    /// The work folder of its overlay.
    pub work: PathBuf,
}

/// What a disk holds as of the pool's last commit, which happens at least every 30 seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes that this disk alone pays for.
    pub exclusive: u64,
    /// Bytes charged to it; the same under simple quotas, and with what it shares under full ones.
    pub referenced: u64,
    /// Bytes it may hold.
    pub limit: Option<u64>,
}

/// Why an operation on a disk failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The id cannot name a folder.
    #[error("`{id}` is not an id")]
    InvalidId { id: String },
    /// There is no such disk.
    #[error("no disk of `{id}`")]
    NotFound { id: String },
    /// A snapshot's new disk is there already.
    #[error("a disk of `{id}` exists already")]
    Exists { id: String },
    /// A restore that was cut short must be carried on or undone first.
    #[error("the disk of `{id}` is being replaced")]
    Replacing { id: String },
    /// There is nothing to discard: the replacement was cut short before it took place.
    #[error("the disk of `{id}` was not replaced yet")]
    NotReplaced { id: String },
    /// The kernel refused.
    #[error("failed to {attempt} the disk of `{id}`")]
    Failed { attempt: &'static str, id: String, source: io::Error },
}

impl DiskError {
    /// Whether the cause is a full pool or a full quota.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if folders::is_full(source))
    }

    pub(super) fn failed<E: Into<io::Error>>(attempt: &'static str, id: &str) -> impl FnOnce(E) -> Self {
        move |source| Self::Failed { attempt, id: id.to_owned(), source: source.into() }
    }
}

impl Pool {
    /// Makes an empty disk of at most `limit` bytes.
    ///
    /// A disk that is there already is completed and kept, so that a creation cut short can be repeated.
    pub fn create_disk(&self, id: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        check_id(id)?;
        if self.disk_from_spare(id, limit) {
            return Ok(self.paths(id));
        }
        let folder = self.make_folder(id)?;
        match btrfs::create_subvolume(&folder, OsStr::new(DISK)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(DiskError::failed("create", id)(e)),
        }
        let disk = openat(&folder, DISK, FOLDER, Mode::empty()).map_err(DiskError::failed("create", id))?;
        for (name, mode) in [(UPPER, 0o755), (WORK, 0o700)] {
            match mkdirat(&disk, name, Mode::from(mode)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(DiskError::failed("create", id)(e)),
            }
        }
        self.limit_open_disk(&disk.into(), limit).map_err(DiskError::failed("limit", id))?;
        Ok(self.paths(id))
    }

    /// The disk of a sandbox, if it has one.
    pub fn disk(&self, id: &str) -> Option<DiskPaths> {
        let paths = check_id(id).is_ok().then(|| self.paths(id))?;
        paths.upper.is_dir().then_some(paths)
    }

    /// The ids of all disks, also of those whose creation was cut short.
    pub fn list_disks(&self) -> io::Result<Vec<String>> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.root.join(SANDBOXES))? {
            ids.extend(entry?.file_name().into_string());
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Changes how many bytes a disk may hold; without quotas in the pool it does nothing.
    pub fn set_limit(&self, id: &str, limit: u64) -> Result<(), DiskError> {
        let disk = self.open_disk(id)?;
        self.limit_open_disk(&disk, limit).map_err(DiskError::failed("limit", id))
    }

    /// What a disk holds, or `None` where the pool has no quotas to count by.
    pub fn usage(&self, id: &str) -> Result<Option<DiskUsage>, DiskError> {
        let disk = self.open_disk(id)?;
        let read = || -> io::Result<Option<DiskUsage>> {
            let subvolume = btrfs::subvolume_id(&disk)?;
            let Some(usage) = btrfs::usage(&disk, subvolume)? else {
                return Ok(None);
            };
            let limit = btrfs::limit(&disk, subvolume)?;
            Ok(Some(DiskUsage { exclusive: usage.exclusive, referenced: usage.referenced, limit }))
        };
        read().map_err(DiskError::failed("read the usage of", id))
    }

    /// Deletes a disk; one that is not there is no error.
    ///
    /// Its space comes back in the background, at the next commit of the pool and once nobody has a file in it open. One that
    /// holds little is emptied and kept for another sandbox.
    pub fn delete_disk(&self, id: &str) -> Result<(), DiskError> {
        check_id(id)?;
        let folder = match openat(&self.sandboxes, id, FOLDER, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(DiskError::failed("open", id)(e)),
        };
        match self.spare_disk(id, &folder) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, id, "a disk is not kept for another sandbox"),
        }
        // The disk, and whatever a replacement or a flush left that was cut short.
        folders::empty(&folder, &self.root.join(SANDBOXES).join(id)).map_err(DiskError::failed("delete", id))?;
        match unlinkat(&self.sandboxes, id, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(DiskError::failed("remove the folder of", id)(e)),
        }
    }

    /// Writes out what the sandbox has written so far, so that the next snapshot has little to wait for.
    ///
    /// A throwaway snapshot flushes its own subvolume only; a sync would wait for the whole pool.
    pub fn flush_ahead(&self, id: &str) -> Result<(), DiskError> {
        let disk = self.open_disk(id)?;
        self.flush(&disk).map_err(DiskError::failed("flush", id))
    }

    /// Writes a subvolume out, and with it what was done in the pool so far; the throwaway snapshot is made where one that
    /// is left behind gets swept.
    pub(super) fn flush(&self, subvolume: &File) -> io::Result<()> {
        let (path, open) = folders::stage_in(&self.root.join(STAGING))?;
        let flushed = folders::flush(subvolume, &open, OsStr::new(FLUSH));
        std::fs::remove_dir(&path)?;
        flushed
    }

    /// Makes `new_id` a disk with everything that `id` holds now, in constant time.
    ///
    /// The new disk has its own limit: quotas do not pass to a snapshot. Under simple quotas it pays only for what it writes
    /// itself, under full ones also for what it shares. Its
    /// work folder is empty, because an overlay's leftovers there belong to the other mount.
    pub fn snapshot(&self, id: &str, new_id: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        let source = self.open_disk(id)?;
        let folder = self.make_folder(new_id)?;
        match btrfs::create_snapshot(&source, &folder, OsStr::new(DISK)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(DiskError::Exists { id: new_id.to_owned() });
            }
            Err(e) => return Err(DiskError::failed("snapshot", id)(e)),
        }
        self.complete(&folder, DISK, new_id, limit).inspect_err(|_| self.delete_unfinished(new_id))?;
        Ok(self.paths(new_id))
    }

    /// Makes a disk of a saved one; a disk that is there already is completed and kept.
    pub(super) fn disk_from(&self, source: &File, new_id: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        let folder = self.make_folder(new_id)?;
        match btrfs::create_snapshot(source, &folder, OsStr::new(DISK)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => {
                self.delete_unfinished(new_id);
                return Err(DiskError::failed("create", new_id)(e));
            }
        }
        self.complete(&folder, DISK, new_id, limit).inspect_err(|_| self.delete_unfinished(new_id))?;
        Ok(self.paths(new_id))
    }

    /// Gives a fresh snapshot what does not pass to it: its limit, and a work folder of its own.
    pub(super) fn complete(&self, folder: &File, name: &str, id: &str, limit: u64) -> Result<(), DiskError> {
        let finish = || -> io::Result<()> {
            let disk = File::from(openat(folder, name, FOLDER, Mode::empty())?);
            self.limit_open_disk(&disk, limit)?;
            let work = self.root.join(SANDBOXES).join(id).join(name).join(WORK);
            match tree::remove(&work) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            mkdirat(&disk, WORK, Mode::RWXU)?;
            Ok(())
        };
        finish().map_err(DiskError::failed("complete", id))
    }

    /// Takes a failed creation back; the first failure is the one to tell, a leftover is found by `list_disks`.
    fn delete_unfinished(&self, id: &str) {
        if let Err(error) = self.delete_disk(id) {
            tracing::warn!(%error, id, "failed to delete an unfinished disk");
        }
    }

    pub(super) fn paths(&self, id: &str) -> DiskPaths {
        let subvolume = self.root.join(SANDBOXES).join(id).join(DISK);
        DiskPaths { upper: subvolume.join(UPPER), work: subvolume.join(WORK), subvolume }
    }

    fn make_folder(&self, id: &str) -> Result<File, DiskError> {
        check_id(id)?;
        match mkdirat(&self.sandboxes, id, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(DiskError::failed("make the folder of", id)(e)),
        }
        self.open_folder(id)
    }

    pub(super) fn open_folder(&self, id: &str) -> Result<File, DiskError> {
        check_id(id)?;
        match openat(&self.sandboxes, id, FOLDER, Mode::empty()) {
            Ok(folder) => Ok(folder.into()),
            Err(Errno::NOENT) => Err(DiskError::NotFound { id: id.to_owned() }),
            Err(e) => Err(DiskError::failed("open", id)(e)),
        }
    }

    pub(super) fn open_disk(&self, id: &str) -> Result<File, DiskError> {
        check_id(id)?;
        // The id has no slash, so this is two components below a folder of ours.
        match openat(&self.sandboxes, format!("{id}/{DISK}"), FOLDER, Mode::empty()) {
            Ok(disk) => Ok(disk.into()),
            Err(Errno::NOENT) => Err(DiskError::NotFound { id: id.to_owned() }),
            Err(e) => Err(DiskError::failed("open", id)(e)),
        }
    }

    pub(super) fn limit_open_disk(&self, disk: &File, limit: u64) -> io::Result<()> {
        if !self.quotas() {
            return Ok(());
        }
        btrfs::set_limit(disk, btrfs::subvolume_id(disk)?, Some(limit))
    }
}
