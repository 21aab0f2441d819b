//! Calls of processes inside to the host: a socket inside, a table, and the host's own connection that empties it.
//!
//! ```text
//! process -- line --> socket -- ask --> table -- frame --> host (which connected to us)
//!         <-- line --        <-- settled --     <-- frame --
//! ```
//! A call outlives the connection it went out on. A sandbox that sleeps frozen keeps its connection and reads the answer
//! when it wakes. One that comes out of an image has lost it: the calls that lead into an image (suspend, checkpoint) are
//! answered by the wake itself, the others are made once more. One that goes on while its memory is saved may lose it
//! too, where its kernel ends connections with that: the host then brings the answer on another one.

pub(crate) mod inside;
mod table;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use roost_wire::frame::Kind;
use roost_wire::{AnswerFrame, Call, Outcome, Reply, Why};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::conn::{Conn, ConnError, Filled, decode};
use crate::failure::failed;
use crate::guest::Guest;
use crate::wake::{Wake, lock};
use table::Table;

/// How long a caller waits for a host that is not connected, in slices so that time asleep does not count.
const SLICE: Duration = Duration::from_millis(500);
const SLICES: u32 = 60;

/// The calls that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    table: Mutex<Table>,
    /// Told whenever something in the table changes.
    changed: Condvar,
}

impl Calls {
    /// Makes a call and waits for what comes of it.
    pub(crate) fn ask(&self, call: Call) -> Outcome {
        let mut table = lock(&self.table);
        let id = match table.add(call) {
            Ok(id) => id,
            Err(refused) => return refused,
        };
        let mut left = SLICES;
        loop {
            if let Some(outcome) = table.take_settled(id) {
                return outcome;
            }
            if !table.needs_host(id) {
                table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if left == 0 {
                table.give_up(id);
                return Outcome::refused("internal", "the host does not listen to this sandbox now: try again");
            }
            let (again, slept) = self.changed.wait_timeout(table, SLICE).unwrap_or_else(PoisonError::into_inner);
            table = again;
            left -= u32::from(slept.timed_out());
        }
    }

    /// The sandbox goes on after a sleep.
    pub(crate) fn resumed(&self, why: Why, from_image: bool) {
        lock(&self.table).resumed(why, from_image);
        self.changed.notify_all();
    }

    fn settle(&self, answer: AnswerFrame) {
        lock(&self.table).settle(answer);
        self.changed.notify_all();
    }

    /// The host brings an answer on another connection than the one that had the call.
    pub(crate) fn settle_late(&self, answer: AnswerFrame) {
        lock(&self.table).settle_late(answer);
        self.changed.notify_all();
    }
}

/// A host's turn at the table; ends when it is dropped.
struct Session<'a> {
    calls: &'a Calls,
    number: u64,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        lock(&self.calls.table).end(self.number);
        self.calls.changed.notify_all();
    }
}

/// Serves a host that wants to hear the calls, until it hangs up or another one takes its place.
pub(crate) fn serve(guest: &Guest, conn: &mut Conn) -> Result<(), ConnError> {
    let bell = match Wake::new() {
        Ok(bell) => Arc::new(bell),
        Err(error) => return conn.answer(Err(failed("make a doorbell", &error))),
    };
    conn.answer(Ok(Reply::Done))?;
    let calls = &guest.calls;
    let session = Session { calls, number: lock(&calls.table).begin(bell.clone()) };
    calls.changed.notify_all();
    loop {
        bell.clear();
        let Some(waiting) = lock(&calls.table).take_waiting(session.number) else { return Err(ConnError::Gone) };
        for call in waiting {
            conn.queue(Kind::Call, &call)?;
        }
        conn.flush()?;
        while let Some((kind, body)) = conn.next_buffered()? {
            match kind {
                Kind::Answer => calls.settle(decode(kind, body)?),
                other => return Err(ConnError::Misplaced(other)),
            }
        }
        if conn.fill_now()? == Filled::Nothing {
            conn.rest();
            let mut ready = [PollFd::new(conn, PollFlags::IN), PollFd::new(&*bell, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return Err(ConnError::Gone),
            }
        }
    }
}
