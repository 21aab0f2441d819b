//! Frames on a connected socket, blocking or not.

mod transfer;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use roost_wire::frame::{self, FrameError, HEADER_LEN, Header, Kind, OFFSET_LEN};
use roost_wire::{Failure, Reply};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use transfer::{Download, Upload};

/// How much is read at least; more when a frame is bigger.
const READ_AHEAD: usize = 4096;
/// A buffer that grew beyond this is given back when the connection falls idle.
const KEEP_BUFFER: usize = 16 * 1024;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnError {
    /// The peer hung up or the connection broke.
    #[error("peer is gone")]
    Gone,
    /// The peer broke the rules; it is told so before the connection is closed.
    #[error("peer broke the protocol")]
    Protocol(#[from] FrameError),
    /// The peer is not welcome, for this reason.
    #[error("peer is refused")]
    Refused(Failure),
    /// A well-formed frame that has no place here.
    #[error("peer sent a frame of kind {0:?} where it has no place")]
    Misplaced(Kind),
}

impl From<Errno> for ConnError {
    fn from(_: Errno) -> Self {
        ConnError::Gone
    }
}

/// What came of an attempt to read without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    Some,
    Nothing,
}

/// A connection and its buffers.
#[derive(Debug)]
pub(crate) struct Conn {
    socket: OwnedFd,
    inbound: Vec<u8>,
    consumed: usize,
    outbound: Vec<u8>,
    sent: usize,
}

impl AsFd for Conn {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Conn {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, inbound: Vec::new(), consumed: 0, outbound: Vec::new(), sent: 0 }
    }

    /// Waits for the next frame.
    pub(crate) fn next(&mut self) -> Result<(Kind, &[u8]), ConnError> {
        let (kind, body) = loop {
            if let Some(found) = self.buffered()? {
                break found;
            }
            self.fill(RecvFlags::empty())?;
        };
        Ok((kind, self.inbound.get(body).unwrap_or_default()))
    }

    /// The next frame that is here already.
    pub(crate) fn next_buffered(&mut self) -> Result<Option<(Kind, &[u8])>, ConnError> {
        let found = self.buffered()?;
        Ok(found.map(|(kind, body)| (kind, self.inbound.get(body).unwrap_or_default())))
    }

    /// What was read beyond the last frame; from here on the socket carries something else than frames.
    pub(crate) fn take_ahead(&mut self) -> Vec<u8> {
        let ahead = self.inbound.split_off(self.consumed);
        (self.inbound, self.consumed) = (Vec::new(), 0);
        ahead
    }

    /// Reads what is there without waiting.
    pub(crate) fn fill_now(&mut self) -> Result<Filled, ConnError> {
        self.fill(RecvFlags::DONTWAIT)
    }

    fn buffered(&mut self) -> Result<Option<(Kind, Range<usize>)>, ConnError> {
        let waiting = self.inbound.get(self.consumed..).unwrap_or_default();
        let Some(header) = Header::parse(waiting)? else { return Ok(None) };
        if waiting.len() < HEADER_LEN + header.len {
            return Ok(None);
        }
        let start = self.consumed + HEADER_LEN;
        self.consumed = start + header.len;
        Ok(Some((header.kind, start..self.consumed)))
    }

    fn fill(&mut self, flags: RecvFlags) -> Result<Filled, ConnError> {
        self.inbound.drain(..self.consumed);
        self.consumed = 0;
        let missing = match Header::parse(&self.inbound)? {
            Some(header) => (HEADER_LEN + header.len).saturating_sub(self.inbound.len()),
            None => 0,
        };
        self.inbound.reserve(missing.max(READ_AHEAD));
        loop {
            let space = rustix::buffer::spare_capacity(&mut self.inbound);
            match rustix::net::recv(&self.socket, space, flags) {
                Ok((0, _)) => return Err(ConnError::Gone),
                Ok(_) => return Ok(Filled::Some),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if flags.contains(RecvFlags::DONTWAIT) => return Ok(Filled::Nothing),
                Err(_) => return Err(ConnError::Gone),
            }
        }
    }

    /// Reads and drops what comes until the peer hangs up, says nothing for a while, or time is up.
    pub(crate) fn drain_until(&mut self, deadline: Instant) {
        let mut scrap = [0; 4096];
        while Instant::now() < deadline {
            match rustix::net::recv(&self.socket, &mut scrap, RecvFlags::empty()) {
                Ok((1.., _)) | Err(Errno::INTR) => {}
                _ => return,
            }
        }
    }

    /// Gives large buffers back before waiting for the next request, which may be hours away.
    pub(crate) fn rest(&mut self) {
        if self.consumed == self.inbound.len() && self.inbound.capacity() > KEEP_BUFFER {
            self.inbound = Vec::new();
            self.consumed = 0;
        }
        if self.outbound.is_empty() && self.outbound.capacity() > KEEP_BUFFER {
            self.outbound = Vec::new();
        }
    }

    /// Puts a control frame in line.
    pub(crate) fn queue<T: Serialize>(&mut self, kind: Kind, body: &T) -> Result<(), ConnError> {
        Ok(frame::put_json(&mut self.outbound, kind, body)?)
    }

    /// Puts an output frame of at most `limit` bytes in line, whose content `fill` writes; none if it writes nothing.
    pub(crate) fn queue_output<E>(
        &mut self,
        kind: Kind,
        offset: u64,
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Result<usize, E>, ConnError> {
        const PREFIX: usize = HEADER_LEN + OFFSET_LEN;
        let at = self.outbound.len();
        self.outbound.resize(at + PREFIX + limit, 0);
        let filled = fill(self.outbound.get_mut(at + PREFIX..).unwrap_or_default());
        let count = *filled.as_ref().unwrap_or(&0);
        if count == 0 {
            self.outbound.truncate(at);
            return Ok(filled);
        }
        self.outbound.truncate(at + PREFIX + count);
        let header = Header::new(kind, OFFSET_LEN + count)?.to_bytes();
        if let Some(place) = self.outbound.get_mut(at..at + PREFIX) {
            let (front, back) = place.split_at_mut(HEADER_LEN);
            front.copy_from_slice(&header);
            back.copy_from_slice(&offset.to_le_bytes());
        }
        Ok(filled)
    }

    /// Whether frames wait to be sent.
    pub(crate) fn has_outbound(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Sends as much as the socket takes now.
    pub(crate) fn send_now(&mut self) -> Result<(), ConnError> {
        self.transmit(SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Sends everything in line, waiting as needed.
    pub(crate) fn flush(&mut self) -> Result<(), ConnError> {
        self.transmit(SendFlags::NOSIGNAL)
    }

    fn transmit(&mut self, flags: SendFlags) -> Result<(), ConnError> {
        while let Some(rest) = self.outbound.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(&self.socket, rest, flags) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if flags.contains(SendFlags::DONTWAIT) => return Ok(()),
                Err(_) => return Err(ConnError::Gone),
            }
        }
        self.outbound.clear();
        self.sent = 0;
        Ok(())
    }

    pub(crate) fn send<T: Serialize>(&mut self, kind: Kind, body: &T) -> Result<(), ConnError> {
        self.queue(kind, body)?;
        self.flush()
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, result: Result<Reply, Failure>) -> Result<(), ConnError> {
        match result {
            Ok(reply) => self.send(Kind::Reply, &reply),
            Err(failure) => self.send(Kind::Failure, &failure),
        }
    }

    /// Sends a frame whose body was put behind [`HEADER_LEN`] bytes of room at the front of `buffer`.
    pub(crate) fn send_prefixed(&mut self, kind: Kind, buffer: &mut [u8]) -> Result<(), ConnError> {
        let Some((place, body)) = buffer.split_first_chunk_mut::<HEADER_LEN>() else { return Ok(()) };
        *place = Header::new(kind, body.len())?.to_bytes();
        self.flush()?;
        let mut rest: &[u8] = buffer;
        while !rest.is_empty() {
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return Err(ConnError::Gone),
            }
        }
        Ok(())
    }

    /// Reads and drops the rest of an upload, so that the connection can be used again.
    pub(crate) fn discard_upload(&mut self) -> Result<(), ConnError> {
        loop {
            match self.next()?.0 {
                Kind::End => return Ok(()),
                Kind::FileData | Kind::Stdin => {}
                other => return Err(ConnError::Misplaced(other)),
            }
        }
    }

    /// Refuses an upload at once and reads on to its end.
    pub(crate) fn refuse_upload(&mut self, failure: Failure) -> Result<(), ConnError> {
        self.answer(Err(failure))?;
        self.discard_upload()
    }
}

/// Decodes a control body.
pub(crate) fn decode<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, ConnError> {
    Ok(frame::json_body(kind, body)?)
}
