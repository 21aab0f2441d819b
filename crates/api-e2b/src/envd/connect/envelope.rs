//! Envelopes: messages in a row in one body.

use bytes::{BufMut, Bytes, BytesMut};

use super::code::{Code, ConnectError};

/// Flags and length.
const HEAD: usize = 5;
const COMPRESSED: u8 = 1;
const END: u8 = 2;
/// The largest message that is taken in. Input of a process is the only thing that comes near it.
pub(super) const LARGEST: usize = 64 << 20;

/// Takes a body apart into messages, however it was cut into pieces. Holds no more than what has arrived.
#[derive(Debug, Default)]
pub(super) struct Envelopes {
    buffer: BytesMut,
}

impl Envelopes {
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole message, if it is there.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, ConnectError> {
        let Some((&[flags, a, b, c, d], _)) = self.buffer.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        match flags {
            0 => {}
            COMPRESSED => return Err(ConnectError::new(Code::Unimplemented, "compressed messages are not understood")),
            _ => {
                return Err(ConnectError::invalid(format!(
                    "a message has flags {flags:#04x}, which mean nothing here"
                )));
            }
        }
        check_length(length)?;
        if self.buffer.len() < HEAD + length {
            return Ok(None);
        }
        let mut message = self.buffer.split_to(HEAD + length).freeze();
        Ok(Some(message.split_off(HEAD)))
    }

    /// Whether a message has begun and is not whole.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Refuses a message that is too long before it is there.
pub(super) fn check_length(length: usize) -> Result<(), ConnectError> {
    if length <= LARGEST {
        return Ok(());
    }
    let message = format!("a message of {length} bytes is larger than {LARGEST}");
    Err(ConnectError::new(Code::ResourceExhausted, message))
}

/// Puts a message behind others.
pub(super) fn put_message(out: &mut BytesMut, message: &impl serde::Serialize) {
    put(out, 0, message);
}

/// Puts the end of a stream behind its messages.
pub(super) fn put_end(out: &mut BytesMut, outcome: &Result<(), ConnectError>) {
    #[derive(serde::Serialize)]
    struct End<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a ConnectError>,
    }
    put(out, END, &End { error: outcome.as_ref().err() });
}

fn put(out: &mut BytesMut, flags: u8, message: &impl serde::Serialize) {
    let start = out.len();
    out.put_slice(&[flags, 0, 0, 0, 0]);
    // Plain data with text keys always has a JSON form, and memory has no error.
    if let Err(error) = serde_json::to_writer((&mut *out).writer(), message) {
        tracing::error!(%error, "a message has no JSON form");
    }
    let length = u32::try_from(out.len() - start - HEAD).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start + 1..start + HEAD) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![flags];
        frame.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// All messages of a body that arrives in these pieces.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<(Vec<Bytes>, bool), ConnectError> {
        let (mut envelopes, mut messages) = (Envelopes::default(), Vec::new());
        for piece in pieces {
            envelopes.push(piece);
            while let Some(message) = envelopes.next()? {
                messages.push(message);
            }
        }
        Ok((messages, envelopes.is_empty()))
    }

    #[test]
    fn ends_are_what_clients_wait_for() {
        let mut out = BytesMut::new();
        put_message(&mut out, &serde_json::json!({}));
        put_end(&mut out, &Ok(()));
        put_end(&mut out, &Err(ConnectError::new(Code::NotFound, "no such process")));
        let mut expected = [frame(0, b"{}"), frame(2, b"{}")].concat();
        expected.extend(frame(2, br#"{"error":{"code":"not_found","message":"no such process"}}"#));
        assert_eq!(out, expected);
    }

    #[test]
    fn what_is_no_plain_message_is_refused_at_its_head() {
        let code = |bytes: &[u8]| read([bytes]).unwrap_err().code;
        assert_eq!(code(&[1, 0, 0, 0, 9]), Code::Unimplemented);
        assert_eq!(code(&[2, 0, 0, 0, 2]), Code::InvalidArgument);
        assert_eq!(code(&[0x80, 0, 0, 0, 0]), Code::InvalidArgument);
        assert_eq!(code(&[0, 0xff, 0xff, 0xff, 0xff]), Code::ResourceExhausted);
    }

    proptest! {
        #[test]
        fn messages_arrive_whole_however_the_body_is_cut(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..8),
            cuts in proptest::collection::vec(1usize..40, 1..60),
        ) {
            let body: Vec<u8> = messages.iter().flat_map(|message| frame(0, message)).collect();
            let mut rest = &body[..];
            let mut pieces = Vec::new();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            let (found, whole) = read(pieces).unwrap();
            prop_assert!(whole);
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn no_bytes_are_too_much(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..32)) {
            let sent: usize = pieces.iter().map(Vec::len).sum();
            let mut envelopes = Envelopes::default();
            let mut read = 0;
            'body: for piece in &pieces {
                envelopes.push(piece);
                loop {
                    match envelopes.next() {
                        Ok(Some(message)) => read += HEAD + message.len(),
                        Ok(None) => break,
                        Err(_) => break 'body,
                    }
                }
            }
            prop_assert!(read + envelopes.buffer.len() <= sent, "nothing is made up");
            prop_assert!(envelopes.buffer.capacity() <= 4 * sent + 256, "what is announced is not paid for");
        }
    }

    #[test]
    fn fuzz_a_body_is_cut_into_the_same_messages_however_it_arrives() {
        let mut calls = BytesMut::new();
        for call in [
            r#"{"process":{"cmd":"sh","args":["-c","x"],"envs":{"A":"1"},"cwd":"/"},"pty":{"size":{"cols":80,"rows":24}}}"#,
            r#"{"start":{"process":{"pid":12}}}"#,
            r#"{"data":{"input":{"stdin":"aGVsbG8="}}}"#,
        ] {
            put_message(&mut calls, &serde_json::from_str::<serde_json::Value>(call).unwrap());
        }
        let messages = |bytes: &[u8], size: usize| {
            let (mut envelopes, mut all) = (Envelopes::default(), Vec::new());
            for piece in bytes.chunks(size) {
                envelopes.push(piece);
                loop {
                    match envelopes.next() {
                        Ok(Some(message)) => all.push(message),
                        Ok(None) => break,
                        Err(error) => return (all, Some(error.code)),
                    }
                }
            }
            (all, None)
        };
        roost_fuzz::attack(&[calls], |bytes| {
            let at_once = messages(bytes, bytes.len().max(1));
            assert_eq!(at_once, messages(bytes, 7));
        });
    }
}
