//! Watches that go on by themselves: what they see is kept until it is asked for.
//!
//! They belong to the sandbox, not to a connection: they sleep and wake with it, and end with it. What nobody asks for is
//! kept up to a limit; beyond that it is only known that something was lost. Whoever asks hears of everything that had
//! happened by then: a thread of its own looks at the kernel's queue, and so does the one that is asked.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use roost_wire::frame::Kind;
use roost_wire::{ErrorCode, EventKind, Failure, FileStat, KeepWatch, Reply, StreamEnd, WatchEvent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::watcher::{Watcher, overflow};
use crate::conn::{Conn, ConnError};
use crate::failure::{bad_request, failed};
use crate::files::Caller;
use crate::guest::small_thread;
use crate::wake::{Wake, lock};

/// Most watches at once, each a thread.
const MOST_WATCHES: usize = 64;
/// Most events of a watch that wait to be asked for.
const MOST_WAITING: usize = 16 * 1024;
/// Events that are made ready before they are sent.
const AT_ONCE: usize = 256;
/// Looks at the kernel's queue before an answer is given. Bounded, because whoever makes the events may never pause.
const MOST_LOOKS: usize = 8;

/// The watches, by name.
#[derive(Debug, Default)]
pub(crate) struct KeptWatches {
    by_id: Mutex<BTreeMap<String, Arc<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    /// What it watches, as it was at first.
    watched: FileStat,
    seen: Mutex<Seen>,
    /// Rung when it is to end.
    stop: Wake,
}

#[derive(Debug)]
struct Seen {
    watcher: Watcher,
    waiting: Waiting,
}

impl Seen {
    /// Looks at the kernel's queue; says whether there was anything.
    fn look(&mut self) -> io::Result<bool> {
        let events = self.watcher.events()?;
        let any = !events.is_empty();
        events.into_iter().for_each(|event| self.waiting.add(event));
        Ok(any)
    }
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<WatchEvent>,
    lost: bool,
}

impl Waiting {
    fn add(&mut self, event: WatchEvent) {
        self.lost |= event.kind == EventKind::Overflow || self.events.len() >= MOST_WAITING;
        if self.lost {
            // Half of what happened is worth no more than the word that it is not all.
            self.events = Vec::new();
        } else {
            self.events.push(event);
        }
    }

    fn take(&mut self) -> Vec<WatchEvent> {
        let Self { events, lost } = std::mem::take(self);
        if lost { vec![overflow()] } else { events }
    }
}

impl KeptWatches {
    /// Starts a watch.
    pub(crate) fn begin(&self, caller: &Caller, request: KeepWatch) -> Result<FileStat, Failure> {
        let (watcher, stat) = Watcher::open(caller, &request.watch)?;
        let stop = Wake::new().map_err(|error| failed("make a watch", &error))?;
        let queue = watcher.queue().map_err(|error| failed("make a watch", &error))?;
        let seen = Mutex::new(Seen { watcher, waiting: Waiting::default() });
        let kept = Arc::new(Kept { watched: stat.clone(), seen, stop });
        let mut by_id = lock(&self.by_id);
        if by_id.len() >= MOST_WATCHES {
            let message = format!("{MOST_WATCHES} watches go on already: end those that nobody asks any more");
            return Err(Failure::new(ErrorCode::LimitExceeded, message));
        }
        if by_id.contains_key(&request.id) {
            return Err(bad_request("a watch of this name goes on already"));
        }
        let thread = kept.clone();
        small_thread("watch").spawn(move || thread.run(&queue)).map_err(|error| failed("start a thread", &error))?;
        by_id.insert(request.id, kept);
        Ok(stat)
    }

    /// Tells what a watch has seen since it was last asked.
    pub(crate) fn tell(&self, conn: &mut Conn, id: &str) -> Result<(), ConnError> {
        let found = lock(&self.by_id).get(id).cloned();
        let Some(kept) = found else { return conn.answer(Err(unknown(id))) };
        let events = kept.take();
        conn.queue(Kind::Reply, &Reply::Stat(kept.watched.clone()))?;
        for some in events.chunks(AT_ONCE) {
            some.iter().try_for_each(|event| conn.queue(Kind::WatchEvent, event))?;
            conn.flush()?;
        }
        conn.send(Kind::End, &StreamEnd { count: events.len() as u64, abort: false })
    }

    /// Ends a watch.
    pub(crate) fn end(&self, id: &str) -> Result<(), Failure> {
        let kept = lock(&self.by_id).remove(id).ok_or_else(|| unknown(id))?;
        kept.stop.ring();
        Ok(())
    }
}

impl Kept {
    /// Everything that has happened since the last time.
    fn take(&self) -> Vec<WatchEvent> {
        let mut seen = lock(&self.seen);
        for _ in 0..MOST_LOOKS {
            if !matches!(seen.look(), Ok(true)) {
                break;
            }
        }
        seen.waiting.take()
    }

    /// Empties the kernel's queue as it fills, until it is told to stop.
    fn run(&self, queue: &OwnedFd) {
        loop {
            let mut fds = [PollFd::new(queue, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            let polled = poll(&mut fds, None);
            let [_, stop] = &fds;
            let broken = !matches!(polled, Ok(_) | Err(Errno::INTR));
            if broken || !stop.revents().is_empty() || lock(&self.seen).look().is_err() {
                return;
            }
        }
    }
}

fn unknown(id: &str) -> Failure {
    Failure::new(ErrorCode::WatchNotFound, format!("no watch named `{}`", id.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> WatchEvent {
        WatchEvent { path: number.to_string(), kind: EventKind::Created, ..overflow() }
    }

    #[test]
    fn what_nobody_asks_for_is_kept_up_to_a_limit() {
        let mut waiting = Waiting::default();
        (0..MOST_WAITING).for_each(|number| waiting.add(event(number)));
        assert_eq!(waiting.take().len(), MOST_WAITING);
        assert!(waiting.take().is_empty());
        (0..=MOST_WAITING + 5).for_each(|number| waiting.add(event(number)));
        assert_eq!(waiting.take(), [overflow()]);
        waiting.add(event(1));
        assert_eq!(waiting.take(), [event(1)]);
    }
}
