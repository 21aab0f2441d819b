//! The daemon's end of the socket to a program that brings a sandbox into being.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::Frame;

/// What comes from the other end.
#[derive(Debug)]
pub enum Heard<R> {
    /// From the program, in its own words.
    Report(R),
    /// From the guest: it listens.
    Ready,
}

/// The daemon's end.
#[derive(Debug)]
pub struct Wire {
    socket: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Wire {
    /// A new one, with the end that the program gets.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let wire = Self { socket: UnixStream::from_std(ours)?, received: Vec::new(), descriptors: Vec::new() };
        Ok((wire, theirs.into()))
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Says that nothing more will be sent.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.socket.shutdown().await
    }

    /// The descriptors that have come along so far.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// The next message; `None` when nobody is left who could send one.
    pub async fn next<R: DeserializeOwned>(&mut self) -> io::Result<Option<Heard<R>>> {
        loop {
            if let Some(message) = self.parse()? {
                return Ok(Some(message));
            }
            if !self.receive().await? {
                return Ok(None);
            }
        }
    }

    fn parse<R: DeserializeOwned>(&mut self) -> io::Result<Option<Heard<R>>> {
        if self.received.first() == Some(&Frame::READY) {
            self.received.remove(0);
            return Ok(Some(Heard::Ready));
        }
        let Some(header) = self.received.first_chunk() else {
            return Ok(None);
        };
        let end = Frame::HEADER + Frame::body_length(*header)?;
        let Some(body) = self.received.get(Frame::HEADER..end) else {
            return Ok(None);
        };
        let report = serde_json::from_slice(body)?;
        self.received.drain(..end);
        Ok(Some(Heard::Report(report)))
    }

    async fn receive(&mut self) -> io::Result<bool> {
        let Self { socket, received, descriptors } = self;
        let mut buffer = [0; 4096];
        let count = socket
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
                let message = recvmsg(&*socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags)?;
                for part in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(fds) = part {
                        descriptors.extend(fds);
                    }
                }
                Ok(message.bytes)
            })
            .await;
        match count {
            Ok(count) => {
                received.extend_from_slice(&buffer[..count]);
                Ok(count > 0)
            }
            // Whoever had the other end went away with bytes of ours unread.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(e) => Err(e),
        }
    }
}
