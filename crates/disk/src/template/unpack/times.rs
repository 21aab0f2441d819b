//! The times of unpacked folders.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Timespec, Timestamps, futimens};

use crate::template::import::ImportError;
use crate::template::tree::Tree;

/// Folders get their times last, because filling a folder changes its time.
///
/// An archive decides how many folders it has, so they are remembered in a file without a name, not in memory.
#[derive(Debug)]
pub(super) struct FolderTimes(BufWriter<File>);

impl FolderTimes {
    pub(super) fn new(tree: &Tree) -> Result<Self, ImportError> {
        let folder = format!("/proc/self/fd/{}", tree.top().as_fd().as_raw_fd());
        let file = tempfile::tempfile_in(folder).map_err(ImportError::store("make a file for the times of folders"))?;
        Ok(Self(BufWriter::new(file)))
    }

    pub(super) fn note(&mut self, path: &Path, seconds: i64) -> Result<(), ImportError> {
        let path = path.as_os_str().as_bytes();
        let mut write = || -> io::Result<()> {
            self.0.write_all(&seconds.to_ne_bytes())?;
            self.0.write_all(&path.len().to_ne_bytes())?;
            self.0.write_all(path)
        };
        write().map_err(ImportError::store("remember the time of a folder"))
    }

    pub(super) fn set(self, tree: &Tree) -> Result<(), ImportError> {
        let read_back = || -> io::Result<BufReader<File>> {
            let mut file = self.0.into_inner()?;
            file.rewind()?;
            Ok(BufReader::new(file))
        };
        let failed = || ImportError::store("read the times of folders");
        let mut records = read_back().map_err(failed())?;
        while let Some((seconds, path)) = next(&mut records).map_err(failed())? {
            let path = Path::new(OsStr::from_bytes(&path));
            // A later member may have put something else there.
            let Ok(folder) = tree.folder(path.strip_prefix("/").unwrap_or(path)) else {
                continue;
            };
            let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            futimens(&folder, &times).map_err(|e| ImportError::file(path)(e.into()))?;
        }
        Ok(())
    }
}

fn next(records: &mut impl Read) -> io::Result<Option<(i64, Vec<u8>)>> {
    let mut seconds = [0; size_of::<i64>()];
    match records.read_exact(&mut seconds) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut length = [0; size_of::<usize>()];
    records.read_exact(&mut length)?;
    let mut path = vec![0; usize::from_ne_bytes(length)];
    records.read_exact(&mut path)?;
    Ok(Some((i64::from_ne_bytes(seconds), path)))
}
