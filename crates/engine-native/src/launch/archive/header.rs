//! One block of an archive that says what follows, as GNU's `tar` writes it.

use super::Unfit;

pub(super) const BLOCK: usize = 512;
const MAGIC: &[u8; 8] = b"ustar  \0";

const NAME: std::ops::Range<usize> = 0..100;
const MODE: std::ops::Range<usize> = 100..108;
const USER: std::ops::Range<usize> = 108..116;
const GROUP: std::ops::Range<usize> = 116..124;
const SIZE: std::ops::Range<usize> = 124..136;
const TIME: std::ops::Range<usize> = 136..148;
const SUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const TARGET: std::ops::Range<usize> = 157..257;
const KIND_OF_FORMAT: std::ops::Range<usize> = 257..265;

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// With so many bytes behind the header.
    File(u64),
    /// To this name.
    Link(Vec<u8>),
}

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    /// When it was changed last, in seconds.
    pub(super) time: u64,
}

impl Header {
    pub(super) fn write(&self) -> Result<[u8; BLOCK], Unfit> {
        let mut block = [0; BLOCK];
        put_text(&mut block[NAME], &self.name)?;
        put_number(&mut block[MODE], self.mode.into())?;
        put_number(&mut block[USER], self.user.into())?;
        put_number(&mut block[GROUP], self.group.into())?;
        put_number(&mut block[TIME], self.time)?;
        let (kind, size) = match &self.kind {
            Kind::Folder => (b'5', 0),
            Kind::File(size) => (b'0', *size),
            Kind::Link(target) => {
                put_text(&mut block[TARGET], target)?;
                (b'2', 0)
            }
        };
        put_number(&mut block[SIZE], size)?;
        block[KIND] = kind;
        block[KIND_OF_FORMAT].copy_from_slice(MAGIC);
        let sum = sum(&block);
        put_number(&mut block[SUM.start..SUM.end - 1], sum)?;
        block[SUM.end - 1] = b' ';
        Ok(block)
    }

    /// Reads one; what this program would not have written is unusual.
    pub(super) fn read(block: &[u8; BLOCK]) -> Result<Self, Unfit> {
        if &block[KIND_OF_FORMAT] != MAGIC || number(&block[SUM])? != sum(block) {
            return Err(Unfit::Unusual);
        }
        let small = |field: &[u8]| number(field).and_then(|number| u32::try_from(number).map_err(|_| Unfit::Unusual));
        let size = number(&block[SIZE])?;
        let kind = match (block[KIND], size) {
            (b'5', 0) => Kind::Folder,
            (b'2', 0) => Kind::Link(text(&block[TARGET])?),
            (b'0', size) => Kind::File(size),
            _ => return Err(Unfit::Unusual),
        };
        Ok(Self {
            name: text(&block[NAME])?,
            kind,
            mode: small(&block[MODE])?,
            user: small(&block[USER])?,
            group: small(&block[GROUP])?,
            time: number(&block[TIME])?,
        })
    }
}

/// The sum of all bytes, with blanks where it is written itself.
fn sum(block: &[u8; BLOCK]) -> u64 {
    let blank = |(at, byte): (usize, &u8)| u64::from(if SUM.contains(&at) { b' ' } else { *byte });
    block.iter().enumerate().map(blank).sum()
}

fn put_text(field: &mut [u8], text: &[u8]) -> Result<(), Unfit> {
    // A name that fills its field has no end there; not every reader knows.
    if text.len() >= field.len() {
        return Err(Unfit::Unusual);
    }
    field[..text.len()].copy_from_slice(text);
    Ok(())
}

fn text(field: &[u8]) -> Result<Vec<u8>, Unfit> {
    let end = field.iter().position(|byte| *byte == 0).ok_or(Unfit::Unusual)?;
    if end == 0 { Err(Unfit::Unusual) } else { Ok(field[..end].to_vec()) }
}

/// In octal digits that fill the field but for its last byte.
fn put_number(field: &mut [u8], number: u64) -> Result<(), Unfit> {
    let width = field.len() - 1;
    let digits = format!("{number:0width$o}");
    if digits.len() > width {
        return Err(Unfit::Unusual);
    }
    field[..width].copy_from_slice(digits.as_bytes());
    Ok(())
}

fn number(field: &[u8]) -> Result<u64, Unfit> {
    let digits = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = field.split_at(digits);
    let ends = !digits.is_empty() && rest.iter().all(|byte| matches!(byte, 0 | b' '));
    let digits = std::str::from_utf8(digits).ok().filter(|_| ends);
    digits.and_then(|digits| u64::from_str_radix(digits, 8).ok()).ok_or(Unfit::Unusual)
}
