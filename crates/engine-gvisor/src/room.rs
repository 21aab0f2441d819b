//! The room that an image may take, enforced while the sentry writes it.
//!
//! A sentry cannot be told to give a save up, and one whose writes are made to fail by the limit of file sizes ends itself,
//! with the sandbox. So the sentry saves to the end, and what it writes is thrown away:
//!
//! ```text
//! within the room -> the sentry goes on, the files stay
//! beyond it       -> the files are emptied at every look, until the sentry has saved; then the save is refused
//! ```
//!
//! That bounds what lies on the disk. It costs the sandbox the time of a save, during which it stands still in any case.

use std::fs::File;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The time between two looks at the files.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The same while files are emptied.
const EMPTY_AGAIN: Duration = Duration::from_millis(20);

/// Does `work`, which writes `files`, and empties them while it does if they become larger than `room` bytes together.
///
/// Returns what the work returns, and whether the files stayed within the room; they are empty if they did not.
pub(crate) fn within<T>(files: &[File], room: u64, work: impl FnOnce() -> T) -> io::Result<(T, bool)> {
    thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let watch = thread::Builder::new().name("image-room".to_owned()).spawn_scoped(scope, move || {
            let mut fits = true;
            loop {
                let again = if fits { LOOK_AGAIN } else { EMPTY_AGAIN };
                let waited = is_done.recv_timeout(again);
                fits = fits && sizes(files)? <= room;
                if !fits {
                    files.iter().try_for_each(|file| file.set_len(0))?;
                }
                if waited != Err(RecvTimeoutError::Timeout) {
                    return Ok::<_, io::Error>(fits);
                }
            }
        })?;
        let worked = work();
        drop(done);
        let fits = watch.join().map_err(|_| io::Error::other("the watch over an image panicked"))??;
        Ok((worked, fits))
    })
}

/// The bytes of the files together.
pub(crate) fn sizes(files: &[File]) -> io::Result<u64> {
    files.iter().try_fold(0_u64, |sum, file| Ok(sum.saturating_add(file.metadata()?.len())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn files(folder: &tempfile::TempDir) -> [File; 2] {
        ["a", "b"].map(|name| File::create_new(folder.path().join(name)).unwrap())
    }

    #[test]
    fn files_within_their_room_stay() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let (done, fits) =
            within(&files, 8, || files.iter().for_each(|file| file.write_all_at(b"1234", 0).unwrap())).unwrap();
        assert_eq!((done, fits, sizes(&files).unwrap()), ((), true, 8));
    }

    #[test]
    fn files_beyond_their_room_are_emptied_again_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(&folder);
        let most = 1 << 20;
        let work = || {
            let mut largest = 0;
            for step in 0..40 {
                files[1].write_all_at(&vec![1; 256 << 10], step * (256 << 10)).unwrap();
                thread::sleep(Duration::from_millis(5));
                let blocks = std::os::unix::fs::MetadataExt::blocks(&files[1].metadata().unwrap());
                largest = blocks.max(largest);
            }
            largest * 512
        };
        let (largest, fits) = within(&files, most, work).unwrap();
        assert!(!fits);
        assert_eq!(sizes(&files).unwrap(), 0);
        assert!(largest < 8 << 20, "{largest} bytes were on the disk at once");
    }
}
