//! An open folder, and the way back to the top.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;

/// An open folder of a tree that was reached from its top, folder by folder.
///
/// Only the folder itself is open. The folders above it are remembered by their identity.
#[derive(Debug)]
pub struct Descent {
    folder: OwnedFd,
    here: Identity,
    above: Vec<Identity>,
}

/// What tells a folder from all others for as long as a descendant of it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    mount: Mounted,
    inode: u64,
}

/// A mounted filesystem; `id` is 0 where the kernel does not report ids of mounts (before 5.8, gVisor).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mounted {
    device: (u32, u32),
    id: u64,
}

impl Identity {
    fn of(folder: impl AsFd) -> io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let found = statx(folder, "", AtFlags::EMPTY_PATH, wanted)?;
        let has_id = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let mount = Mounted {
            device: (found.stx_dev_major, found.stx_dev_minor),
            id: if has_id { found.stx_mnt_id } else { 0 },
        };
        Ok(Self { mount, inode: found.stx_ino })
    }
}

impl Descent {
    /// Begins at a folder.
    pub fn new(top: OwnedFd) -> io::Result<Self> {
        let here = Identity::of(&top)?;
        Ok(Self { folder: top, here, above: Vec::new() })
    }

    /// The folder that is open.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// How many folders lie between here and the top.
    pub fn depth(&self) -> usize {
        self.above.len()
    }

    /// Goes down into a folder; a link is refused, and so is a folder on which a filesystem is mounted (`EXDEV`).
    pub fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let below = open_folder(&self.folder, name)?;
        let found = Identity::of(&below)?;
        if found.mount != self.here.mount {
            return Err(Errno::XDEV.into());
        }
        self.above.push(std::mem::replace(&mut self.here, found));
        self.folder = below;
        Ok(())
    }

    /// Goes up to the folder that this one was entered from; fails if the folder was moved to another one meanwhile.
    pub fn leave(&mut self) -> io::Result<()> {
        let above = self.above.last().copied().ok_or(Errno::NOENT)?;
        let folder = open_folder(&self.folder, OsStr::new(".."))?;
        if Identity::of(&folder)? != above {
            return Err(io::Error::other("the folder was moved while it was visited"));
        }
        self.above.pop();
        self.here = above;
        self.folder = folder;
        Ok(())
    }
}

/// Opens a folder by one name in another, never through a link.
pub(super) fn open_folder(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}
