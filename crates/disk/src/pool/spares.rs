//! Disks of sandboxes that are gone, emptied and waiting to be another's.
//!
//! For every subvolume that it drops, btrfs commits the whole pool where quotas count, a millisecond of work or more. Most
//! disks end with a handful of small files on them. Such a disk is emptied and given to the next sandbox instead:
//!
//! ```text
//! sandboxes/<id> --rename--> spares/<id>: root/ and work/ are deleted --> new ones, a new limit --rename--> sandboxes/<new>
//! ```
//!
//! Nothing of the earlier sandbox is in it then: its files and both folders that its overlay used are gone, and nobody can
//! have one of them open whose processes have ended. Only the count of bytes may name the old ones, until the pool's next
//! commit or for as long as a checkpoint has them, so a disk that counts many is dropped. Every other way out of here is to
//! drop the disk, too.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use roost_sys::{btrfs, tree};
use rustix::fs::{FlockOperation, Mode, flock, mkdirat, openat};

use super::disks::{DISK, UPPER, WORK};
use super::folders::{FOLDER, open_folder, rename_new};
use super::{Pool, SANDBOXES, SPARES, staged};

/// How many wait at most; a batch gives back as many as it takes.
const MOST: usize = 32;
/// What is quicker deleted one by one than dropped.
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 256 << 10;

/// Empty disks that wait for their next sandbox.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<Spare>>);

/// A folder with a disk that has neither upper layer nor work folder. Its lock keeps it from being swept.
#[derive(Debug)]
struct Spare {
    path: PathBuf,
    folder: File,
}

impl Spares {
    fn waiting(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Empties a sandbox's disk and keeps it for another; false if it is to be deleted in the ordinary way.
    pub(super) fn spare_disk(&self, id: &str, folder: &File) -> io::Result<bool> {
        let path = self.root.join(SANDBOXES).join(id);
        if self.spares.waiting().len() >= MOST || !holds_little(&path)? || !counts_little(&path.join(DISK))? {
            return Ok(false);
        }
        flock(folder, FlockOperation::NonBlockingLockExclusive)?;
        let spare = Spare { path: self.root.join(SPARES).join(id), folder: folder.try_clone()? };
        rename_new(&path, &spare.path)?;
        // From here on the sandbox has no disk any more, whatever becomes of this one.
        match spare.clear() {
            Ok(()) => self.spares.waiting().push(spare),
            Err(error) => {
                tracing::debug!(%error, id, "a disk cannot be used again");
                staged::remove(&spare.folder, &spare.path)?;
            }
        }
        Ok(true)
    }

    /// Makes one that waits the disk of a sandbox that has none; false if none waits, or none can be used.
    pub(super) fn disk_from_spare(&self, id: &str, limit: u64) -> bool {
        let target = self.root.join(SANDBOXES).join(id);
        if target.exists() {
            return false;
        }
        let Some(spare) = self.spares.waiting().pop() else { return false };
        let ready = || -> io::Result<()> {
            let disk = File::from(openat(&spare.folder, DISK, FOLDER, Mode::empty())?);
            mkdirat(&disk, UPPER, Mode::from(0o755))?;
            mkdirat(&disk, WORK, Mode::from(0o700))?;
            self.limit_open_disk(&disk, limit)?;
            rename_new(&spare.path, &target)
        };
        let made = ready();
        if let Err(error) = &made {
            tracing::debug!(%error, id, "a disk cannot be used again");
            if let Err(error) = staged::remove(&spare.folder, &spare.path) {
                tracing::warn!(%error, path = %spare.path.display(), "failed to delete a disk that waited");
            }
        }
        made.is_ok()
    }
}

impl Spare {
    fn clear(&self) -> io::Result<()> {
        for name in [UPPER, WORK] {
            tree::remove(&self.path.join(DISK).join(name))?;
        }
        Ok(())
    }
}

/// Whether the quota charges a disk with little. What a checkpoint still has of it is charged to it all the same.
fn counts_little(disk: &Path) -> io::Result<bool> {
    let disk = open_folder(disk)?;
    let usage = btrfs::usage(&disk, btrfs::subvolume_id(&disk)?)?;
    Ok(usage.is_none_or(|usage| usage.exclusive.max(usage.referenced) <= MOST_BYTES))
}

/// Whether a sandbox's folder has a whole disk in it, nothing beside it, and little on it.
fn holds_little(folder: &Path) -> io::Result<bool> {
    let names: Vec<_> = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    let disk = folder.join(DISK);
    if names != [DISK] || !btrfs::is_subvolume_root(open_folder(&disk)?)? {
        return Ok(false);
    }
    let (mut files, mut bytes) = (0, 0);
    let mut folders = vec![disk];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            // Of the entry itself, where a link would lead elsewhere.
            let found = entry.metadata()?;
            files += 1;
            bytes += found.blocks().saturating_mul(512).max(found.len());
            if files > MOST_FILES || bytes > MOST_BYTES {
                return Ok(false);
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(true)
}
