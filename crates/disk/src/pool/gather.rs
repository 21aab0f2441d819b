//! Contents put together, so that names and folders have room where contents were.
//!
//! A pool that was full of contents once has given all of its room to them, in large pieces. Whatever is removed later, hardly
//! a piece is ever quite empty, and none comes back: folders could not be made in a pool that is mostly free. So, when
//! room for them is short, what lies in the emptiest pieces is moved together, in the background.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use roost_sys::btrfs::{self, Room};

use super::start::POOL_ROOM;

/// Where less is left for names and folders there soon is none.
const SHORT: u64 = 4 * POOL_ROOM;
/// What contents have left is worth moving some of them.
const WORTHWHILE: u64 = POOL_ROOM;
/// As large as a piece can be. It is written anew before the host has its old place back.
const LARGEST: u64 = 1 << 30;
/// The emptiest pieces first, by how many percent of them hold contents: they give most for what is moved.
const USAGES: [u8; 4] = [5, 25, 50, 75];
/// What did not help is not tried again at once.
const REST: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Who puts contents together; at most one at a time, and none when this is gone.
#[derive(Debug)]
pub(super) struct Gathering {
    place: Arc<Place>,
    state: Mutex<State>,
    leave: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Place {
    pool: File,
    host: File,
    /// Left free on the host, whatever the pool needs.
    reserve: u64,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// Until it ends: whether it helped.
    Begun(JoinHandle<bool>),
    /// It did not help; not again before this.
    Resting(Instant),
}

impl Gathering {
    /// For a pool in a file on `host`.
    pub(super) fn new(pool: File, host: File, reserve: u64) -> Self {
        Self { place: Arc::new(Place { pool, host, reserve }), state: Mutex::default(), leave: Arc::default() }
    }

    /// Begins, where room for names and folders is short and contents have left some.
    pub(super) fn begin_where_needed(&self, room: Room) {
        if !is_needed(room) {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match mem::take(&mut *state) {
            State::Begun(thread) if !thread.is_finished() => State::Begun(thread),
            State::Resting(until) if Instant::now() < until => State::Resting(until),
            State::Begun(thread) => {
                let helped = thread.join().unwrap_or(false);
                if helped { self.begin() } else { State::Resting(Instant::now() + REST) }
            }
            State::Idle | State::Resting(_) => self.begin(),
        };
    }

    fn begin(&self) -> State {
        let (place, leave) = (Arc::clone(&self.place), Arc::clone(&self.leave));
        let work = move || {
            place.gather(&leave).unwrap_or_else(|error| {
                tracing::warn!(%error, "could not put contents of the pool together");
                false
            })
        };
        match thread::Builder::new().name("gather".to_owned()).spawn(work) {
            Ok(thread) => State::Begun(thread),
            Err(error) => {
                tracing::warn!(%error, "could not begin to put contents of the pool together");
                State::Resting(Instant::now() + REST)
            }
        }
    }
}

impl Drop for Gathering {
    /// What it has open would keep the pool mounted.
    fn drop(&mut self) {
        self.leave.store(true, Ordering::Relaxed);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let State::Begun(thread) = mem::take(state) else { return };
        // More than once, for it may just be about to go on with the next piece.
        while !thread.is_finished() {
            if let Err(error) = btrfs::stop_emptying(&self.place.pool) {
                tracing::warn!(%error, "could not interrupt what puts contents of the pool together");
                break;
            }
            thread::sleep(LOOK_AGAIN);
        }
        let _helped = thread.join();
    }
}

fn is_needed(room: Room) -> bool {
    room.metadata < SHORT && room.left_by_contents >= WORTHWHILE
}

impl Place {
    /// Moves contents until there is room for names and folders; whether there is.
    fn gather(&self, leave: &AtomicBool) -> io::Result<bool> {
        let mut emptied = 0;
        let Some(mut room) = btrfs::room(&self.pool)? else { return Ok(false) };
        for usage in USAGES {
            loop {
                if room.metadata >= SHORT {
                    tracing::info!(emptied, "contents of the pool were put together: there is room for folders again");
                    return Ok(true);
                }
                if leave.load(Ordering::Relaxed) || !self.host_has_room()? {
                    return Ok(false);
                }
                let some = btrfs::empty_pieces(&self.pool, usage, 1)?;
                emptied += some;
                let Some(next) = btrfs::room(&self.pool)? else { return Ok(false) };
                // A piece whose contents went to a new one of their own was moved for nothing.
                let gained = next.left_by_contents < room.left_by_contents;
                room = next;
                if some == 0 || !gained {
                    break;
                }
            }
        }
        Ok(false)
    }

    fn host_has_room(&self) -> io::Result<bool> {
        let host = rustix::fs::fstatvfs(&self.host)?;
        Ok(host.f_bavail * host.f_frsize >= self.reserve.saturating_add(LARGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_moved_only_where_that_can_help() {
        let room = |metadata, left_by_contents| Room { metadata, left_by_contents };
        assert!(is_needed(room(POOL_ROOM, WORTHWHILE)));
        assert!(!is_needed(room(SHORT, u64::MAX)), "there is room");
        assert!(!is_needed(room(0, WORTHWHILE - 1)), "the pool is full");
    }
}
