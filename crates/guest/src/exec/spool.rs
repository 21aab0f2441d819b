//! What a process wrote to one stream, kept under absolute offsets.
//!
//! Bytes are kept in memory first. What does not fit goes to a file that is a ring: the byte at offset `o` is stored at
//! `o % capacity`, so the oldest are overwritten. If the disk is full the file keeps what it has and memory becomes the
//! ring. The bytes kept are always one range, `start..end`:
//!
//! ```text
//! memory only     start ......................... end
//! file only       start ......................... end      (memory is empty)
//! disk was full   start .... file.end = memory.. end      until memory wraps; then memory only
//! ```

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;

use roost_wire::StreamRange;

/// The file half of a spool.
#[derive(Debug)]
struct Ring {
    file: File,
    /// First offset that is not in the file.
    end: u64,
}

/// One stream's output.
#[derive(Debug)]
pub(crate) struct Spool {
    path: PathBuf,
    memory_capacity: usize,
    file_capacity: u64,
    start: u64,
    end: u64,
    memory: VecDeque<u8>,
    ring: Option<Ring>,
    /// The disk refused once; memory it is from then on.
    disk_refused: bool,
}

/// What a read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// This many bytes were copied; none at the end.
    Bytes(usize),
    /// Nothing is kept before this offset.
    Gap { to: u64 },
}

impl Spool {
    /// An empty spool; `path` is where it may put a file.
    pub(crate) fn new(path: PathBuf, memory_capacity: u64, file_capacity: u64) -> Self {
        Self {
            path,
            memory_capacity: usize::try_from(memory_capacity).unwrap_or(usize::MAX).max(1),
            file_capacity,
            start: 0,
            end: 0,
            memory: VecDeque::new(),
            ring: None,
            disk_refused: false,
        }
    }

    pub(crate) fn range(&self) -> StreamRange {
        StreamRange { start: self.start, end: self.end }
    }

    /// Takes bytes in and returns how many, which is all of them unless that would drop bytes from `keep_from` on.
    pub(crate) fn append(&mut self, bytes: &[u8], keep_from: Option<u64>) -> usize {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            // Decided first: the room is another one when the disk refuses the file.
            let to_file = self.uses_file(rest.len());
            let room = self.room(keep_from);
            let Some(piece) = rest.get(..rest.len().min(room)).filter(|piece| !piece.is_empty()) else { break };
            taken += if to_file { self.append_to_file(piece) } else { self.append_to_memory(piece) };
        }
        taken
    }

    /// Copies what is kept from `offset` on.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8]) -> Found {
        if offset < self.start {
            return Found::Gap { to: self.start };
        }
        if let Some(ring) = self.ring.as_ref().filter(|ring| offset < ring.end) {
            let to_wrap = self.file_capacity - offset % self.file_capacity;
            let length = clamp(to_wrap.min(ring.end - offset), buffer.len());
            let target = buffer.get_mut(..length).unwrap_or_default();
            return match ring.file.read_exact_at(target, offset % self.file_capacity) {
                Ok(()) => Found::Bytes(length),
                // The disk lost what it had taken: say so rather than deliver something else.
                Err(_) => Found::Gap { to: ring.end },
            };
        }
        let skip = clamp(offset - self.memory_start(), usize::MAX);
        let (front, back) = self.memory.as_slices();
        let part = match front.get(skip..) {
            Some(part) if !part.is_empty() => part,
            _ => back.get(skip.saturating_sub(front.len())..).unwrap_or_default(),
        };
        let length = part.len().min(buffer.len());
        if let (Some(target), Some(source)) = (buffer.get_mut(..length), part.get(..length)) {
            target.copy_from_slice(source);
        }
        Found::Bytes(length)
    }

    fn memory_start(&self) -> u64 {
        self.end - self.memory.len() as u64
    }

    fn on_file(&self) -> bool {
        self.ring.is_some() && !self.disk_refused
    }

    /// Whether the next `count` bytes belong into the file, which is made if need be.
    fn uses_file(&mut self, count: usize) -> bool {
        if self.on_file() {
            return true;
        }
        let fits = self.memory.len() + count <= self.memory_capacity;
        if fits || self.disk_refused || self.file_capacity <= self.memory_capacity as u64 {
            return false;
        }
        match self.spill() {
            Ok(ring) => {
                self.ring = Some(ring);
                self.memory = VecDeque::new();
            }
            Err(_) => {
                self.disk_refused = true;
                self.remove_file();
            }
        }
        self.on_file()
    }

    /// Copies memory into a new file.
    fn spill(&self) -> io::Result<Ring> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
        let (front, back) = self.memory.as_slices();
        let mut at = self.memory_start();
        for part in [front, back] {
            let written = self.write_ring(&file, at, part);
            if written < part.len() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            at += written as u64;
        }
        Ok(Ring { file, end: self.end })
    }

    /// How many bytes can be taken in now without dropping any from `keep_from` on.
    fn room(&self, keep_from: Option<u64>) -> usize {
        let Some(keep_from) = keep_from else { return usize::MAX };
        let keep_from = keep_from.clamp(self.start, self.end);
        let may_use_file = !self.disk_refused && self.file_capacity > self.memory_capacity as u64;
        if may_use_file {
            return clamp(self.file_capacity - (self.end - keep_from).min(self.file_capacity), usize::MAX);
        }
        let droppable = clamp(keep_from.saturating_sub(self.memory_start()), self.memory.len());
        self.memory_capacity.saturating_sub(self.memory.len()) + droppable
    }

    fn append_to_file(&mut self, bytes: &[u8]) -> usize {
        // A piece longer than the ring would overwrite its own beginning.
        let piece = bytes.get(..clamp(self.file_capacity, bytes.len())).unwrap_or_default();
        let Some(ring) = &self.ring else { return 0 };
        let written = self.write_ring(&ring.file, self.end, piece);
        self.end += written as u64;
        self.start = self.start.max(self.end.saturating_sub(self.file_capacity));
        self.disk_refused = written < piece.len();
        if let Some(ring) = &mut self.ring {
            ring.end = self.end;
        }
        written
    }

    fn append_to_memory(&mut self, bytes: &[u8]) -> usize {
        let piece = bytes.get(..bytes.len().min(self.memory_capacity)).unwrap_or_default();
        let excess = (self.memory.len() + piece.len()).saturating_sub(self.memory_capacity);
        self.memory.drain(..excess);
        self.memory.extend(piece);
        self.end += piece.len() as u64;
        if excess > 0 {
            // Whatever the file still had is no longer next to what memory has.
            if self.ring.take().is_some() {
                self.remove_file();
            }
            self.start = self.memory_start();
        }
        piece.len()
    }

    /// Writes into the ring at `offset` and returns how much the disk took.
    fn write_ring(&self, file: &File, offset: u64, bytes: &[u8]) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let place = (offset + written as u64) % self.file_capacity;
            let piece = rest.get(..clamp(self.file_capacity - place, rest.len())).unwrap_or_default();
            match file.write_at(piece, place) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        written
    }

    fn remove_file(&self) {
        // It may never have been made.
        fs::remove_file(&self.path).ok();
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.ring.is_some() || self.disk_refused {
            self.remove_file();
        }
    }
}

/// The smaller of the two, as a length in memory.
fn clamp(value: u64, limit: usize) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spool(folder: &tempfile::TempDir, memory: u64, file: u64) -> Spool {
        Spool::new(folder.path().join("spool").join("exe.stdout"), memory, file)
    }

    impl Spool {
        fn tail(&self, limit: usize) -> Vec<u8> {
            crate::exec::kept::tail(self.range(), limit, |offset, buffer| self.read(offset, buffer))
        }
    }

    fn read_all(spool: &Spool, offset: u64, step: usize) -> (Vec<u8>, Vec<(u64, u64)>) {
        crate::exec::kept::read_all(offset, step, |offset, buffer| spool.read(offset, buffer))
    }

    #[test]
    fn small_output_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(&folder, 64, 256);
        assert_eq!(spool.append(b"hello", None), 5);
        assert_eq!(read_all(&spool, 0, 3), (b"hello".to_vec(), vec![]));
        assert_eq!((spool.tail(3), spool.tail(100)), (b"llo".to_vec(), b"hello".to_vec()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_file_goes_with_the_spool() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(&folder, 4, 64);
        spool.append(b"more than four", None);
        let path = folder.path().join("spool/exe.stdout");
        assert!(path.exists());
        drop(spool);
        assert!(!path.exists());
    }

    #[test]
    fn a_disk_that_refuses_leaves_memory_and_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("spool"), "in the way").unwrap();
        let mut spool = spool(&folder, 8, 64);
        assert_eq!(spool.append(b"0123456789abcdef", None), 16);
        assert_eq!(spool.range(), StreamRange { start: 8, end: 16 });
        assert_eq!(read_all(&spool, 2, 5), (b"89abcdef".to_vec(), vec![(2, 8)]));
    }

    #[test]
    fn a_disk_that_fills_up_keeps_what_it_has_until_memory_wraps() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(&folder, 4, 64);
        spool.append(b"0123456789", None);
        spool.disk_refused = true;
        spool.append(b"abc", None);
        assert_eq!(read_all(&spool, 0, 4), (b"0123456789abc".to_vec(), vec![]));
        // A reader that must not lose anything stops the writer here, although the file would have had room.
        assert_eq!(spool.append(b"defgh", Some(5)), 1);
        assert_eq!(spool.append(b"efgh", None), 4);
        assert_eq!(read_all(&spool, 0, 4), (b"efgh".to_vec(), vec![(0, 14)]));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Append { length: usize, keep_back: Option<u64> },
        Read { back: u64, step: usize },
        DiskFull,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0usize..200, proptest::option::of(0u64..150)).prop_map(|(length, keep_back)| Step::Append { length, keep_back }),
            4 => (0u64..400, 1usize..100).prop_map(|(back, step)| Step::Read { back, step }),
            1 => Just(Step::DiskFull),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_vector(memory in 1u64..40, file in 0u64..120, steps in proptest::collection::vec(step(), 1..60)) {
            let folder = tempfile::tempdir().unwrap();
            let mut spool = spool(&folder, memory, file);
            let mut model: Vec<u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Append { length, keep_back } => {
                        let bytes: Vec<u8> = (0..length).map(|i| (model.len() + i) as u8).collect();
                        let before = spool.range();
                        let keep = keep_back.map(|back| (model.len() as u64).saturating_sub(back));
                        let taken = spool.append(&bytes, keep);
                        model.extend_from_slice(&bytes[..taken]);
                        match keep {
                            None => prop_assert_eq!(taken, length),
                            Some(keep) => prop_assert!(spool.range().start <= keep.max(before.start)),
                        }
                    }
                    Step::Read { back, step } => {
                        let from = (model.len() as u64).saturating_sub(back);
                        let (bytes, gaps) = read_all(&spool, from, step);
                        let first = from.max(spool.range().start);
                        prop_assert_eq!(&bytes[..], &model[first as usize..]);
                        let expected = if first > from { vec![(from, first)] } else { vec![] };
                        prop_assert_eq!(gaps, expected);
                    }
                    Step::DiskFull => spool.disk_refused = true,
                }
                let tail = spool.tail(33);
                prop_assert!(model.ends_with(&tail));
                prop_assert_eq!(tail.len() as u64, (spool.range().end - spool.range().start).min(33));
                prop_assert_eq!(spool.range().end, model.len() as u64);
                let kept = spool.range().end - spool.range().start;
                prop_assert!(kept <= memory + file.max(memory));
            }
        }
    }
}
