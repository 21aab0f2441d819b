//! Building and taking apart netlink messages, in safe code.

use rustix::io::Errno;

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
const NESTED: u16 = 1 << 15;
const KIND_MASK: u16 = 0x3fff;

/// Which refusals of one message count as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tolerate {
    Nothing,
    One(Errno),
    Anything,
}

/// What a message tries to do, for the error, and what may go wrong with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    pub(crate) attempt: &'static str,
    pub(crate) tolerate: Tolerate,
    pub(crate) acknowledged: bool,
}

/// Several messages that go to the kernel in one send; the n-th has sequence number n.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) purposes: Vec<Purpose>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts a message that the kernel answers with an acknowledgement; it ends when dropped.
    pub(crate) fn message(&mut self, attempt: &'static str, tolerate: Tolerate, kind: u16, flags: i32) -> Message<'_> {
        let purpose = Purpose { attempt, tolerate, acknowledged: true };
        self.start(purpose, kind, flags | libc::NLM_F_ACK)
    }

    /// Starts a message without acknowledgement.
    pub(crate) fn silent(&mut self, attempt: &'static str, kind: u16, flags: i32) -> Message<'_> {
        let purpose = Purpose { attempt, tolerate: Tolerate::Nothing, acknowledged: false };
        self.start(purpose, kind, flags)
    }

    fn start(&mut self, purpose: Purpose, kind: u16, flags: i32) -> Message<'_> {
        let start = self.bytes.len();
        let sequence = self.purposes.len() as u32;
        let flags = (flags | libc::NLM_F_REQUEST) as u16;
        self.purposes.push(purpose);
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&flags.to_ne_bytes());
        self.bytes.extend_from_slice(&sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        Message { bytes: &mut self.bytes, start }
    }
}

/// One message under construction.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl Message<'_> {
    /// Appends a fixed header of the protocol's family.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    /// Appends a number in the host's byte order, as rtnetlink wants it.
    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Appends a number in network byte order, as nfnetlink wants it.
    pub(crate) fn big_number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// Appends a string with its terminating zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = Vec::with_capacity(value.len() + 1);
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Appends an attribute that contains what `fill` appends.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    fn pad(&mut self) {
        let padded = align(self.bytes.len());
        self.bytes.resize(padded, 0);
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// A message received from the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received<'a> {
    pub(crate) kind: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// Splits a datagram into its messages; stops at the first that is malformed.
pub(crate) fn split(mut datagram: &[u8]) -> impl Iterator<Item = Received<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(datagram, 0)? as usize;
        let payload = datagram.get(HEADER..length)?;
        let received = Received { kind: u16_at(datagram, 4)?, sequence: u32_at(datagram, 8)?, payload };
        datagram = datagram.get(align(length)..).unwrap_or_default();
        Some(received)
    })
}

/// Splits the attributes that follow a fixed header.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 2)? & KIND_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_can_be_taken_apart() {
        let mut batch = Batch::new();
        batch.message("first", Tolerate::Nothing, 16, libc::NLM_F_CREATE).raw(&[1, 2, 3, 4]).text(3, "eth0").nested(
            18,
            |m| {
                m.number(1, 7);
            },
        );
        batch.silent("second", 17, 0).attribute(9, &[5]);

        let messages: Vec<_> = split(&batch.bytes).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].sequence), (16, 0));
        assert_eq!((messages[1].kind, messages[1].sequence), (17, 1));
        let found: Vec<_> = attributes(&messages[0].payload[4..]).collect();
        assert_eq!(found[0], (3, b"eth0\0".as_slice()));
        assert_eq!(found[1].0, 18);
        assert_eq!(attributes(found[1].1).collect::<Vec<_>>(), [(1, 7u32.to_ne_bytes().as_slice())]);
        assert_eq!(attributes(messages[1].payload).collect::<Vec<_>>(), [(9, [5].as_slice())]);
    }

    #[test]
    fn malformed_input_ends_the_iteration() {
        assert_eq!(split(&[1, 0]).count(), 0);
        assert_eq!(split(&[255; 20]).count(), 0);
        assert_eq!(split(&[0; 32]).count(), 0);
        assert_eq!(attributes(&[0; 8]).count(), 0);
        assert_eq!(attributes(&[9, 0, 1, 0, 1]).count(), 0);
    }
}
