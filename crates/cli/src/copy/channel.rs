//! Between code that reads and writes and code that streams.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes, BytesMut};
use futures_util::Stream;
use indicatif::ProgressBar;
use tokio::sync::mpsc;

/// Pieces under way; with pieces of 128 KiB this is all the memory a copy takes.
pub(crate) const PIECES: usize = 8;
const PIECE: usize = 128 * 1024;

/// What a channel gives, as a stream.
pub(crate) fn stream<T: Send + 'static>(incoming: mpsc::Receiver<T>) -> impl Stream<Item = T> + Send + 'static {
    futures_util::stream::unfold(incoming, async |mut incoming| Some((incoming.recv().await?, incoming)))
}

/// Writes into a channel from a thread.
#[derive(Debug)]
pub(crate) struct ChannelWriter {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
    bar: ProgressBar,
}

impl ChannelWriter {
    pub(crate) fn new(pieces: mpsc::Sender<io::Result<Bytes>>, bar: ProgressBar) -> Self {
        Self { pieces, buffer: BytesMut::with_capacity(PIECE), bar }
    }

    /// Makes the stream fail, so that what was sent does not pass for the whole.
    pub(crate) fn fail(self, error: io::Error) {
        // A receiver that is gone needs no telling.
        self.pieces.blocking_send(Err(error)).unwrap_or_default();
    }

    fn send(&mut self) -> io::Result<()> {
        let piece = self.buffer.split().freeze();
        self.buffer.reserve(PIECE);
        self.bar.inc(piece.len() as u64);
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for ChannelWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() { Ok(()) } else { self.send() }
    }
}

/// Reads from a channel in a thread.
#[derive(Debug)]
pub(crate) struct ChannelReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl ChannelReader {
    pub(crate) fn new(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self { pieces, current: Bytes::new() }
    }
}

impl Read for ChannelReader {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.current = piece?,
            }
        }
        let count = target.len().min(self.current.len());
        self.current.copy_to_slice(&mut target[..count]);
        Ok(count)
    }
}
