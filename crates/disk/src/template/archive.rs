//! A reader of tar archives: ustar, GNU long names and PAX records, byte-exact.
//!
//! The headers are parsed by the `tar` crate; its iteration is not used, because it splits PAX records at newlines
//! and so loses extended attributes with binary values, such as file capabilities.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use tar::{EntryType, Header};

use super::tree::{Attributes, keeps_xattr};

const BLOCK: usize = 512;
/// Names and PAX records are read into memory, so they have a limit.
const LONGEST_RECORD: u64 = 1 << 20;
/// Records for all members are looked through for each of them.
const LONGEST_GLOBALS: usize = 64 * 1024;
/// Headers that only say more about the member that follows.
const MOST_RECORDS: usize = 64;

/// What an archive holds at one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File { size: u64 },
    Folder,
    Symlink { target: OsString },
    Hardlink { target: PathBuf },
    Fifo,
    Device,
}

/// One member of an archive; a file's bytes follow from [`Archive`] itself.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) attributes: Attributes,
}

impl Member {
    /// Bytes of its data.
    pub(super) fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size } => size,
            _ => 0,
        }
    }
}

/// Records that override fields of the header that follows.
#[derive(Debug, Default)]
struct Overrides {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Overrides {
    fn pax(&self, key: &str) -> Option<&[u8]> {
        self.pax.iter().rev().find(|(k, _)| k == key.as_bytes()).map(|(_, value)| value.as_slice())
    }

    fn number(&self, key: &str) -> io::Result<Option<u64>> {
        let Some(value) = self.pax(key) else { return Ok(None) };
        let text = std::str::from_utf8(value).ok().and_then(|t| t.parse().ok());
        text.map(Some).ok_or_else(|| malformed(format!("PAX record `{key}` is not a number")))
    }
}

/// An archive being read; between two members it reads as the data of the first.
#[derive(Debug)]
pub(super) struct Archive<R> {
    reader: R,
    remaining: u64,
    padding: u64,
    globals: Vec<(Vec<u8>, Vec<u8>)>,
}

fn malformed(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

impl<R: Read> Archive<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, remaining: 0, padding: 0, globals: Vec::new() }
    }

    /// What follows the archive.
    pub(super) fn into_inner(self) -> R {
        self.reader
    }

    /// Goes on to the next member, or to the end of the archive.
    pub(super) fn next(&mut self) -> io::Result<Option<Member>> {
        let mut overrides = Overrides { pax: self.globals.clone(), ..Overrides::default() };
        for _ in 0..MOST_RECORDS {
            self.skip_rest()?;
            let mut block = [0_u8; BLOCK];
            self.reader.read_exact(&mut block).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => malformed("the archive is cut short"),
                _ => e,
            })?;
            if block.iter().all(|b| *b == 0) {
                return Ok(None);
            }
            check_sum(&block)?;
            let header = Header::from_byte_slice(&block);
            match header.entry_type() {
                EntryType::GNULongName => overrides.path = Some(cut_at_nul(self.record(header)?)),
                EntryType::GNULongLink => overrides.link = Some(cut_at_nul(self.record(header)?)),
                EntryType::XHeader => overrides.pax.extend(parse_pax(&self.record(header)?)?),
                EntryType::XGlobalHeader => {
                    let records = parse_pax(&self.record(header)?)?;
                    overrides.pax.extend(records.iter().cloned());
                    self.globals.extend(records);
                    if length(&self.globals) > LONGEST_GLOBALS {
                        return Err(malformed("more PAX records for all members than they can need"));
                    }
                }
                _ => return self.member(header, &overrides).map(Some),
            }
            if length(&overrides.pax) as u64 > LONGEST_RECORD {
                return Err(malformed("more PAX records than a member can need"));
            }
        }
        Err(malformed("more headers before a member than it can need"))
    }

    fn member(&mut self, header: &Header, overrides: &Overrides) -> io::Result<Member> {
        if overrides.pax.iter().any(|(key, _)| key.starts_with(b"GNU.sparse.")) {
            return Err(malformed("sparse members are not supported: make the archive without `--sparse`"));
        }
        let path = overrides.pax("path").map(<[u8]>::to_vec).or_else(|| overrides.path.clone());
        let path = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let link = overrides.pax("linkpath").map(<[u8]>::to_vec).or_else(|| overrides.link.clone());
        let link = link.or_else(|| header.link_name_bytes().map(|l| l.into_owned())).unwrap_or_default();
        let kind = match header.entry_type() {
            // Before there were types, a slash at the end was the mark of a folder.
            EntryType::Regular if path.ends_with(b"/") => Kind::Folder,
            EntryType::Regular | EntryType::Continuous => {
                let size = overrides.number("size")?.map_or_else(|| header.entry_size(), Ok)?;
                (self.remaining, self.padding) = sizes(size)?;
                Kind::File { size }
            }
            EntryType::Directory => Kind::Folder,
            EntryType::Symlink => Kind::Symlink { target: OsString::from_vec(link) },
            EntryType::Link => Kind::Hardlink { target: PathBuf::from(OsString::from_vec(link)) },
            EntryType::Fifo => Kind::Fifo,
            EntryType::Char | EntryType::Block => Kind::Device,
            other => {
                let (kind, name) = (char::from(other.as_byte()), String::from_utf8_lossy(&path));
                return Err(malformed(format!("member `{name}` has the unsupported type `{kind}`")));
            }
        };
        let path = PathBuf::from(OsString::from_vec(path));
        Ok(Member { path, kind, attributes: attributes(header, overrides)? })
    }

    fn record(&mut self, header: &Header) -> io::Result<Vec<u8>> {
        let size = header.entry_size()?;
        if size > LONGEST_RECORD {
            return Err(malformed(format!("a name or PAX record of {size} bytes")));
        }
        (self.remaining, self.padding) = sizes(size)?;
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn skip_rest(&mut self) -> io::Result<()> {
        let rest = self.remaining + self.padding;
        (self.remaining, self.padding) = (0, 0);
        let skipped = io::copy(&mut self.reader.by_ref().take(rest), &mut io::sink())?;
        if skipped < rest { Err(malformed("the archive is cut short")) } else { Ok(()) }
    }
}

impl<R: Read> Read for Archive<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.reader.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(malformed("the archive is cut short"));
        }
        self.remaining -= read as u64;
        Ok(read)
    }
}

fn attributes(header: &Header, overrides: &Overrides) -> io::Result<Attributes> {
    let owner = |key: &str, plain: io::Result<u64>| -> io::Result<u32> {
        let value = overrides.number(key)?.map_or(plain, Ok)?;
        u32::try_from(value).map_err(|_| malformed(format!("{key} {value} is out of range")))
    };
    let seconds = match overrides.pax("mtime") {
        // A fraction may follow; whole seconds are what an image keeps of it.
        Some(text) => std::str::from_utf8(text).ok().and_then(|t| t.split('.').next()?.parse().ok()).unwrap_or(0),
        None => i64::try_from(header.mtime()?).unwrap_or(0),
    };
    let xattrs = overrides.pax.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(b"SCHILY.xattr.".as_slice())?;
        keeps_xattr(name).then(|| (OsStr::from_bytes(name).to_owned(), value.clone()))
    });
    Ok(Attributes {
        mode: header.mode()? & 0o7777,
        uid: owner("uid", header.uid())?,
        gid: owner("gid", header.gid())?,
        seconds,
        nanoseconds: 0,
        xattrs: xattrs.collect(),
    })
}

/// The checksum counts its own field as spaces.
fn check_sum(block: &[u8; BLOCK]) -> io::Result<()> {
    let sum = |range: std::ops::Range<usize>| block[range].iter().map(|b| u32::from(*b)).sum::<u32>();
    let actual = sum(0..148) + 8 * u32::from(b' ') + sum(156..BLOCK);
    if Header::from_byte_slice(block).cksum().is_ok_and(|stated| stated == actual) {
        return Ok(());
    }
    Err(malformed("not a tar archive, or a damaged one: a header's checksum is wrong"))
}

/// What a member's bytes take up, and what follows to the next block.
fn sizes(size: u64) -> io::Result<(u64, u64)> {
    let whole = size.checked_next_multiple_of(BLOCK as u64);
    let whole = whole.ok_or_else(|| malformed(format!("a member of {size} bytes")))?;
    Ok((size, whole - size))
}

/// How much memory records take, roughly.
fn length(records: &[(Vec<u8>, Vec<u8>)]) -> usize {
    records.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn cut_at_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// Reads `<length> <key>=<value>\n` records by their lengths; a value may hold any byte.
fn parse_pax(mut bytes: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let record = next_pax(bytes).ok_or_else(|| malformed("a malformed PAX record"))?;
        records.push((record.key.to_vec(), record.value.to_vec()));
        bytes = record.rest;
    }
    Ok(records)
}

struct PaxRecord<'a> {
    key: &'a [u8],
    value: &'a [u8],
    rest: &'a [u8],
}

fn next_pax(bytes: &[u8]) -> Option<PaxRecord<'_>> {
    let space = bytes.iter().position(|b| *b == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|b| *b == b'=')?;
    Some(PaxRecord { key: &body[..equals], value: &body[equals + 1..], rest: &bytes[length..] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_values_may_hold_newlines() {
        let records = parse_pax(b"12 path=a\nb\n9 uid=10\n").unwrap();
        assert_eq!(records, [(b"path".to_vec(), b"a\nb".to_vec()), (b"uid".to_vec(), b"10".to_vec())]);
        for bad in [&b"99 path=a\n"[..], b"x path=a\n", b"3 \n", b"0 a=b\n", b"8 path=a"] {
            assert!(parse_pax(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_size_beyond_all_is_refused() {
        let mut records = Header::new_ustar();
        let pax = b"29 size=18446744073709551615\n";
        records.set_entry_type(EntryType::XHeader);
        records.set_size(pax.len() as u64);
        records.set_cksum();
        let mut file = Header::new_ustar();
        file.set_path("a").unwrap();
        file.set_size(0);
        file.set_cksum();
        let mut bytes = records.as_bytes().to_vec();
        bytes.extend_from_slice(pax);
        bytes.resize(2 * BLOCK, 0);
        bytes.extend_from_slice(file.as_bytes());
        assert_eq!(Archive::new(bytes.as_slice()).next().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn endless_headers_before_a_member_are_refused() {
        let mut name = Header::new_ustar();
        name.set_entry_type(EntryType::GNULongName);
        name.set_size(1);
        name.set_cksum();
        let mut one = name.as_bytes().to_vec();
        one.resize(2 * BLOCK, b'a');
        let endless = io::Cursor::new(one.repeat(10 * MOST_RECORDS));
        let error = Archive::new(endless).next().unwrap_err();
        assert_eq!(error.to_string(), "more headers before a member than it can need");
    }

    #[test]
    fn garbage_and_cut_archives_are_refused() {
        let garbage = Archive::new(&[7_u8; 1024][..]).next().unwrap_err();
        assert!(garbage.to_string().starts_with("not a tar archive"));
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(600);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        builder.append_data(&mut header, "file", &[1_u8; 600][..]).unwrap();
        let whole = builder.into_inner().unwrap();
        for cut in [600, 1100, 1536] {
            let mut archive = Archive::new(&whole[..cut]);
            archive.next().unwrap();
            let error = archive.next().unwrap_err();
            assert_eq!(error.to_string(), "the archive is cut short", "{cut}");
        }
    }
}
