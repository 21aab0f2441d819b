//! Frames on an async stream. Reading and flushing are safe to cancel between any two bytes.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::frame::{FrameError, HEADER_LEN, Header, Kind};

use super::CallError;

/// The first size of a buffer; small, because most replies are.
const FIRST_READ: usize = 4096;
/// A frame that has begun must be whole within this time, and a frame to the guest must be taken within it. The limit leaves room for a sandbox that is frozen in the middle
/// of a frame while its memory is saved.
pub(super) const FRAME_TIME: Duration = Duration::from_secs(120);

/// A control frame of this size takes a while to decode.
const LARGE: usize = 64 * 1024;
/// One large frame is decoded at a time, so that many lying guests neither keep all threads busy nor fill the memory.
static TURNS: Semaphore = Semaphore::const_new(1);

/// The right to decode a large frame.
pub(super) type Turn = SemaphorePermit<'static>;

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
    ///
    /// A large control frame comes with a turn, which its reader holds while it decodes the body.
    pub(super) async fn next(&mut self) -> Result<((Kind, Bytes), Option<Turn>), CallError> {
        let mut due = None;
        loop {
            let wanted = match Header::parse(&self.buffer)? {
                Some(header) if self.buffer.len() >= HEADER_LEN + header.len => {
                    let is_large = header.len > LARGE && !header.kind.is_data();
                    // The frame stays in the buffer meanwhile, so that a cancelled call loses nothing.
                    let turn = if is_large { TURNS.acquire().await.ok() } else { None };
                    return Ok((self.take(header), turn));
                }
                Some(header) => HEADER_LEN + header.len - self.buffer.len(),
                None => FIRST_READ,
            };
            // The buffer doubles at most: a header announces a length, and only bytes that arrive cost memory.
            self.buffer.reserve(wanted.min(self.buffer.len()).max(FIRST_READ));
            let is_begun = !self.buffer.is_empty();
            let read = self.inner.read_buf(&mut self.buffer);
            let count = if is_begun {
                let due = *due.get_or_insert_with(|| Instant::now() + FRAME_TIME);
                timeout_at(due, read).await.map_err(|_| CallError::Slow(FRAME_TIME))??
            } else {
                read.await?
            };
            if count == 0 {
                return Err(CallError::Closed);
            }
        }
    }

    /// Takes a whole frame off the front of the buffer.
    fn take(&mut self, header: Header) -> (Kind, Bytes) {
        self.buffer.advance(HEADER_LEN);
        let body = self.buffer.split_to(header.len).freeze();
        // A connection that is kept for the next call must not keep the room of a large reply.
        if self.buffer.is_empty() && body.len() > FIRST_READ && !header.kind.is_data() {
            self.buffer = BytesMut::new();
        }
        (header.kind, body)
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

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn announced_length_costs_no_memory_before_its_bytes_arrive() {
        let (near, mut far) = duplex(64);
        let mut reader = FrameReader::new(near);
        far.write_all(&Header::new(Kind::Reply, 1 << 20).unwrap().to_bytes()).await.unwrap();
        far.write_all(b"x").await.unwrap();
        drop(far);
        assert!(matches!(reader.next().await, Err(CallError::Closed)));
        assert!(reader.buffer.capacity() <= 4 * FIRST_READ, "{}", reader.buffer.capacity());
    }

    #[tokio::test(start_paused = true)]
    async fn frame_that_comes_byte_by_byte_ends_the_read() {
        let (near, mut far) = duplex(64);
        let mut reader = FrameReader::new(near);
        let drip = async {
            far.write_all(&Header::new(Kind::Reply, 1 << 20).unwrap().to_bytes()).await.unwrap();
            loop {
                far.write_all(b"x").await.unwrap();
                tokio::time::sleep(FRAME_TIME / 20).await;
            }
        };
        tokio::select! {
            read = reader.next() => assert!(matches!(read, Err(CallError::Slow(_))), "{read:?}"),
            () = drip => {}
        }
    }

    #[tokio::test]
    async fn drained_buffer_gives_the_room_of_a_large_reply_back() {
        let (near, mut far) = duplex(1 << 20);
        let mut reader = FrameReader::new(near);
        let body = vec![b'x'; 300_000];
        far.write_all(&Header::new(Kind::Reply, body.len()).unwrap().to_bytes()).await.unwrap();
        far.write_all(&body).await.unwrap();
        let ((_, read), turn) = reader.next().await.unwrap();
        assert!(turn.is_some());
        assert_eq!((read.len(), reader.buffer.capacity()), (body.len(), 0));
    }
}
