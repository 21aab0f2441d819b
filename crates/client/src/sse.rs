//! Streams of text lines: Server-Sent Events and lines of JSON.

use bytes::BytesMut;

use crate::ClientError;
use crate::answer::Answer;

/// Reads an answer's body line by line.
#[derive(Debug)]
pub(crate) struct Lines {
    answer: Answer,
    buffer: BytesMut,
    searched: usize,
}

impl Lines {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { answer, buffer: BytesMut::new(), searched: 0 }
    }

    pub(crate) fn status(&self) -> u16 {
        self.answer.status()
    }

    pub(crate) fn attempt(&self) -> &str {
        self.answer.attempt()
    }

    /// The next line without its end; nothing at the end of the body. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Option<BytesMut>, ClientError> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n') {
                let mut line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                line.truncate(line.len() - 1);
                if line.ends_with(b"\r") {
                    line.truncate(line.len() - 1);
                }
                return Ok(Some(line));
            }
            self.searched = self.buffer.len();
            match self.answer.chunk().await? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None if self.buffer.is_empty() => return Ok(None),
                None => {
                    self.searched = 0;
                    return Ok(Some(std::mem::take(&mut self.buffer)));
                }
            }
        }
    }
}

/// Reads the `data` of Server-Sent Events.
#[derive(Debug)]
pub(crate) struct SseReader {
    pub(crate) lines: Lines,
    data: Vec<u8>,
}

impl SseReader {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { lines: Lines::new(answer), data: Vec::new() }
    }

    /// The data of the next event; nothing when the daemon ended the stream. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        while let Some(line) = self.lines.next().await? {
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Ok(Some(std::mem::take(&mut self.data)));
                }
            } else if let Some(value) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            }
        }
        // An event without its empty line was cut off and does not count.
        Ok(None)
    }
}
