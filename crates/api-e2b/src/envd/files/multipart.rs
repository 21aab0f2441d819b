//! `multipart/form-data`, taken apart as it arrives.
//!
//! ```text
//! preamble CRLF--boundary CRLF headers CRLF CRLF data CRLF--boundary … CRLF--boundary-- epilogue
//! ```
//! A parser without a source of its own: bytes are pushed in and events taken out until more bytes are needed. It holds
//! what was pushed last and not taken yet, and never more than [`LONGEST_HEADERS`] beyond that.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

use super::disposition::Disposition;

/// Most bytes of the headers of a part.
const LONGEST_HEADERS: usize = 16 * 1024;
/// RFC 2046 allows 70 letters.
const LONGEST_BOUNDARY: usize = 70;
/// Blanks that may follow a boundary.
const MOST_PADDING: usize = 256;

/// Why bytes are not a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("the content type names no boundary, or an impossible one")]
    Boundary,
    #[error("headers of a part are longer than {LONGEST_HEADERS} bytes")]
    HeadersTooLong,
    #[error("headers of a part are not text")]
    NotText,
    #[error("the form ends before its last boundary")]
    CutShort,
}

/// What a form consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// A part begins.
    Part(PartHead),
    /// Bytes of it.
    Data(Bytes),
    /// It ends.
    PartEnd,
    /// The form ends; what follows is not of it.
    End,
}

/// What a part says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PartHead {
    /// The name of the field.
    pub(super) name: Option<String>,
    /// The name of the file.
    pub(super) filename: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    Headers,
    Data,
    Done,
}

/// The parser.
#[derive(Debug)]
pub(super) struct Form {
    /// `CRLF--boundary`.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    state: State,
}

/// What stands at a delimiter.
enum After {
    NextPart(usize),
    LastPart,
    /// It only looks like one.
    Nothing,
    Unknown,
}

impl Form {
    /// A parser for content of this type.
    pub(super) fn new(content_type: &str) -> Result<Self, FormError> {
        let boundary = Disposition::parse(content_type).get("boundary").ok_or(FormError::Boundary)?;
        let possible = (1..=LONGEST_BOUNDARY).contains(&boundary.len())
            && boundary.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        if !possible {
            return Err(FormError::Boundary);
        }
        // The first boundary may stand at the very beginning, as if a line had ended there.
        Ok(Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            buffer: BytesMut::from("\r\n"),
            state: State::Preamble,
        })
    }

    /// Takes more bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Done {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// What comes next; nothing if that needs more bytes.
    pub(super) fn next(&mut self) -> Result<Option<Event>, FormError> {
        match self.state {
            State::Preamble => self.preamble(),
            State::Headers => self.headers(),
            State::Data => self.data(),
            State::Done => Ok(Some(Event::End)),
        }
    }

    fn preamble(&mut self) -> Result<Option<Event>, FormError> {
        loop {
            match self.delimiter_at() {
                Some(0) => match self.after() {
                    After::NextPart(length) => {
                        self.buffer.advance(length);
                        self.state = State::Headers;
                        return self.headers();
                    }
                    After::LastPart => {
                        self.finish();
                        return Ok(Some(Event::End));
                    }
                    After::Nothing => self.buffer.advance(self.delimiter.len()),
                    After::Unknown => return Ok(None),
                },
                Some(at) => self.buffer.advance(at),
                None => {
                    self.buffer.advance(self.safe());
                    return Ok(None);
                }
            }
        }
    }

    fn data(&mut self) -> Result<Option<Event>, FormError> {
        let taken = match self.delimiter_at() {
            Some(0) => match self.after() {
                After::NextPart(length) => {
                    self.buffer.advance(length);
                    self.state = State::Headers;
                    return Ok(Some(Event::PartEnd));
                }
                After::LastPart => {
                    self.finish();
                    return Ok(Some(Event::PartEnd));
                }
                After::Nothing => self.delimiter.len(),
                After::Unknown => return Ok(None),
            },
            Some(at) => at,
            None => self.safe(),
        };
        Ok((taken > 0).then(|| Event::Data(self.buffer.split_to(taken).freeze())))
    }

    fn headers(&mut self) -> Result<Option<Event>, FormError> {
        let (length, whole) = match memmem::find(&self.buffer, b"\r\n\r\n") {
            // A part may have no headers at all: its empty line comes first.
            _ if self.buffer.starts_with(b"\r\n") => (0, 2),
            Some(at) if at <= LONGEST_HEADERS => (at, at + 4),
            None if self.buffer.len() < LONGEST_HEADERS + 4 => return Ok(None),
            _ => return Err(FormError::HeadersTooLong),
        };
        let text = self.buffer.get(..length).unwrap_or_default();
        let head = PartHead::read(std::str::from_utf8(text).map_err(|_| FormError::NotText)?);
        self.buffer.advance(whole);
        self.state = State::Data;
        Ok(Some(Event::Part(head)))
    }

    fn delimiter_at(&self) -> Option<usize> {
        memmem::find(&self.buffer, &self.delimiter)
    }

    /// How much at the front cannot be the start of a delimiter.
    fn safe(&self) -> usize {
        self.buffer.len().saturating_sub(self.delimiter.len() - 1)
    }

    /// What follows the delimiter at the front.
    fn after(&self) -> After {
        let rest = self.buffer.get(self.delimiter.len()..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return After::LastPart;
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match rest.get(padding..).unwrap_or_default() {
            [b'\r', b'\n', ..] if padding <= MOST_PADDING => After::NextPart(self.delimiter.len() + padding + 2),
            [] | [b'\r'] if padding <= MOST_PADDING => After::Unknown,
            [b'-'] if padding == 0 => After::Unknown,
            _ => After::Nothing,
        }
    }

    fn finish(&mut self) {
        self.state = State::Done;
        self.buffer = BytesMut::new();
    }
}

impl PartHead {
    fn read(text: &str) -> Self {
        let mut head = Self::default();
        for line in text.split("\r\n") {
            let Some((name, value)) = line.split_once(':') else { continue };
            if name.trim().eq_ignore_ascii_case("content-disposition") {
                let disposition = Disposition::parse(value);
                head = Self { name: disposition.get("name"), filename: disposition.get("filename") };
            }
        }
        head
    }
}

#[cfg(test)]
mod tests;
