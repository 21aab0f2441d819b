//! Byte streams over the frames of a connection, in either direction.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use roost_wire::frame::{HEADER_LEN, Kind};
use roost_wire::{Failure, Reply, StreamEnd};
use rustix::net::RecvFlags;

use super::{Conn, ConnError, decode};

/// The data of an upload as a byte stream.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    conn: &'a mut Conn,
    /// What is left of the last frame, as a range of the connection's buffer.
    rest: Range<usize>,
    end: Option<StreamEnd>,
    lost: Option<ConnError>,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(conn: &'a mut Conn) -> Self {
        Self { conn, rest: 0..0, end: None, lost: None }
    }

    /// Whether the sender gave up.
    fn aborted(&self) -> bool {
        self.end.is_some_and(|end| end.abort)
    }

    /// Whether the end was not an orderly one.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.lost.is_some() || self.aborted()
    }

    /// The next piece; `None` at the end, whether orderly or not: [`Self::finish`] tells.
    pub(crate) fn piece(&mut self) -> Option<&[u8]> {
        if self.rest.is_empty() {
            self.pull();
        }
        let range = std::mem::replace(&mut self.rest, 0..0);
        self.conn.inbound.get(range).filter(|piece| !piece.is_empty())
    }

    fn pull(&mut self) {
        while self.rest.is_empty() && self.end.is_none() && self.lost.is_none() {
            let found = match self.conn.buffered() {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.lost = self.conn.fill(RecvFlags::empty()).err();
                    continue;
                }
                Err(error) => {
                    self.lost = Some(error);
                    continue;
                }
            };
            match found {
                (Kind::FileData | Kind::Stdin, range) => self.rest = range,
                (Kind::End, range) => {
                    let body = self.conn.inbound.get(range).unwrap_or_default();
                    match decode(Kind::End, body) {
                        Ok(end) => self.end = Some(end),
                        Err(error) => self.lost = Some(error),
                    }
                }
                (other, _) => self.lost = Some(ConnError::Misplaced(other)),
            }
        }
    }

    /// Reads on to the end and answers; a refusal is sent before the rest is read.
    pub(crate) fn finish(mut self, result: Result<Reply, Failure>) -> Result<(), ConnError> {
        let refused = match result {
            Err(failure) => {
                if self.lost.is_none() {
                    self.conn.answer(Err(failure))?;
                }
                None
            }
            Ok(reply) => Some(reply),
        };
        while self.piece().is_some() {}
        match (self.lost, refused) {
            (Some(error), _) => Err(error),
            (None, Some(reply)) => self.conn.answer(Ok(reply)),
            (None, None) => Ok(()),
        }
    }
}

impl AsFd for Upload<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.conn.as_fd()
    }
}

impl io::Read for Upload<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.pull();
        }
        if self.is_cut_short() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let take = self.rest.len().min(buffer.len());
        let range = self.rest.start..self.rest.start + take;
        self.rest.start = range.end;
        let (Some(target), Some(source)) = (buffer.get_mut(..take), self.conn.inbound.get(range)) else { return Ok(0) };
        target.copy_from_slice(source);
        Ok(take)
    }
}

/// A byte stream that goes out as `FileData` frames.
#[derive(Debug)]
pub(crate) struct Download<'a> {
    conn: &'a mut Conn,
    buffer: Vec<u8>,
    count: u64,
}

impl<'a> Download<'a> {
    const FRAME: usize = 64 * 1024;

    pub(crate) fn new(conn: &'a mut Conn) -> Self {
        Self { conn, buffer: vec![0; HEADER_LEN], count: 0 }
    }

    fn push(&mut self) -> Result<(), ConnError> {
        if self.buffer.len() > HEADER_LEN {
            self.conn.send_prefixed(Kind::FileData, &mut self.buffer)?;
            self.buffer.truncate(HEADER_LEN);
        }
        Ok(())
    }

    /// Sends the last of it and how it ended.
    pub(crate) fn finish(mut self, result: Result<(), Failure>) -> Result<(), ConnError> {
        self.push()?;
        match result {
            Ok(()) => self.conn.send(Kind::End, &StreamEnd { count: self.count, abort: false }),
            Err(failure) => self.conn.answer(Err(failure)),
        }
    }
}

impl io::Write for Download<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let room = Self::FRAME.saturating_sub(self.buffer.len() - HEADER_LEN).max(1);
        let piece = data.get(..data.len().min(room)).unwrap_or_default();
        self.buffer.extend_from_slice(piece);
        self.count += piece.len() as u64;
        if self.buffer.len() - HEADER_LEN >= Self::FRAME {
            self.push().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
