//! Frames on an async stream. Reading and flushing are safe to cancel between any two bytes.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::frame::{FrameError, HEADER_LEN, Header, Kind};

use super::CallError;

/// Grown to when a frame is bigger; small, because most replies are.
const FIRST_READ: usize = 4096;

#[derive(Debug)]
pub(super) struct FrameReader<R> {
    inner: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, buffer: BytesMut::new() }
    }

    /// The next frame; the end of the stream in between is [`CallError::Closed`].
    pub(super) async fn next(&mut self) -> Result<(Kind, Bytes), CallError> {
        loop {
            let wanted = match Header::parse(&self.buffer)? {
                Some(header) if self.buffer.len() >= HEADER_LEN + header.len => {
                    self.buffer.advance(HEADER_LEN);
                    return Ok((header.kind, self.buffer.split_to(header.len).freeze()));
                }
                Some(header) => HEADER_LEN + header.len - self.buffer.len(),
                None => FIRST_READ,
            };
            self.buffer.reserve(wanted.max(FIRST_READ));
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return Err(CallError::Closed);
            }
        }
    }

    pub(super) fn into_inner(self) -> R {
        self.inner
    }

    /// The stream, and what was read of it beyond the last frame.
    pub(super) fn into_parts(self) -> (R, Bytes) {
        (self.inner, self.buffer.freeze())
    }

    pub(super) fn is_drained(&self) -> bool {
        self.buffer.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct FrameWriter<W> {
    inner: W,
    queue: BytesMut,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, queue: BytesMut::new() }
    }

    /// Puts whole frames in line; [`Self::flush`] sends them.
    pub(super) fn queue(&mut self, frames: &[u8]) {
        self.queue.extend_from_slice(frames);
    }

    pub(super) fn queue_data(&mut self, kind: Kind, data: &[u8]) -> Result<(), FrameError> {
        let header = Header::new(kind, data.len())?;
        self.queue.extend_from_slice(&header.to_bytes());
        self.queue.extend_from_slice(data);
        Ok(())
    }

    /// Sends what is in line. If cancelled, the rest stays in line and no frame is torn.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        while !self.queue.is_empty() {
            if self.inner.write_buf(&mut self.queue).await? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        self.inner.flush().await
    }

    /// Sends a data frame without copying it. Not safe to cancel.
    pub(super) async fn send_data(&mut self, kind: Kind, data: Bytes) -> Result<(), CallError> {
        let header = Header::new(kind, data.len())?;
        self.flush().await?;
        self.inner.write_all_buf(&mut Buf::chain(&header.to_bytes()[..], data)).await?;
        Ok(())
    }

    pub(super) fn into_inner(self) -> W {
        self.inner
    }

    /// Sends everything in line and says that nothing more will come.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.inner.shutdown().await
    }
}
