//! How large and how deep the tree of a template may be.
//!
//! The maker of an archive chooses the shape of its tree, and every later reader has to bear it: the tool that packs images,
//! the kernel that mounts them, programs that walk them. A tree beyond these limits is refused while it is imported.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use roost_sys::tree::At;
use rustix::fs::{FileType, readlink};
use rustix::io::Errno;

use super::import::ImportError;

/// Folders within one another. `mkfs.erofs` needs 4 KiB of stack for each.
pub(super) const DEEPEST: usize = 1024;
/// Bytes of a path below the root. `mkfs.erofs` hands whole paths to the kernel, which ends them at 4096.
pub(super) const LONGEST_PATH: usize = 4000;
/// Bytes of a name. `mkfs.erofs` loses the last byte of a longer one.
pub(super) const LONGEST_NAME: usize = 254;
/// Entries of the tree, and members of the archives that it is made of.
const MOST_ENTRIES: u64 = 4 << 20;
/// Bytes of the files of the tree, and of the archives that it is made of when they are unpacked.
const MOST_BYTES: u64 = 256 << 30;
/// Bytes of an offending path that an error shows.
const SHOWN: usize = 128;

/// A limit of a template's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TreeLimit {
    /// Too many folders within one another.
    #[error("folders may be nested {DEEPEST} deep")]
    Depth,
    /// A path is too long.
    #[error("a path may have {LONGEST_PATH} bytes")]
    Path,
    /// A name is too long.
    #[error("a name may have {LONGEST_NAME} bytes")]
    Name,
    /// Too many files and folders.
    #[error("a template may have {MOST_ENTRIES} files and folders")]
    Entries,
    /// Too much data.
    #[error("a template may have {} GiB of data", MOST_BYTES >> 30)]
    Bytes,
}

/// Refuses an entry of a tree that lies too deep or is named too long, and returns its path.
pub(super) fn check(at: &At<'_>) -> Result<PathBuf, ImportError> {
    let path = at.path();
    check_path(&path)?;
    let too_deep = at.kind == FileType::Directory && at.depth >= DEEPEST;
    if too_deep { Err(beyond(TreeLimit::Depth, &path)) } else { Ok(path) }
}

/// Refuses a path of an archive that no file of a template can have.
pub(super) fn check_path(path: &Path) -> Result<(), ImportError> {
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(beyond(TreeLimit::Path, path));
    }
    let name = path.file_name().unwrap_or_default();
    if name.len() > LONGEST_NAME { Err(beyond(TreeLimit::Name, path)) } else { Ok(()) }
}

/// Refuses a member of an archive that links lead to deeper than a path can.
pub(super) fn check_folder(folder: impl AsFd, path: &Path) -> Result<(), ImportError> {
    // The kernel writes the path of an open folder, unless it is longer than any may be.
    match readlink(format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd()), Vec::new()) {
        Err(Errno::NAMETOOLONG) => Err(beyond(TreeLimit::Depth, path)),
        _ => Ok(()),
    }
}

fn beyond(limit: TreeLimit, path: &Path) -> ImportError {
    let bytes = path.as_os_str().as_bytes();
    let mut shown = String::from_utf8_lossy(bytes.get(..SHOWN).unwrap_or(bytes)).into_owned();
    if bytes.len() > SHOWN {
        shown.push('…');
    }
    ImportError::Beyond { limit, path: Some(shown) }
}

/// Counts the entries and the bytes of an import.
#[derive(Debug, Default)]
pub(super) struct Counter {
    entries: u64,
    bytes: u64,
}

impl Counter {
    /// Counts an entry and returns how many there are now.
    pub(super) fn entry(&mut self) -> Result<u64, ImportError> {
        self.entries += 1;
        if self.entries > MOST_ENTRIES { Err(too_much(TreeLimit::Entries)) } else { Ok(self.entries) }
    }

    /// Counts bytes and returns how many there are now.
    pub(super) fn bytes(&mut self, count: u64) -> Result<u64, ImportError> {
        self.bytes = self.bytes.saturating_add(count);
        if self.bytes > MOST_BYTES { Err(too_much(TreeLimit::Bytes)) } else { Ok(self.bytes) }
    }
}

fn too_much(limit: TreeLimit) -> ImportError {
    ImportError::Beyond { limit, path: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(error: ImportError) -> TreeLimit {
        match error {
            ImportError::Beyond { limit, .. } => limit,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn counter_stops_at_its_limits() {
        let mut counter = Counter { entries: MOST_ENTRIES - 1, bytes: 0 };
        assert_eq!(counter.entry().unwrap(), MOST_ENTRIES);
        assert_eq!(limit_of(counter.entry().unwrap_err()), TreeLimit::Entries);
        assert_eq!(counter.bytes(MOST_BYTES).unwrap(), MOST_BYTES);
        assert_eq!(limit_of(counter.bytes(1).unwrap_err()), TreeLimit::Bytes);
        assert_eq!(limit_of(counter.bytes(u64::MAX).unwrap_err()), TreeLimit::Bytes);
    }

    #[test]
    fn long_paths_and_names_are_refused_with_a_short_text() {
        check_path(Path::new(&"n".repeat(LONGEST_NAME))).unwrap();
        let name = check_path(Path::new(&"n".repeat(LONGEST_NAME + 1))).unwrap_err();
        assert!(name.to_string().len() < 300, "{name}");
        assert_eq!(limit_of(name), TreeLimit::Name);
        check_path(Path::new(&"d/".repeat(LONGEST_PATH / 2))).unwrap();
        let path = check_path(Path::new(&"d/".repeat(1 << 20))).unwrap_err();
        assert!(path.to_string().len() < 300, "{path}");
        assert_eq!(limit_of(path), TreeLimit::Path);
    }
}
