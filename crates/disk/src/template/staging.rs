//! A folder in which a template is made: locked while its maker lives, removed with everything in it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use roost_sys::mount::{self, UnmountFlags};
use roost_sys::tree;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::aside::put_aside;

pub(super) const PREFIX: &str = ".staging-";

/// A staging folder; dropping it removes it.
#[derive(Debug)]
pub(super) struct Staging {
    folder: Option<TempDir>,
    /// Held for its lock, by which a sweep knows that the maker lives.
    _lock: File,
}

impl Staging {
    /// Makes a staging folder with an empty `root` and an empty `image` folder in it.
    pub(super) fn new(templates: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(templates)?;
        let lock = File::open(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        std::fs::create_dir(folder.path().join("root"))?;
        std::fs::create_dir(folder.path().join("image"))?;
        Ok(Self { folder: Some(folder), _lock: lock })
    }

    /// The tree that becomes the image.
    pub(super) fn root(&self) -> PathBuf {
        self.path().join("root")
    }

    /// The folder that becomes the template's own.
    pub(super) fn image(&self) -> PathBuf {
        self.path().join("image")
    }

    fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let Some(folder) = self.folder.take() else { return };
        let path = folder.keep();
        if let Err(error) = remove(&path) {
            tracing::warn!(%error, path = %path.display(), "failed to remove a staging folder");
        }
    }
}

/// Removes what makers that were killed left behind; a leftover that cannot be removed is put aside.
pub(super) fn sweep(data_dir: &Path, templates: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(templates)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        if let Err(error) = sweep_one(&entry.path()) {
            put_aside(data_dir, &entry.path(), &error);
        }
    }
    Ok(())
}

fn sweep_one(path: &Path) -> io::Result<()> {
    let lock = File::open(path)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() { remove(path) } else { Ok(()) }
}

/// Removes a tree in which a killed build may have left mounts: what is mounted there is not ours to delete.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let path = path.canonicalize()?;
    for entry in mount::mounts_below(&path).map_err(io::Error::other)?.iter().rev() {
        mount::unmount(&entry.target, UnmountFlags::DETACH).map_err(io::Error::other)?;
    }
    tree::remove(&path)
}
