//! Where the output of a process is kept: for as long as its exec is known, or in a log that outlives it.

use roost_wire::StreamRange;

use super::log::Log;
use super::spool::{Found, Spool};

/// What is kept of one stream.
#[derive(Debug)]
pub(super) enum Kept {
    /// Of one process.
    Spool(Spool),
    /// Of all processes of a service.
    Log(Log),
}

impl Kept {
    pub(super) fn range(&self) -> StreamRange {
        match self {
            Self::Spool(spool) => spool.range(),
            Self::Log(log) => log.range(),
        }
    }

    /// Takes bytes in and returns how many; a log takes all of them, because nobody may hold a service back.
    pub(super) fn append(&mut self, bytes: &[u8], keep_from: Option<u64>) -> usize {
        match self {
            Self::Spool(spool) => spool.append(bytes, keep_from),
            Self::Log(log) => {
                log.append(bytes);
                bytes.len()
            }
        }
    }

    /// Copies what is kept from `offset` on.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Found {
        match self {
            Self::Spool(spool) => spool.read(offset, buffer),
            Self::Log(log) => log.read(offset, buffer),
        }
    }

    /// The last bytes that are kept, at most `limit` of them.
    pub(super) fn tail(&self, limit: usize) -> Vec<u8> {
        tail(self.range(), limit, |offset, buffer| self.read(offset, buffer))
    }
}

/// Reads the end of a range, over gaps if there are some.
pub(super) fn tail(range: StreamRange, limit: usize, read: impl Fn(u64, &mut [u8]) -> Found) -> Vec<u8> {
    let mut offset = range.end.saturating_sub(limit as u64).max(range.start);
    let length = usize::try_from(range.end - offset).unwrap_or(limit).min(limit);
    let mut tail = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = tail.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match read(offset, rest) {
            Found::Bytes(0) => break,
            Found::Bytes(count) => {
                filled += count;
                offset += count as u64;
            }
            Found::Gap { to } => offset = to,
        }
    }
    tail.truncate(filled);
    tail
}

/// Reads everything from `offset` in steps, with whatever gaps there are.
#[cfg(test)]
pub(super) fn read_all(
    mut offset: u64,
    step: usize,
    read: impl Fn(u64, &mut [u8]) -> Found,
) -> (Vec<u8>, Vec<(u64, u64)>) {
    let (mut bytes, mut gaps, mut buffer) = (Vec::new(), Vec::new(), vec![0; step]);
    loop {
        match read(offset, &mut buffer) {
            Found::Bytes(0) => return (bytes, gaps),
            Found::Bytes(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                offset += count as u64;
            }
            Found::Gap { to } => {
                gaps.push((offset, to));
                offset = to;
            }
        }
    }
}
