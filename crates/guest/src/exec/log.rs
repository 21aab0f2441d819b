//! The log of a service: plain files on the sandbox's disk, under absolute offsets.
//!
//! A file is named after the offset of its first byte, so that nothing else has to be remembered about it:
//!
//! ```text
//! roost/web/00000000000000000000.log    bytes 0..4194304
//! roost/web/00000000000004194304.log    bytes 4194304..
//! ```
//! Two files are kept. A disk that refuses bytes leaves a hole, which a reader is told of.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use roost_wire::StreamRange;

use super::spool::Found;

const KEPT_FILES: usize = 2;

/// One file of a log.
#[derive(Debug)]
struct Part {
    start: u64,
    length: u64,
    file: File,
}

impl Part {
    fn end(&self) -> u64 {
        self.start + self.length
    }
}

/// The log of one service.
#[derive(Debug)]
pub(crate) struct Log {
    folder: PathBuf,
    file_size: u64,
    /// Oldest first; none reaches into the next.
    parts: Vec<Part>,
    end: u64,
    /// Nothing is kept any more.
    removed: bool,
}

impl Log {
    /// Opens what an earlier life of the sandbox has left in `folder`, which need not be there.
    pub(crate) fn open(folder: PathBuf, file_size: u64) -> Self {
        let mut starts: Vec<u64> = entries(&folder);
        starts.sort_unstable();
        let mut parts: Vec<Part> = Vec::new();
        for start in starts {
            let Ok(file) = OpenOptions::new().read(true).write(true).open(path_of(&folder, start)) else { continue };
            let Ok(length) = file.metadata().map(|found| found.len()) else { continue };
            // One that somebody inside has changed; nothing may be told twice.
            if parts.last().is_none_or(|before| before.end() <= start) && start.checked_add(length).is_some() {
                parts.push(Part { start, length, file });
            }
        }
        let end = parts.last().map_or(0, Part::end);
        Self { folder, file_size: file_size.max(1), parts, end, removed: false }
    }

    pub(crate) fn range(&self) -> StreamRange {
        StreamRange { start: self.parts.first().map_or(self.end, |part| part.start), end: self.end }
    }

    /// Writes bytes at the end; what the disk refuses is lost.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = if self.removed { 0 } else { self.append_piece(rest).unwrap_or(0) };
            if taken == 0 {
                self.end += rest.len() as u64;
                return;
            }
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    fn append_piece(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = |part: &Part| part.end() == self.end && part.length < self.file_size;
        if !self.parts.last().is_some_and(fits) {
            self.begin_file()?;
        }
        let file_size = self.file_size;
        let Some(part) = self.parts.last_mut() else { return Ok(0) };
        let room = usize::try_from(file_size - part.length).unwrap_or(usize::MAX);
        let piece = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        let taken = part.file.write_at(piece, part.length)?;
        part.length += taken as u64;
        self.end = part.end();
        Ok(taken)
    }

    fn begin_file(&mut self) -> io::Result<()> {
        // First, because a disk that is full has room again then.
        while self.parts.len() >= KEPT_FILES {
            let oldest = self.parts.remove(0);
            fs::remove_file(path_of(&self.folder, oldest.start)).ok();
        }
        fs::create_dir_all(&self.folder)?;
        let path = path_of(&self.folder, self.end);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o644).open(path)?;
        self.parts.push(Part { start: self.end, length: 0, file });
        Ok(())
    }

    /// Copies what is kept from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Found {
        let Some(part) = self.parts.iter().find(|part| offset < part.end()) else {
            return if offset < self.end { Found::Gap { to: self.end } } else { Found::Bytes(0) };
        };
        if offset < part.start {
            return Found::Gap { to: part.start };
        }
        let length = usize::try_from(part.end() - offset).unwrap_or(usize::MAX).min(buffer.len());
        let target = buffer.get_mut(..length).unwrap_or_default();
        match part.file.read_exact_at(target, offset - part.start) {
            Ok(()) => Found::Bytes(length),
            // Cut short by somebody inside: say so rather than deliver something else.
            Err(_) => Found::Gap { to: part.end() },
        }
    }

    /// Removes it from the disk, for good: what a process that got away still writes is dropped.
    pub(crate) fn remove(&mut self) {
        self.removed = true;
        for part in self.parts.drain(..) {
            fs::remove_file(path_of(&self.folder, part.start)).ok();
        }
        // Somebody may have put files of their own there; those stay.
        fs::remove_dir(&self.folder).ok();
    }
}

fn path_of(folder: &Path, start: u64) -> PathBuf {
    folder.join(format!("{start:020}.log"))
}

fn entries(folder: &Path) -> Vec<u64> {
    let found = fs::read_dir(folder).into_iter().flatten().flatten();
    found.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_all(log: &Log, offset: u64) -> (Vec<u8>, Vec<(u64, u64)>) {
        crate::exec::kept::read_all(offset, 7, |offset, buffer| log.read(offset, buffer))
    }

    #[test]
    fn it_is_plain_text_that_goes_on_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roost/web");
        let mut log = Log::open(path.clone(), 10);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        log.append(b"hello\n");
        drop(log);
        let mut log = Log::open(path.clone(), 10);
        log.append(b"again\n");
        assert_eq!(read_all(&log, 0), (b"hello\nagain\n".to_vec(), vec![]));
        assert_eq!(fs::read(path.join("00000000000000000000.log")).unwrap(), b"hello\nagai");
        assert_eq!(fs::read(path.join("00000000000000000010.log")).unwrap(), b"n\n");
        log.append(b"0123456789");
        assert_eq!(log.range(), StreamRange { start: 10, end: 22 });
        assert_eq!(read_all(&log, 3), (b"n\n0123456789".to_vec(), vec![(3, 10)]));
        log.remove();
        log.append(b"late");
        assert!(!path.exists());
        assert_eq!(read_all(&log, 3), (vec![], vec![(3, 26)]));
    }

    #[test]
    fn what_the_disk_refuses_is_a_hole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web");
        let mut log = Log::open(path.clone(), 100);
        log.append(b"before");
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, "in the way").unwrap();
        log.parts.clear();
        log.append(b"lost");
        fs::remove_file(&path).unwrap();
        log.append(b"after");
        assert_eq!(read_all(&log, 0), (b"after".to_vec(), vec![(0, 10)]));
    }

    #[test]
    fn files_that_were_tampered_with_tell_nothing_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = |start: u64| path_of(folder.path(), start);
        fs::write(path(0), "0123456789").unwrap();
        fs::write(path(5), "overlapping").unwrap();
        fs::write(path(20), "later").unwrap();
        fs::write(path(u64::MAX), "absurd").unwrap();
        fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        let mut log = Log::open(folder.path().to_owned(), 100);
        assert_eq!(read_all(&log, 0), (b"0123456789later".to_vec(), vec![(10, 20)]));
        fs::write(path(20), "la").unwrap();
        assert_eq!(read_all(&log, 20), (b"".to_vec(), vec![(20, 25)]));
        log.remove();
        assert!(folder.path().join("notes.txt").exists());
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_vector(size in 1u64..20, pieces in proptest::collection::vec((0usize..50, any::<bool>()), 1..30)) {
            let folder = tempfile::tempdir().unwrap();
            let mut log = Log::open(folder.path().to_owned(), size);
            let mut model: Vec<u8> = Vec::new();
            for (length, reopen) in pieces {
                let bytes: Vec<u8> = (0..length).map(|at| (model.len() + at) as u8).collect();
                log.append(&bytes);
                model.extend_from_slice(&bytes);
                if reopen {
                    log = Log::open(folder.path().to_owned(), size);
                }
                let range = log.range();
                prop_assert_eq!(range.end, model.len() as u64);
                prop_assert!(range.end - range.start <= 2 * size);
                prop_assert!(range.end < size || range.end - range.start > 0);
                let (bytes, gaps) = read_all(&log, 0);
                prop_assert_eq!(&bytes[..], &model[range.start as usize..]);
                let expected = if range.start > 0 { vec![(0, range.start)] } else { vec![] };
                prop_assert_eq!(gaps, expected);
            }
        }
    }
}
