//! Going back in place: another disk for the same sandbox, with the old one kept until told otherwise.
//!
//! The names in the sandbox's folder are the whole state, so that it can be read after a crash at any point:
//!
//! | there is | meaning | `undo_replace` | `discard_replaced` |
//! | --- | --- | --- | --- |
//! | `disk` | settled | nothing to do | nothing to do |
//! | `disk`, `disk.next` | the new one was being prepared | deletes `disk.next` | refused: there is no new one yet |
//! | `disk.next`, `disk.replaced` | stopped between the two renames | old one back, new one deleted | new one in place, old one deleted |
//! | `disk`, `disk.replaced` | replaced | old one back, new one deleted | old one deleted |
//!
//! Both can be repeated and lead to `disk` alone. `replace_disk` returns after a commit of the pool: what it did also
//! survives the death of the machine.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use roost_sys::btrfs;
use rustix::fs::{AtFlags, Mode, RenameFlags, openat, renameat_with, statat};
use rustix::io::Errno;

use super::Pool;
use super::disks::{DISK, DiskError, DiskPaths};
use super::folders;

const NEXT: &str = "disk.next";
const REPLACED: &str = "disk.replaced";

/// How far a replacement got that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// The sandbox has its old disk; the new one may be unfinished.
    Prepared,
    /// Stopped in mid-way: neither is in its place, both are whole.
    Halfway,
    /// The sandbox has its new disk; the old one is still there.
    Replaced,
}

impl Pool {
    /// Gives a sandbox the disk of a checkpoint and keeps the old one until [`Pool::discard_replaced`] or
    /// [`Pool::undo_replace`].
    ///
    /// Nothing may run on the old disk. A replacement that is not settled is refused.
    pub fn replace_disk(&self, id: &str, checkpoint: &str, limit: u64) -> Result<DiskPaths, DiskError> {
        let source = self.open_checkpoint_disk(checkpoint)?;
        let folder = self.open_folder(id)?;
        match self.replacement(id)? {
            None => {}
            Some(Replacement::Prepared) => self.undo_replace(id)?,
            Some(Replacement::Halfway | Replacement::Replaced) => {
                return Err(DiskError::Replacing { id: id.to_owned() });
            }
        }
        let made = btrfs::create_snapshot(&source, &folder, OsStr::new(NEXT))
            .map_err(DiskError::failed("prepare", id))
            .and_then(|()| self.complete(&folder, NEXT, id, limit));
        let switch = || -> io::Result<()> {
            rename(&folder, DISK, REPLACED)?;
            rename(&folder, NEXT, DISK)?;
            self.commit(&folder)
        };
        match made.and_then(|()| switch().map_err(DiskError::failed("replace", id))) {
            Ok(()) => Ok(self.paths(id)),
            Err(error) => {
                // The first failure is the one to tell; what is left is settled by whoever looks next.
                if let Err(error) = self.undo_replace(id) {
                    tracing::warn!(%error, id, "failed to undo a replacement");
                }
                Err(error)
            }
        }
    }

    /// Makes the names in a sandbox's folder durable; by a snapshot and not by a sync, for the reason that `staged` gives.
    fn commit(&self, folder: &File) -> io::Result<()> {
        self.flush(&openat(folder, DISK, folders::FOLDER, Mode::empty())?.into())
    }

    /// How far a replacement of this sandbox's disk got, if one is not settled.
    pub fn replacement(&self, id: &str) -> Result<Option<Replacement>, DiskError> {
        let folder = self.open_folder(id)?;
        let there = |name: &str| exists(&folder, name).map_err(DiskError::failed("look at", id));
        Ok(match (there(DISK)?, there(NEXT)?, there(REPLACED)?) {
            (true, _, true) => Some(Replacement::Replaced),
            (true, true, false) => Some(Replacement::Prepared),
            (false, true, true) | (false, false, true) => Some(Replacement::Halfway),
            (_, _, false) => None,
        })
    }

    /// Gives a sandbox its old disk back, however far the replacement got; one that is settled stays as it is.
    pub fn undo_replace(&self, id: &str) -> Result<(), DiskError> {
        let folder = self.open_folder(id)?;
        let back = || -> io::Result<()> {
            if exists(&folder, REPLACED)? {
                if exists(&folder, DISK)? {
                    folders::destroy(&folder, OsStr::new(NEXT))?;
                    rename(&folder, DISK, NEXT)?;
                }
                rename(&folder, REPLACED, DISK)?;
                self.commit(&folder)?;
            }
            if exists(&folder, DISK)? { folders::destroy(&folder, OsStr::new(NEXT)) } else { Ok(()) }
        };
        back().map_err(DiskError::failed("put back", id))
    }

    /// Deletes the disk that a replacement set aside, after completing the replacement where it stopped in mid-way.
    ///
    /// A replacement that did not get that far is an error: only [`Pool::undo_replace`] settles it.
    pub fn discard_replaced(&self, id: &str) -> Result<(), DiskError> {
        let folder = self.open_folder(id)?;
        match self.replacement(id)? {
            None => return Ok(()),
            Some(Replacement::Prepared) => return Err(DiskError::NotReplaced { id: id.to_owned() }),
            Some(Replacement::Halfway | Replacement::Replaced) => {}
        }
        let forward = || -> io::Result<()> {
            if !exists(&folder, DISK)? {
                rename(&folder, NEXT, DISK)?;
                self.commit(&folder)?;
            }
            folders::destroy(&folder, OsStr::new(NEXT))?;
            folders::destroy(&folder, OsStr::new(REPLACED))
        };
        forward().map_err(DiskError::failed("complete the replacement of", id))
    }
}

fn exists(folder: &File, name: &str) -> io::Result<bool> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn rename(folder: &File, from: &str, to: &str) -> io::Result<()> {
    Ok(renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE)?)
}
