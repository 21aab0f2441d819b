//! Connections to ports inside that are open to the sandbox itself alone, such as a development server on `localhost`.
//!
//! One thread carries both directions with `poll`, and keeps a buffer only for what the other side does not take yet, so an
//! idle connection costs a thread and two descriptors.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use roost_wire::{ErrorCode, Failure};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// The loopback answers at once, unless a server's queue is full.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const PIECE: usize = 16 * 1024;
/// Pieces of one direction before the other has its turn.
const TURN: usize = 16;

/// Connects to a port of the loopback, IPv4 first.
pub(crate) fn connect(port: u16) -> Result<OwnedFd, Failure> {
    let closed = |error: std::io::Error| {
        Failure::new(ErrorCode::PortClosed, format!("failed to connect to port {port} inside: {error}"))
    };
    let at = |address: SocketAddr| TcpStream::connect_timeout(&address, CONNECT_TIME);
    let stream = at((Ipv4Addr::LOCALHOST, port).into()).or_else(|first| {
        // What IPv4 said is what a person expects to read; not every sandbox has the other.
        at((Ipv6Addr::LOCALHOST, port).into()).map_err(|_| first)
    });
    let stream = stream.map_err(closed)?;
    stream.set_nodelay(true).ok();
    Ok(stream.into())
}

/// Carries bytes both ways until both directions have ended or the connection to the host breaks.
///
/// `ahead` came from the host before.
pub(crate) fn relay(host: BorrowedFd<'_>, inside: &impl AsFd, ahead: Vec<u8>) {
    let inside = inside.as_fd();
    let mut inward = Way { from: host, to: inside, waiting: ahead, sent: 0, ended: false, closed: false };
    let mut outward = Way { from: inside, to: host, waiting: Vec::new(), sent: 0, ended: false, closed: false };
    let mut scrap = [0; PIECE];
    while inward.carry(&mut scrap).is_ok() && outward.carry(&mut scrap).is_ok() {
        if inward.closed && outward.closed {
            return;
        }
        let host_events = inward.wants_input() | outward.wants_room();
        let inside_events = outward.wants_input() | inward.wants_room();
        // An end that is not waited for is left out: its hang-up would be told again and again.
        let mut fds = Vec::with_capacity(2);
        let watches_host = !host_events.is_empty() || !inward.is_full();
        if watches_host {
            fds.push(PollFd::from_borrowed_fd(host, host_events));
        }
        if !inside_events.is_empty() {
            fds.push(PollFd::from_borrowed_fd(inside, inside_events));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let host_said = if watches_host { fds.first().map(PollFd::revents) } else { None };
        let hung_up = host_said.is_some_and(|said| said.contains(PollFlags::HUP));
        // Both directions of the host's side are over: whoever is inside talks to nobody.
        if hung_up && inward.ended && !inward.is_full() {
            return;
        }
    }
}

/// One direction.
struct Way<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    /// What `to` has not taken yet.
    waiting: Vec<u8>,
    sent: usize,
    /// Nothing more comes.
    ended: bool,
    /// And that has been passed on.
    closed: bool,
}

impl Way<'_> {
    fn is_full(&self) -> bool {
        self.sent < self.waiting.len()
    }

    fn wants_input(&self) -> PollFlags {
        if self.ended || self.is_full() { PollFlags::empty() } else { PollFlags::IN }
    }

    fn wants_room(&self) -> PollFlags {
        if self.is_full() { PollFlags::OUT } else { PollFlags::empty() }
    }

    fn pass_end(&mut self) {
        if !self.closed {
            self.closed = true;
            // Whoever has left altogether needs no telling.
            shutdown(self.to, Shutdown::Write).ok();
        }
    }

    /// Moves what can be moved now, within reason.
    fn carry(&mut self, scrap: &mut [u8]) -> Result<(), Errno> {
        for _ in 0..TURN {
            if let Some(rest) = self.waiting.get(self.sent..).filter(|rest| !rest.is_empty()) {
                self.sent += match send(self.to, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => count,
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(Errno::INTR) => 0,
                    Err(error) => return Err(error),
                };
                continue;
            }
            if !self.waiting.is_empty() {
                (self.waiting, self.sent) = (Vec::new(), 0);
            }
            if self.ended {
                self.pass_end();
                return Ok(());
            }
            match recv(self.from, &mut *scrap, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.ended = true;
                    self.pass_end();
                    return Ok(());
                }
                Ok((count, _)) => {
                    let piece = scrap.get(..count).unwrap_or_default();
                    let taken = match send(self.to, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                        Ok(taken) => taken,
                        Err(Errno::AGAIN | Errno::INTR) => 0,
                        Err(error) => return Err(error),
                    };
                    self.waiting.extend_from_slice(piece.get(taken..).unwrap_or_default());
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
