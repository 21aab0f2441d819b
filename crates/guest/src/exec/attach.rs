//! A connection that follows an exec: output one way, input, signals and sizes the other.
//!
//! One thread does both directions with `poll` and never waits for one of them alone, so a client that does not read can
//! still type, and one that does not type still gets output.

use std::sync::{Arc, MutexGuard};

use roost_wire::frame::Kind;
use roost_wire::{Attach, Failure, Gap, Reply, ResizeTo, SendSignal, StartAt, Stream};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::spool::Found;
use super::{Exec, Hold, Listener, State};
use crate::conn::{Conn, ConnError, Filled, decode};
use crate::failure::{bad_request, failed};
use crate::guest::Guest;
use crate::wake::Wake;

/// Most bytes of a stream in one frame.
const CHUNK: u64 = 64 * 1024;

/// A place in the output of an exec, and a doorbell for when there is more.
#[derive(Debug)]
pub(crate) struct Attachment {
    exec: Arc<Exec>,
    id: u64,
    wake: Arc<Wake>,
    /// Next byte wanted of each stream.
    at: [Option<u64>; 2],
    lossless: bool,
    /// Where the attachment ends, once that is known.
    until: Option<[u64; 2]>,
}

/// How an attachment tells that it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Frame,
    Reply,
}

impl Attachment {
    pub(crate) fn new(exec: &Arc<Exec>, attach: &Attach) -> Result<Self, Failure> {
        let wake = Arc::new(Wake::new().map_err(|error| failed("make a doorbell", &error))?);
        let state = exec.lock();
        let ends = state.ends();
        let place = |start, end| match start {
            StartAt::Nothing => Ok(None),
            StartAt::Now => Ok(Some(end)),
            StartAt::Offset(offset) if offset <= end => Ok(Some(offset)),
            StartAt::Offset(offset) => Err(bad_request(format!("offset {offset} is beyond the end at {end}"))),
        };
        let at = [place(attach.stdout, ends[0])?, place(attach.stderr, ends[1])?];
        let over = state.exit.is_some() || !attach.follow;
        let until = over.then_some(ends);
        Ok(Self::enlist(exec, state, wake, at, attach.lossless, until))
    }

    /// An attachment that only rings a bell of the caller's when the exec has ended.
    pub(crate) fn ringing(exec: &Arc<Exec>, wake: Arc<Wake>) -> Self {
        Self::enlist(exec, exec.lock(), wake, [None; 2], false, None)
    }

    fn enlist(
        exec: &Arc<Exec>,
        mut state: MutexGuard<'_, State>,
        wake: Arc<Wake>,
        at: [Option<u64>; 2],
        lossless: bool,
        until: Option<[u64; 2]>,
    ) -> Self {
        let hold = lossless.then_some(Hold { at, progress: state.awake });
        let id = state.next_listener;
        state.next_listener += 1;
        state.listeners.push(Listener { id, wake: wake.clone(), hold });
        drop(state);
        Self { exec: exec.clone(), id, wake, at, lossless, until }
    }

    /// An attachment that only wants to know when things change.
    pub(crate) fn bell(exec: &Arc<Exec>) -> Result<Self, Failure> {
        let nothing = Attach { stdout: StartAt::Nothing, stderr: StartAt::Nothing, follow: true, lossless: false };
        Self::new(exec, &nothing)
    }

    pub(crate) fn wake(&self) -> &Wake {
        &self.wake
    }

    pub(crate) fn exec(&self) -> &Arc<Exec> {
        &self.exec
    }

    /// Puts the next piece of each stream in line; false if there was none.
    fn fetch(&mut self, conn: &mut Conn) -> Result<bool, ConnError> {
        let mut state = self.exec.lock();
        self.until = self.until.or(state.exit.map(|(_, ends)| ends));
        let mut moved = false;
        for (index, (stream, kind)) in
            [(Stream::Stdout, Kind::Stdout), (Stream::Stderr, Kind::Stderr)].into_iter().enumerate()
        {
            let (Some(Some(at)), Some(spool)) = (self.at.get_mut(index), state.spools.get(index)) else { continue };
            let until = self.until.and_then(|until| until.get(index).copied()).unwrap_or(u64::MAX);
            let available = spool.range().end.min(until).saturating_sub(*at).min(CHUNK);
            if available == 0 {
                continue;
            }
            let read = |buffer: &mut [u8]| match spool.read(*at, buffer) {
                Found::Bytes(count) => Ok(count),
                Found::Gap { to } => Err(to),
            };
            match conn.queue_output(kind, *at, available as usize, read)? {
                Ok(count) => *at += count as u64,
                Err(to) => {
                    conn.queue(Kind::Gap, &Gap { stream, from: *at, to })?;
                    *at = to;
                }
            }
            moved = true;
        }
        if moved && self.lossless {
            let progress = state.awake;
            let own = state.listeners.iter_mut().find(|listener| listener.id == self.id);
            if let Some(hold) = own.and_then(|listener| listener.hold.as_mut()) {
                *hold = Hold { at: self.at, progress };
            }
            if state.held {
                self.exec.pump.ring();
            }
        }
        Ok(moved)
    }

    fn is_over(&self) -> bool {
        let reached = |(at, until): (Option<u64>, u64)| at.is_none_or(|at| at >= until);
        self.until.is_some_and(|until| self.at.into_iter().zip(until).all(reached))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.exec.lock();
        state.listeners.retain(|listener| listener.id != self.id);
        if state.held {
            self.exec.pump.ring();
        }
    }
}

/// Serves an attachment until it is over.
pub(crate) fn serve(
    guest: &Guest,
    conn: &mut Conn,
    mut attachment: Attachment,
    ending: Ending,
) -> Result<(), ConnError> {
    loop {
        attachment.wake.clear();
        let mut dry = false;
        if !conn.has_outbound() {
            dry = !attachment.fetch(conn)?;
            if dry && attachment.is_over() {
                let info = attachment.exec.info();
                match ending {
                    Ending::Frame => conn.queue(Kind::ExecEnd, &info)?,
                    Ending::Reply => conn.queue(Kind::Reply, &Reply::Exec(info))?,
                }
                return conn.flush();
            }
        }
        conn.send_now()?;
        take_input(guest, conn, &attachment.exec, Exec::has_input_room)?;
        // As long as the client takes it there may be more at once.
        if (dry || conn.has_outbound()) && wait(conn, &attachment)? == Peer::HungUp {
            take_input(guest, conn, &attachment.exec, Exec::has_last_room)?;
            return Err(ConnError::Gone);
        }
    }
}

/// Takes in what the client has sent by now, while there is `room`.
fn take_input(guest: &Guest, conn: &mut Conn, exec: &Arc<Exec>, room: impl Fn(&Exec) -> bool) -> Result<(), ConnError> {
    while room(exec) {
        let Some((kind, body)) = conn.next_buffered()? else {
            if conn.fill_now()? == Filled::Nothing {
                return Ok(());
            }
            continue;
        };
        match kind {
            Kind::Stdin => exec.take_input(body),
            Kind::StdinClose => exec.close_input(),
            // The exec may have just ended; the client will hear of that.
            Kind::Resize => drop(exec.resize(decode::<ResizeTo>(kind, body)?.size)),
            Kind::Signal => {
                let send: SendSignal = decode(kind, body)?;
                guest.execs.signal(exec, send.signal, send.target).ok();
            }
            other => return Err(ConnError::Misplaced(other)),
        }
    }
    Ok(())
}

/// Whether there is still a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    There,
    /// It sends nothing more; what it sent before may still be unread.
    HungUp,
}

fn wait(conn: &Conn, attachment: &Attachment) -> Result<Peer, ConnError> {
    let has_room = attachment.exec.has_input_room();
    let mut wanted = PollFlags::RDHUP;
    wanted.set(PollFlags::IN, has_room);
    wanted.set(PollFlags::OUT, conn.has_outbound());
    let mut fds = vec![PollFd::new(conn, wanted)];
    // While the client does not take what is there, news of more would only keep this thread busy.
    if !conn.has_outbound() || !has_room {
        fds.push(PollFd::new(attachment.wake(), PollFlags::IN));
    }
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(_) => return Err(ConnError::Gone),
    }
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let hung_up = fds.first().is_some_and(|fd| fd.revents().intersects(gone));
    Ok(if hung_up { Peer::HungUp } else { Peer::There })
}
