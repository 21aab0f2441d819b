//! Finds requests that say twice where their body ends.
//!
//! hyper obeys `Transfer-Encoding` and removes a `Content-Length` beside it, so the conflict is no longer visible in the parsed
//! request. A proxy in front of the daemon may have obeyed the other one. The bytes of a connection are therefore followed
//! beside hyper, just far enough to know where each head begins:
//!
//! ```text
//!   start --line--> head --empty line--> body of a length ------------------------> start
//!                     |                                                               ^
//!                     +--empty line--> size --line--> data of a chunk --> size --0--> trailers
//! ```
//!
//! Bytes that hyper would refuse end the following; should hyper go on nevertheless, the next request counts as ambiguous.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a line that are kept: the longest name that matters, and the digits of any length.
const KEPT: usize = 48;

/// What is known about the requests of one connection.
#[derive(Debug)]
pub(super) struct Framing {
    /// The number of the first ambiguous request, counted from 0.
    ambiguous: AtomicU64,
    stopped: AtomicBool,
}

impl Default for Framing {
    fn default() -> Self {
        Self { ambiguous: AtomicU64::new(u64::MAX), stopped: AtomicBool::new(false) }
    }
}

impl Framing {
    /// Whether a request, or one before it on the same connection, has two ends.
    pub(super) fn is_ambiguous(&self, number: u64) -> bool {
        self.ambiguous.load(Ordering::Acquire) <= number
    }

    /// The connection has changed protocols: what follows is no HTTP.
    pub(super) fn stop_watching(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a request line; empty lines are skipped there.
    Start,
    Head,
    /// Inside of a body or a chunk, of which so many bytes are left.
    Data {
        left: u64,
        chunked: bool,
    },
    ChunkSize,
    Trailers,
    /// Nothing is followed any more.
    Over,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(super) struct Heads {
    framing: Arc<Framing>,
    place: Place,
    number: u64,
    line: Line,
    length: Option<u64>,
    chunked: bool,
    both: bool,
}

/// The beginning of a line, without spaces and tabs.
#[derive(Debug)]
struct Line {
    kept: [u8; KEPT],
    length: usize,
    cut: bool,
}

impl Line {
    const EMPTY: Self = Self { kept: [0; KEPT], length: 0, cut: false };

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().filter(|byte| !matches!(byte, b' ' | b'\t')) {
            let Some(free) = self.kept.get_mut(self.length) else {
                self.cut = true;
                return;
            };
            *free = *byte;
            self.length += 1;
        }
    }

    fn text(&self) -> &[u8] {
        let kept = &self.kept[..self.length];
        kept.strip_suffix(b"\r").unwrap_or(kept)
    }

    fn number(digits: &[u8], radix: u32) -> Option<u64> {
        let text = std::str::from_utf8(digits).ok()?;
        text.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(text, radix).ok())?
    }
}

impl Heads {
    pub(super) fn new(framing: Arc<Framing>) -> Self {
        Self { framing, place: Place::Start, number: 0, line: Line::EMPTY, length: None, chunked: false, both: false }
    }

    /// Takes note of bytes that the client sent.
    fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.place {
                Place::Over => return,
                Place::Data { left, chunked } => {
                    let here = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes = &bytes[here..];
                    let left = left - here as u64;
                    let next = if chunked { Place::ChunkSize } else { Place::Start };
                    self.place = if left == 0 { next } else { Place::Data { left, chunked } };
                }
                Place::Start | Place::Head | Place::ChunkSize | Place::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    self.line.add(&bytes[..end.unwrap_or(bytes.len())]);
                    bytes = end.map_or(&[], |end| &bytes[end + 1..]);
                    if end.is_some() {
                        self.end_line();
                        self.line = Line::EMPTY;
                    }
                }
            }
        }
    }

    fn end_line(&mut self) {
        let empty = self.line.text().is_empty();
        match self.place {
            Place::Start if !empty => {
                (self.length, self.chunked, self.both) = (None, false, false);
                self.place = Place::Head;
            }
            Place::Head if empty => self.end_head(),
            Place::Head => self.note_header(),
            Place::ChunkSize => {
                let text = self.line.text();
                let size = text.split(|byte| *byte == b';').next().unwrap_or_default();
                let whole = !self.line.cut || size.len() < text.len();
                self.place = match Line::number(size, 16).filter(|_| whole) {
                    Some(0) => Place::Trailers,
                    // Its line end is part of a chunk.
                    Some(size) => Place::Data { left: size.saturating_add(2), chunked: true },
                    None => self.lost(),
                };
            }
            Place::Trailers if empty => self.place = Place::Start,
            Place::Start | Place::Trailers | Place::Data { .. } | Place::Over => {}
        }
    }

    fn note_header(&mut self) {
        let line = self.line.text();
        let Some(end) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..end], &line[end + 1..]);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked = true;
            self.both |= self.length.is_some();
        } else if name.eq_ignore_ascii_case(b"content-length") {
            // A length that is no number, or has more digits than are kept, is refused by hyper or of no use to anyone.
            let length = if self.line.cut { None } else { Line::number(value, 10) };
            self.both |= self.chunked || length.is_none();
            self.length = length.or(Some(0));
        }
    }

    fn end_head(&mut self) {
        if self.both {
            self.place = self.lost();
            return;
        }
        self.number += 1;
        self.place = match (self.chunked, self.length.take()) {
            (true, _) => Place::ChunkSize,
            (false, Some(left)) if left > 0 => Place::Data { left, chunked: false },
            (false, _) => Place::Start,
        };
    }

    /// From here on every request is ambiguous: the one whose head this is, or the next.
    fn lost(&self) -> Place {
        self.framing.ambiguous.store(self.number, Ordering::Release);
        Place::Over
    }
}

/// A connection whose requests are followed while they are read.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    heads: Heads,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, heads: Heads) -> Self {
        Self { stream, heads }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.heads.framing.stopped.load(Ordering::Relaxed) {
            self.heads.place = Place::Over;
        }
        self.heads.read(buffer.filled().get(before..).unwrap_or_default());
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the first ambiguous request, whatever the pieces in which the bytes arrive.
    fn ambiguous(bytes: &[u8]) -> Option<u64> {
        let found = |piece: usize| {
            let framing = Arc::new(Framing::default());
            let mut heads = Heads::new(framing.clone());
            bytes.chunks(piece).for_each(|piece| heads.read(piece));
            let number = framing.ambiguous.load(Ordering::Acquire);
            (number != u64::MAX).then_some(number)
        };
        let whole = found(bytes.len().max(1));
        assert!([1, 2, 7].into_iter().all(|piece| found(piece) == whole));
        whole
    }

    const GOOD: [&str; 6] = [
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        "\r\nPOST / HTTP/1.1\r\nContent-Length: \t 5\r\ncontent-length: 5\r\n\r\na\n\n:b",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nx-content-length: 1\r\n\r\n\
         3;ext=\"content-length: 1\"\r\nab\n\r\n0A \r\n\n\n\n\n\n\n\n\n\n\n\r\n0\r\nContent-Length: 3\r\n\r\n",
        "PUT / HTTP/1.1\nhost: x\ncontent-length: 0\n\n",
        "GET / HTTP/1.1\r\nx: transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\nx",
        "GET /content-length:1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ];

    #[test]
    fn request_with_one_end_is_not_ambiguous() {
        for first in GOOD {
            for second in GOOD {
                assert_eq!(ambiguous(format!("{first}{second}{first}").as_bytes()), None, "{first}{second}");
            }
        }
    }

    #[test]
    fn request_with_two_ends_is_found_by_its_number() {
        let chunks = "\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for head in [
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nhost: x\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nCONTENT-LENGTH: 3",
            "POST / HTTP/1.1\ntransfer-encoding: chunked\ncontent-length: nothing",
            "POST / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: identity",
            "POST / HTTP/1.1\r\ncontent-length: 00000000000000000000000000000000000000000000000000000000003",
        ] {
            assert_eq!(ambiguous(format!("{head}{chunks}").as_bytes()), Some(0), "{head}");
            for before in GOOD {
                assert_eq!(ambiguous(format!("{before}{before}{head}{chunks}").as_bytes()), Some(2), "{before}{head}");
            }
        }
    }

    #[test]
    fn request_after_a_chunk_of_no_size_is_ambiguous() {
        let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        for size in ["-1", "x", "", &"0".repeat(100), "10000000000000000"] {
            assert_eq!(ambiguous(format!("{head}{size}\r\n").as_bytes()), Some(1), "{size}");
        }
    }

    #[test]
    fn fuzz_no_bytes_are_too_much_to_follow() {
        roost_fuzz::attack(&GOOD, |bytes| {
            ambiguous(bytes);
        });
    }
}
