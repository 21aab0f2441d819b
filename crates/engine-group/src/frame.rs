//! Frames on the socket between a daemon and the program that brings a sandbox into being.
//!
//! A frame is a kind byte, a length (u32, little endian) and JSON; some kinds are the byte alone.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest JSON in one frame; a seccomp program is most of it.
const MAX_FRAME: usize = 1 << 20;

/// One frame: its kind byte tells what the JSON is.
#[derive(Debug)]
pub struct Frame;

impl Frame {
    /// Marks a frame with JSON.
    pub const JSON: u8 = b'J';
    /// Sent by the guest once it listens; no length and no body follow.
    pub const READY: u8 = b'R';
    /// Sent by the daemon: the network is there; no length and no body follow.
    pub const PLUGGED: u8 = b'N';
    /// Bytes before the JSON.
    pub const HEADER: usize = 5;

    /// Encodes `value` with its header.
    pub fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
        let mut frame = vec![Self::JSON, 0, 0, 0, 0];
        serde_json::to_writer(&mut frame, value)?;
        let length = u32::try_from(frame.len() - Self::HEADER).map_err(io::Error::other)?;
        frame[1..Self::HEADER].copy_from_slice(&length.to_le_bytes());
        Ok(frame)
    }

    /// The length of the JSON that follows a header.
    pub fn body_length(header: [u8; Self::HEADER]) -> io::Result<usize> {
        let [kind, length @ ..] = header;
        let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
        if kind != Self::JSON || length > MAX_FRAME {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(length)
    }

    /// Reads one frame and not a byte more: what follows is for the guest.
    pub fn read<T: DeserializeOwned>(socket: impl AsFd) -> io::Result<T> {
        let mut header = [0; Self::HEADER];
        read_exact(&socket, &mut header)?;
        let mut body = vec![0; Self::body_length(header)?];
        read_exact(&socket, &mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}

/// Fills the buffer, or fails.
pub fn read_exact(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(&socket, &mut buffer[filled..]) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Sends all bytes at once, with up to three descriptors along.
pub fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::WriteZero)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_what_follows_in_the_socket() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut bytes = Frame::encode(&vec!["/a"]).unwrap();
        bytes.extend_from_slice(b"rest");
        rustix::io::write(&ours, &bytes).unwrap();
        let read: Vec<String> = Frame::read(&theirs).unwrap();
        assert_eq!(read, ["/a"]);
        let mut rest = [0; 4];
        read_exact(&theirs, &mut rest).unwrap();
        assert_eq!(&rest, b"rest");
    }

    #[test]
    fn a_frame_that_is_none_is_refused() {
        assert!(Frame::body_length(*b"X\0\0\0\0").is_err());
        assert!(Frame::body_length([b'J', 0xff, 0xff, 0xff, 0xff]).is_err());
    }
}
