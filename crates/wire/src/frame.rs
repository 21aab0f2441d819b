//! Frames: an eight-byte header and a body.
//!
//! ```text
//! 0      2         3      4            8
//! | "Rw" | version | kind | length LE | body ...
//! ```
//! Output frames ([`Kind::Stdout`], [`Kind::Stderr`]) start their body with the absolute offset of the first byte, as
//! eight bytes LE. Other data frames are raw bytes, all the rest is JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length of a header.
pub const HEADER_LEN: usize = 8;
/// Largest body of a control frame.
pub const MAX_CONTROL: usize = 1024 * 1024;
/// Largest body of a data frame.
pub const MAX_DATA: usize = 256 * 1024;
/// Largest body of a call from inside; the socket there takes lines of half as much.
pub const MAX_CALL: usize = 128 * 1024;
/// Length of the offset that an output frame starts with.
pub const OFFSET_LEN: usize = 8;
/// Version of the frame layout itself.
pub const FRAME_VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"Rw";

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// What a frame carries.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $value,)*
        }

        impl Kind {
            /// Every kind there is.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($value => Some(Kind::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Host to guest, first of a connection: [`crate::Hello`].
    Hello = 0x01,
    /// Host to guest: [`crate::Request`].
    Request = 0x02,
    /// Guest to host: [`crate::Reply`].
    Reply = 0x03,
    /// Guest to host: [`crate::Failure`].
    Failure = 0x04,
    /// Engine to guest, on its start-up pipe: [`crate::GuestConfig`].
    Config = 0x05,
    /// Host to guest: raw bytes for standard input.
    Stdin = 0x10,
    /// Host to guest, empty: standard input ends here.
    StdinClose = 0x11,
    /// Host to guest: [`crate::ResizeTo`].
    Resize = 0x12,
    /// Host to guest: [`crate::SendSignal`].
    Signal = 0x13,
    /// Guest to host: offset and bytes of standard output, or of a terminal.
    Stdout = 0x20,
    /// Guest to host: offset and bytes of standard error.
    Stderr = 0x21,
    /// Guest to host: [`crate::Gap`].
    Gap = 0x22,
    /// Guest to host, last of an attachment: [`crate::ExecInfo`].
    ExecEnd = 0x23,
    /// Either way: raw bytes of a file or an archive.
    FileData = 0x30,
    /// Either way, last of a data stream: [`crate::StreamEnd`].
    End = 0x31,
    /// Guest to host: [`crate::Entries`].
    Entries = 0x32,
    /// Guest to host: [`crate::WatchEvent`].
    WatchEvent = 0x33,
    /// Guest to host: [`crate::Arrival`].
    Arrival = 0x34,
    /// Guest to host: [`crate::CallFrame`].
    Call = 0x40,
    /// Host to guest: [`crate::AnswerFrame`].
    Answer = 0x41,
}

impl Kind {
    /// Whether the body is raw bytes and not JSON.
    pub fn is_data(self) -> bool {
        matches!(self, Kind::Stdin | Kind::Stdout | Kind::Stderr | Kind::FileData)
    }

    /// The largest body a frame of this kind may have.
    pub fn max_body(self) -> usize {
        match self {
            Kind::Stdout | Kind::Stderr => MAX_DATA + OFFSET_LEN,
            kind if kind.is_data() => MAX_DATA,
            Kind::Call => MAX_CALL,
            _ => MAX_CONTROL,
        }
    }
}

/// Why bytes are not a frame, or not the frame that was expected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The peer does not speak this protocol at all.
    #[error("stream does not start with a frame header")]
    Magic,
    /// The peer lays frames out in another way.
    #[error("frame layout version {0} is not known")]
    Version(u8),
    /// The kind is not one of [`Kind`].
    #[error("frame kind {0:#04x} is not known")]
    UnknownKind(u8),
    /// The body is longer than its kind allows.
    #[error("frame of kind {kind:?} has a body of {len} bytes, more than {}", kind.max_body())]
    TooLarge {
        /// Kind of the frame.
        kind: Kind,
        /// Length its header claims.
        len: usize,
    },
    /// The body is not the JSON that its kind calls for.
    #[error("failed to decode the body of a frame of kind {kind:?}")]
    Body {
        /// Kind of the frame.
        kind: Kind,
        /// What the decoder met.
        source: serde_json::Error,
    },
    /// An output frame is too short to carry its offset.
    #[error("output frame carries no offset")]
    NoOffset,
}

/// A checked frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// How many bytes of body follow.
    pub len: usize,
}

impl Header {
    /// Reads a header from the front of `bytes`; `None` if there are too few of them yet.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(raw) = bytes.first_chunk::<HEADER_LEN>() else {
            // A stranger is turned away at its first wrong byte rather than after eight.
            let known = bytes.len().min(MAGIC.len());
            return if bytes.iter().zip(MAGIC).take(known).all(|(a, b)| *a == b) {
                Ok(None)
            } else {
                Err(FrameError::Magic)
            };
        };
        let [m0, m1, version, kind, l0, l1, l2, l3] = *raw;
        if [m0, m1] != MAGIC {
            return Err(FrameError::Magic);
        }
        if version != FRAME_VERSION {
            return Err(FrameError::Version(version));
        }
        let kind = Kind::from_byte(kind).ok_or(FrameError::UnknownKind(kind))?;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > kind.max_body() {
            return Err(FrameError::TooLarge { kind, len });
        }
        Ok(Some(Self { kind, len }))
    }

    /// Makes the header of a frame, refusing a body that no reader would accept.
    pub fn new(kind: Kind, len: usize) -> Result<Self, FrameError> {
        if len > kind.max_body() {
            return Err(FrameError::TooLarge { kind, len });
        }
        Ok(Self { kind, len })
    }

    /// The bytes of the header.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [m0, m1] = MAGIC;
        // `new` and `parse` bound the length by `MAX_CONTROL`, far below `u32::MAX`.
        let [l0, l1, l2, l3] = (self.len as u32).to_le_bytes();
        [m0, m1, FRAME_VERSION, self.kind as u8, l0, l1, l2, l3]
    }
}

/// Appends a control frame with `body` as JSON to `out`; on failure `out` is as it was.
pub fn put_json<T: Serialize>(out: &mut Vec<u8>, kind: Kind, body: &T) -> Result<(), FrameError> {
    let at = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    let result = serde_json::to_writer(&mut *out, body)
        .map_err(|source| FrameError::Body { kind, source })
        .and_then(|()| Header::new(kind, out.len() - at - HEADER_LEN));
    match result {
        Ok(header) => {
            if let Some(place) = out.get_mut(at..at + HEADER_LEN) {
                place.copy_from_slice(&header.to_bytes());
            }
            Ok(())
        }
        Err(error) => {
            out.truncate(at);
            Err(error)
        }
    }
}

/// Appends a frame with a raw body to `out`.
pub fn put_data(out: &mut Vec<u8>, kind: Kind, body: &[u8]) -> Result<(), FrameError> {
    out.extend_from_slice(&Header::new(kind, body.len())?.to_bytes());
    out.extend_from_slice(body);
    Ok(())
}

/// Decodes the JSON body of a control frame.
pub fn json_body<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|source| FrameError::Body { kind, source })
}

/// Splits the body of an output frame into its absolute offset and its bytes.
pub fn output_body(body: &[u8]) -> Result<(u64, &[u8]), FrameError> {
    let (offset, bytes) = body.split_first_chunk::<OFFSET_LEN>().ok_or(FrameError::NoOffset)?;
    Ok((u64::from_le_bytes(*offset), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_kind_survives_a_round_trip() {
        for &kind in Kind::ALL {
            let header = Header::new(kind, 5).unwrap();
            assert_eq!(Header::parse(&header.to_bytes()).unwrap(), Some(header));
        }
    }

    #[test]
    fn oversized_frames_are_refused_on_both_sides() {
        assert!(matches!(Header::new(Kind::FileData, MAX_DATA + 1), Err(FrameError::TooLarge { .. })));
        let mut bytes = Header::new(Kind::FileData, MAX_DATA).unwrap().to_bytes();
        bytes[7] = 0xff;
        assert!(matches!(Header::parse(&bytes), Err(FrameError::TooLarge { .. })));
    }

    #[test]
    fn a_stranger_is_turned_away_at_once() {
        assert!(matches!(Header::parse(b"G"), Err(FrameError::Magic)));
        assert!(matches!(Header::parse(b"GET / HTTP"), Err(FrameError::Magic)));
        assert!(matches!(Header::parse(b"Rw\x07\x01\0\0\0\0"), Err(FrameError::Version(7))));
        assert!(matches!(Header::parse(b"Rw\x01\xee\0\0\0\0"), Err(FrameError::UnknownKind(0xee))));
        assert!(Header::parse(b"Rw\x01").unwrap().is_none());
    }

    #[test]
    fn a_body_that_does_not_fit_leaves_the_buffer_alone() {
        let mut out = b"before".to_vec();
        let body = "x".repeat(MAX_CONTROL);
        assert!(put_json(&mut out, Kind::Reply, &body).is_err());
        assert_eq!(out, b"before");
    }

    /// A conversation as guests and hosts have them.
    fn conversations() -> Vec<Vec<u8>> {
        let mut asking = Vec::new();
        let hello = crate::Hello { protocol: crate::PROTOCOL, key: crate::Key::from_bytes([7; 32]) };
        put_json(&mut asking, Kind::Hello, &hello).unwrap();
        put_json(&mut asking, Kind::Request, &crate::Request::Ping).unwrap();
        let exec = serde_json::json!({"exec_start": {"argv": ["sh", "-c", "x"], "env": {"A": "1"}, "cwd": "/"}});
        put_json(&mut asking, Kind::Request, &exec).unwrap();
        put_data(&mut asking, Kind::Stdin, b"some input").unwrap();
        put_data(&mut asking, Kind::StdinClose, b"").unwrap();
        let mut answering = Vec::new();
        put_json(&mut answering, Kind::Reply, &crate::Reply::Done).unwrap();
        put_data(&mut answering, Kind::Stdout, b"\x10\0\0\0\0\0\0\0output").unwrap();
        let failure = crate::Failure::new(crate::ErrorCode::PathNotFound, "not there");
        put_json(&mut answering, Kind::Failure, &failure).unwrap();
        put_json(&mut answering, Kind::Gap, &serde_json::json!({"stream": "stdout", "from": 1, "to": 2})).unwrap();
        vec![asking, answering]
    }

    #[test]
    fn fuzz_damaged_conversations_are_refused_and_nothing_else() {
        roost_fuzz::attack(&conversations(), |mut bytes| {
            while let Ok(Some(header)) = Header::parse(bytes) {
                assert!(header.len <= MAX_CONTROL && Header::parse(&header.to_bytes()).is_ok());
                let Some(body) = bytes.get(HEADER_LEN..HEADER_LEN + header.len) else { return };
                drop(output_body(body));
                drop(json_body::<crate::Hello>(header.kind, body));
                drop(json_body::<crate::GuestConfig>(header.kind, body));
                drop(json_body::<crate::Request>(header.kind, body));
                drop(json_body::<crate::Reply>(header.kind, body));
                drop(json_body::<crate::Failure>(header.kind, body));
                drop(json_body::<crate::ExecInfo>(header.kind, body));
                drop(json_body::<crate::Gap>(header.kind, body));
                drop(json_body::<crate::Entries>(header.kind, body));
                bytes = &bytes[HEADER_LEN + header.len..];
            }
        });
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            drop(Header::parse(&bytes));
            drop(output_body(&bytes));
            drop(json_body::<crate::Request>(Kind::Request, &bytes));
            drop(json_body::<crate::Hello>(Kind::Hello, &bytes));
        }

        #[test]
        fn json_frames_survive_a_round_trip(text in ".{0,200}") {
            let mut out = vec![1, 2, 3];
            put_json(&mut out, Kind::Reply, &text).unwrap();
            let header = Header::parse(&out[3..]).unwrap().unwrap();
            let body = &out[3 + HEADER_LEN..];
            prop_assert_eq!(header.len, body.len());
            prop_assert_eq!(json_body::<String>(header.kind, body).unwrap(), text);
        }
    }
}
