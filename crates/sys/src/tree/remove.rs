//! The removal of a tree.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, unlinkat};
use rustix::io::Errno;

use super::descent::open_folder;
use super::walk::{At, Visitor, walk};

/// How often a tree is walked into which another process still writes.
const PASSES: u32 = 8;

/// Removes a file, a link, or a folder with everything in it; a path that does not exist is an error.
///
/// The removal goes on after a failure and returns the first one. It stays on the filesystem of the folder: a folder on which
/// another one is mounted is such a failure.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_at(CWD, path.as_os_str())
}

/// Like [`remove`], for a name in an open folder.
pub fn remove_at(folder: impl AsFd, name: &OsStr) -> io::Result<()> {
    let folder = folder.as_fd();
    if unlink(folder, name, FileType::Directory)? {
        return Ok(());
    }
    let emptied = empty_top(|| open_folder(folder, name));
    // The first failure says more than the folder that is not empty because of it.
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(()),
        Err(error) => emptied.and(Err(error.into())),
    }
}

/// Removes everything in an open folder, like [`remove`], and keeps the folder.
pub fn empty(folder: impl AsFd) -> io::Result<()> {
    let folder = folder.as_fd();
    // An open file description of its own leaves the position of the caller's alone.
    empty_top(|| open_folder(folder, OsStr::new(".")))
}

fn empty_top(open: impl Fn() -> io::Result<OwnedFd>) -> io::Result<()> {
    let mut passes = 1;
    loop {
        let mut removal = Removal::default();
        let walked = walk(open()?, &mut removal);
        let failure = removal.first.or(walked.err());
        match failure {
            None => return Ok(()),
            // Another process made something in a folder after it was emptied.
            Some(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && passes < PASSES => passes += 1,
            Some(error) => return Err(error),
        }
    }
}

/// Removes one entry; false if it is a folder with something in it.
fn unlink(folder: impl AsFd, name: &OsStr, kind: FileType) -> rustix::io::Result<bool> {
    let (folder, is_folder) = (folder.as_fd(), kind == FileType::Directory);
    let flags = |is_folder| if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    let removed = match unlinkat(folder, name, flags(is_folder)) {
        // The name was given to something else since it was listed.
        Err(Errno::NOTDIR | Errno::ISDIR) => unlinkat(folder, name, flags(!is_folder)),
        removed => removed,
    };
    match removed {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes every entry that the walk visits.
#[derive(Debug, Default)]
struct Removal {
    first: Option<io::Error>,
}

impl Removal {
    fn note(&mut self, error: io::Error) {
        self.first.get_or_insert(error);
    }
}

impl Visitor for Removal {
    type Error = io::Error;

    fn entry(&mut self, at: &At<'_>) -> io::Result<bool> {
        match unlink(at.folder, at.name, at.kind) {
            Ok(removed) => Ok(!removed),
            Err(Errno::NOENT) => Ok(false),
            // The folder itself may have to stay, but its content need not.
            Err(Errno::PERM | Errno::ACCESS) if at.kind == FileType::Directory => Ok(true),
            Err(error) => {
                self.note(error.into());
                Ok(false)
            }
        }
    }

    fn left(&mut self, at: &At<'_>) -> io::Result<()> {
        match unlinkat(at.folder, at.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => self.note(error.into()),
        }
        Ok(())
    }

    fn skipped(&mut self, _path: &Path, error: io::Error) -> io::Result<()> {
        // A folder that is gone needs no removal.
        if error.kind() != io::ErrorKind::NotFound {
            self.note(error);
        }
        Ok(())
    }

    fn fault(&mut self, _path: &Path, error: io::Error) -> io::Error {
        error
    }
}
