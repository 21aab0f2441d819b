//! The bytes of the SSH file transfer protocol, version 3.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A packet that ends too early or says what makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

const HAS_SIZE: u32 = 1;
const HAS_OWNER: u32 = 2;
const HAS_MODE: u32 = 4;
const HAS_TIMES: u32 = 8;
const HAS_EXTENDED: u32 = 0x8000_0000;

/// Reads a packet from its front.
#[derive(Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (front, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*front)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()? as usize;
        let (front, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    pub(super) fn attributes(&mut self) -> Result<Attributes, Malformed> {
        let flags = self.u32()?;
        let mut attributes = Attributes::default();
        if flags & HAS_SIZE != 0 {
            attributes.size = Some(self.u64()?);
        }
        if flags & HAS_OWNER != 0 {
            attributes.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & HAS_MODE != 0 {
            attributes.mode = Some(self.u32()?);
        }
        if flags & HAS_TIMES != 0 {
            attributes.times = Some((self.u32()?, self.u32()?));
        }
        if flags & HAS_EXTENDED != 0 {
            for _ in 0..self.u32()? {
                self.bytes()?;
                self.bytes()?;
            }
        }
        Ok(attributes)
    }
}

/// What is known, or wished, of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    /// Type and permission bits.
    pub(super) mode: Option<u32>,
    /// Last access and last change, in seconds.
    pub(super) times: Option<(u32, u32)>,
}

impl Attributes {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let seconds = |time: i64| u32::try_from(time.max(0)).unwrap_or(u32::MAX);
        Self {
            size: Some(metadata.size()),
            owner: Some((metadata.uid(), metadata.gid())),
            mode: Some(metadata.mode()),
            times: Some((seconds(metadata.atime()), seconds(metadata.mtime()))),
        }
    }
}

/// A packet that is being written, its length in front.
#[derive(Debug)]
pub(super) struct Packet(Vec<u8>);

const LENGTH: usize = 4;

impl Packet {
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = vec![0; LENGTH];
        bytes.push(kind);
        Self(bytes)
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut packet = self.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        packet.0.extend_from_slice(bytes);
        packet
    }

    /// Bytes that `fill` writes into at most `limit` of room; it says how many they are.
    pub(super) fn filled<E>(
        mut self,
        limit: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(Self, usize), E> {
        let at = self.0.len();
        self.0.resize(at + LENGTH + limit, 0);
        let count = fill(self.0.get_mut(at + LENGTH..).unwrap_or_default())?;
        self.0.truncate(at + LENGTH + count);
        if let Some(place) = self.0.get_mut(at..at + LENGTH) {
            place.copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        }
        Ok((self, count))
    }

    pub(super) fn attributes(mut self, attributes: &Attributes) -> Self {
        let flag = |has: bool, flag: u32| if has { flag } else { 0 };
        self = self.u32(
            flag(attributes.size.is_some(), HAS_SIZE)
                | flag(attributes.owner.is_some(), HAS_OWNER)
                | flag(attributes.mode.is_some(), HAS_MODE)
                | flag(attributes.times.is_some(), HAS_TIMES),
        );
        if let Some(size) = attributes.size {
            self = self.u64(size);
        }
        if let Some((one, other)) = attributes.owner {
            self = self.u32(one).u32(other);
        }
        if let Some(mode) = attributes.mode {
            self = self.u32(mode);
        }
        if let Some((one, other)) = attributes.times {
            self = self.u32(one).u32(other);
        }
        self
    }

    /// The packet as it is sent.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.0.len() - LENGTH).unwrap_or(u32::MAX);
        if let Some(place) = self.0.get_mut(..LENGTH) {
            place.copy_from_slice(&len.to_be_bytes());
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn attributes_come_back(
            size in proptest::option::of(any::<u64>()),
            owner in proptest::option::of(any::<(u32, u32)>()),
            mode in proptest::option::of(any::<u32>()),
            times in proptest::option::of(any::<(u32, u32)>()),
        ) {
            let sent = Attributes { size, owner, mode, times };
            let packet = Packet::new(0).attributes(&sent).bytes(b"end").finish();
            let mut fields = Fields::new(&packet[5..]);
            prop_assert_eq!(fields.attributes(), Ok(sent));
            prop_assert_eq!(fields.bytes(), Ok(b"end".as_slice()));
            prop_assert_eq!(fields.byte(), Err(Malformed));
        }

        #[test]
        fn nonsense_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut fields = Fields::new(&bytes);
            while fields.attributes().is_ok() && fields.bytes().is_ok() {}
        }
    }

    #[test]
    fn what_was_filled_in_has_its_length_in_front() {
        let (packet, count) = Packet::new(103)
            .u32(7)
            .filled(100, |room| {
                Ok::<_, ()>({
                    room[..3].copy_from_slice(b"abc");
                    3
                })
            })
            .unwrap();
        assert_eq!(count, 3);
        assert_eq!(packet.finish(), [0, 0, 0, 12, 103, 0, 0, 0, 7, 0, 0, 0, 3, b'a', b'b', b'c']);
    }
}
