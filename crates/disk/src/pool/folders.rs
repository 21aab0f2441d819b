//! Small things that everything in the pool is made of: ids, folders, subvolumes in them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use roost_sys::{btrfs, tree};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RenameFlags, flock, open, renameat_with};
use rustix::io::Errno;

use super::disks::DiskError;
use crate::aside::put_aside;

pub(super) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// An id becomes a folder's name, so only plain characters pass.
pub(crate) fn is_id(id: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    !id.is_empty() && id.len() <= 64 && id.bytes().all(plain)
}

pub(super) fn check_id(id: &str) -> Result<(), DiskError> {
    if is_id(id) { Ok(()) } else { Err(DiskError::InvalidId { id: id.to_owned() }) }
}

/// Whether the pool, or a quota in it, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Opens a folder, which must not be a link to one.
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    Ok(open(path, FOLDER, Mode::empty())?.into())
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    open_folder(path)?.sync_all()
}

/// The names in a folder that can be ids, sorted.
pub(crate) fn ids_in(path: &Path) -> io::Result<Vec<String>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(path)? {
        ids.extend(entry?.file_name().into_string().ok().filter(|name| is_id(name)));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Renames to a name that nothing has yet.
pub(crate) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Makes a folder in `staging`, with a lock by which a sweep knows that its maker lives.
pub(crate) fn stage_in(staging: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let folder = tempfile::Builder::new().prefix("").rand_bytes(12).tempdir_in(staging)?.keep();
        let open = open_folder(&folder)?;
        flock(&open, FlockOperation::NonBlockingLockExclusive)?;
        // A sweep may have come between the making and the locking.
        if is_same(&open, &folder)? {
            return Ok((folder, open));
        }
    }
}

/// Removes what makers that were killed left in `staging`; a leftover that cannot be removed is put aside in `base`.
pub(crate) fn sweep_in(base: &Path, staging: &Path, remove: impl Fn(&File, &Path) -> io::Result<()>) {
    let sweep = |path: &Path| -> io::Result<()> {
        let open = open_folder(path)?;
        match flock(&open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => remove(&open, path),
            Err(Errno::WOULDBLOCK) => Ok(()),
            Err(e) => Err(e.into()),
        }
    };
    let entries = match std::fs::read_dir(staging) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::warn!(%error, folder = %staging.display(), "failed to look for leftovers");
            return;
        }
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if let Err(error) = sweep(&path) {
            put_aside(base, &path, &error);
        }
    }
}

/// Removes a plain folder with all in it, also one that somebody is still writing into.
///
/// A dump goes on for a moment after the death of who started it. It ends at the latest with the folder: nothing can be
/// made in one that is removed.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    const ATTEMPTS: u32 = 1000;
    let mut attempt = 1;
    loop {
        match tree::remove(path) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty && attempt < ATTEMPTS => attempt += 1,
            removed => return removed,
        }
    }
}

fn is_same(open: &File, path: &Path) -> io::Result<bool> {
    let open = open.metadata()?;
    Ok(path.symlink_metadata().is_ok_and(|now| (now.dev(), now.ino()) == (open.dev(), open.ino())))
}

/// Destroys a subvolume; one that is not there is no error.
pub(super) fn destroy(parent: &File, name: &OsStr) -> io::Result<()> {
    match btrfs::destroy_subvolume(parent, name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Writes out all of a subvolume, and nothing else, by a throwaway snapshot of it beside `parent`'s other entries.
pub(super) fn flush(subvolume: &File, parent: &File, throwaway: &OsStr) -> io::Result<()> {
    // One of a flush that was cut short is of no use to anybody.
    destroy(parent, throwaway)?;
    btrfs::create_read_only_snapshot(subvolume, parent, throwaway)?;
    destroy(parent, throwaway)
}

/// Removes everything in a folder, subvolumes too.
pub(super) fn empty(folder: &File, path: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            std::fs::remove_file(entry.path())?;
        } else if btrfs::is_subvolume_root(open_folder(&entry.path())?)? {
            destroy(folder, &entry.file_name())?;
        } else {
            tree::remove_at(folder, &entry.file_name())?;
        }
    }
    Ok(())
}
