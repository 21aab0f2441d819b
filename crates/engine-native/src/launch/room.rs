//! The room that an image may take, enforced while CRIU writes it.
//!
//! The size of an image is known when it is written: CRIU writes memory that processes share since a fork once for each of
//! them, and copies deleted files that only a message on its way still holds. So the launcher looks at the folder while
//! CRIU works:
//!
//! ```text
//! within the room -> CRIU goes on
//! beyond it       -> every write fails from now on -> CRIU gives up in order: it leaves the processes as they were
//!                    the writes cannot be stopped  -> CRIU is killed
//! ```
//!
//! In addition no single file can grow beyond the room, whatever the looks see.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roost_sys::file_size::{kill_descendants, limit_file_size, stop_writes};
use rustix::process::Pid;

/// The time between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How many times as long as a look the time between two looks is at least: an image of many processes has many files.
const PATIENCE: u32 = 8;
/// The launcher itself and CRIU write small files beside the image.
const LEAST_PER_FILE: u64 = 1 << 20;

/// The room of one image, and whether the image has exceeded it.
#[derive(Debug)]
pub(super) struct Room {
    folder: PathBuf,
    most: u64,
    exceeded: Cell<bool>,
    /// The time of the next look.
    due: Cell<Instant>,
}

impl Room {
    /// The room of the image in `folder`. Limits each file that this process and its children write.
    pub(super) fn enforce(folder: &Path, most: u64) -> io::Result<Self> {
        limit_file_size(most.max(LEAST_PER_FILE))?;
        let due = Cell::new(Instant::now() + LOOK_AGAIN);
        Ok(Self { folder: folder.to_owned(), most, exceeded: Cell::new(false), due })
    }

    /// Whether the image was larger than its room at a look.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.get()
    }

    /// After a CRIU that failed: whether the room is the reason. A file that reached its limit fills the room by itself.
    pub(super) fn was_short(&self) -> bool {
        self.exceeded.get() || size_of(&self.folder) >= self.most
    }

    /// The time until the next look.
    pub(super) fn due_in(&self) -> Duration {
        self.due.get().saturating_duration_since(Instant::now())
    }

    /// Looks at the image if it is time to, and stops the writes of `criu` when it is larger than its room.
    ///
    /// Fails if they cannot be stopped.
    pub(super) fn look(&self, criu: Pid) -> io::Result<()> {
        let begun = Instant::now();
        if begun < self.due.get() {
            return Ok(());
        }
        if !self.exceeded.get() && size_of(&self.folder) > self.most {
            self.exceeded.set(true);
            stop_writes(criu)?;
        }
        if self.exceeded.get() {
            // Programs that CRIU starts write a part of the image, too. CRIU takes their end for a failure.
            kill_descendants(criu);
        }
        let now = Instant::now();
        self.due.set(now + LOOK_AGAIN.max((now - begun) * PATIENCE));
        Ok(())
    }
}

/// The size of all files in a folder, as far as it can be read: the daemon measures the finished image once more.
fn size_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten();
    let sizes = files.filter_map(|entry| Some(entry.ok()?.metadata().ok()?.len()));
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn image_beyond_its_room_is_noticed_when_a_look_is_due() {
        let folder = tempfile::tempdir().unwrap();
        let due = Cell::new(Instant::now() + Duration::from_secs(60));
        let room = Room { folder: folder.path().to_owned(), most: 10, exceeded: Cell::new(false), due };
        let mut criu = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&criu);
        fs::write(folder.path().join("pages-1.img"), "0123456789").unwrap();
        room.due.set(Instant::now());
        room.look(pid).unwrap();
        assert!(!room.is_exceeded() && room.was_short());
        assert!(room.due_in() > Duration::ZERO);
        fs::write(folder.path().join("pages-2.img"), "0").unwrap();
        room.look(pid).unwrap();
        assert!(!room.is_exceeded(), "no look is due yet");
        room.due.set(Instant::now());
        room.look(pid).unwrap();
        assert!(room.is_exceeded());
        criu.kill().unwrap();
        criu.wait().unwrap();
    }
}
