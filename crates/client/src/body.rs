//! Bodies: what is sent and what is received, whole or piece by piece.

use std::fmt;
use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use crate::ClientError;
use crate::answer::Answer;

/// The body of every request.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, io::Error>;

/// Large enough that the cost per piece does not matter, small enough to keep memory flat.
const PIECE: usize = 128 * 1024;

pub(crate) fn whole(bytes: Bytes) -> RequestBody {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Bytes to send, read only as fast as the daemon takes them.
pub struct Upload {
    pub(crate) body: RequestBody,
    pub(crate) size: Option<u64>,
}

impl Upload {
    /// Sends bytes that are at hand.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let size = Some(bytes.len() as u64);
        Self { body: whole(bytes), size }
    }

    /// Sends what a reader gives until its end; `size` must be exact if given.
    pub fn reader(reader: impl AsyncRead + Send + 'static, size: Option<u64>) -> Self {
        Self::stream(ReaderStream::with_capacity(reader, PIECE), size)
    }

    /// Sends the pieces of a stream; `size` must be exact if given.
    pub fn stream(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static, size: Option<u64>) -> Self {
        let body = StreamBody::new(stream.map(|piece| piece.map(Frame::data))).boxed_unsync();
        Self { body, size }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("size", &self.size).finish_non_exhaustive()
    }
}

/// Bytes that arrive, read from the connection only as they are asked for.
#[derive(Debug)]
pub struct Download {
    answer: Answer,
}

impl Download {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer }
    }

    /// How many bytes there will be, where the daemon said so.
    pub fn size(&self) -> Option<u64> {
        self.answer.header_number("content-length")
    }

    /// Absolute offset of the first byte, for the output of an exec.
    pub fn offset(&self) -> Option<u64> {
        self.answer.header_number("roost-offset")
    }

    /// Bytes that were asked for and are gone, as `from` and `to`, for the output of an exec.
    pub fn gap(&self) -> Option<(u64, u64)> {
        let (from, to) = self.answer.header("roost-gap")?.split_once('-')?;
        Some((from.parse().ok()?, to.parse().ok()?))
    }

    /// The next piece, or nothing at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.answer.chunk().await
    }

    /// Everything that is left, in memory.
    pub async fn bytes(mut self) -> Result<Bytes, ClientError> {
        let mut all = BytesMut::new();
        while let Some(piece) = self.chunk().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Writes everything that is left to `target`; the inner result is the target's.
    pub async fn copy_to(mut self, target: &mut (impl AsyncWrite + Unpin)) -> Result<io::Result<u64>, ClientError> {
        let mut total = 0;
        while let Some(piece) = self.chunk().await? {
            if let Err(error) = target.write_all(&piece).await {
                return Ok(Err(error));
            }
            total += piece.len() as u64;
        }
        Ok(target.flush().await.map(|()| total))
    }
}
