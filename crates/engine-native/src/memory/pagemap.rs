//! Which pages of an image are read before its processes run, and which come on demand.
//!
//! CRIU marks every private page as one that may come later. But the first thing a woken program does is to touch its
//! stack, its small heaps and the data of its libraries, and each such page would be a fault that a server has to answer.
//! So the smallest ranges lose the mark, up to a bound, and are read with the rest of the process; large ones keep it.
//!
//! A `pagemap-*.img` is two magic numbers, then records of a length and a protobuf message each: a head first, then
//! `{ 1: address, 2 or 5: pages, 4: flags }`. A flag is changed where it stands: lengths stay.

use std::fs;
use std::io;
use std::path::Path;

/// The files' two magic numbers, the common one and their own.
const MAGICS: [u8; 8] = [0x19, 0x43, 0x56, 0x54, 0x25, 0x40, 0x08, 0x56];
const PAGE: u64 = 4096;
/// The page may come on demand.
const LAZY: u8 = 1 << 1;

/// A range that may come on demand.
#[derive(Debug, PartialEq, Eq)]
struct LazyRange {
    pages: u64,
    /// Where in the file its flags are.
    flags_at: usize,
}

/// Has the smallest ranges of an image read at once, as long as they are not more than `most` bytes together.
pub(crate) fn read_small_ranges_at_once(image: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(image)? {
        let path = entry?.path();
        if is_pagemap(&path) {
            files.push((fs::read(&path)?, path));
        }
    }
    let mut ranges = Vec::new();
    for (index, (bytes, path)) in files.iter().enumerate() {
        let found = lazy_ranges(bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, format!("`{}` is not a table of pages", path.display()))
        })?;
        ranges.extend(found.into_iter().map(|range| (range.pages, index, range.flags_at)));
    }
    ranges.sort_unstable();
    let mut left = most / PAGE;
    let mut changed = vec![false; files.len()];
    for (pages, index, at) in ranges {
        let Some(rest) = left.checked_sub(pages) else { break };
        left = rest;
        if let Some(flags) = files[index].0.get_mut(at) {
            *flags &= !LAZY;
            changed[index] = true;
        }
    }
    files.iter().zip(changed).filter(|(_, changed)| *changed).try_for_each(|((bytes, path), _)| fs::write(path, bytes))
}

/// Whether a file tells of a process's own pages; those of memory that is shared never come on demand.
fn is_pagemap(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("pagemap-")?.strip_suffix(".img"));
    number.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Nothing if it is not such a file.
fn lazy_ranges(file: &[u8]) -> Option<Vec<LazyRange>> {
    let mut rest = file.strip_prefix(&MAGICS)?;
    let mut ranges = Vec::new();
    let mut is_head = true;
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk()?;
        let (record, next) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        if !std::mem::take(&mut is_head) {
            let start = file.len() - after.len();
            ranges.extend(lazy_range(record)?.map(|range| LazyRange { flags_at: start + range.flags_at, ..range }));
        }
        rest = next;
    }
    Some(ranges)
}

/// The range of a record, if its pages may come on demand.
fn lazy_range(record: &[u8]) -> Option<Option<LazyRange>> {
    let (mut pages, mut flags) = (0, None);
    let mut at = 0;
    while at < record.len() {
        let key = varint(record, &mut at)?;
        let value_at = at;
        let value = varint(record, &mut at)?;
        // All fields are numbers: wire type 0.
        match (key >> 3, key & 7) {
            // The first of the two is too narrow for large ranges, and 0 where the other is there.
            (2 | 5, 0) => pages = value.max(pages),
            (4, 0) => flags = Some((value, value_at)),
            (_, 0) => {}
            _ => return None,
        }
    }
    // A number below 128 is one byte, which is itself.
    Some(flags.and_then(|(flags, flags_at)| {
        (flags < 0x80 && flags & u64::from(LAZY) != 0).then_some(LazyRange { pages, flags_at })
    }))
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(ranges: &[(u64, u8)]) -> Vec<u8> {
        let mut bytes = MAGICS.to_vec();
        let mut record = |message: &[u8]| {
            bytes.extend(u32::try_from(message.len()).unwrap().to_le_bytes());
            bytes.extend(message);
        };
        record(&[0x08, 0x01]);
        for (pages, flags) in ranges {
            // An address, no pages in the old field, flags, pages.
            let mut message = vec![0x08, 0x80, 0xa0, 0x93, 0xbe, 0x07, 0x10, 0x00, 0x20, *flags, 0x28];
            let mut left = *pages;
            while left >= 0x80 {
                message.push(left as u8 | 0x80);
                left >>= 7;
            }
            message.push(left as u8);
            record(&message);
        }
        bytes
    }

    #[test]
    fn the_smallest_ranges_are_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("pagemap-1.img"), file(&[(3, 6), (131_072, 6), (2, 4)])).unwrap();
        fs::write(path("pagemap-7.img"), file(&[(300, 6), (5, 6)])).unwrap();
        let shared = file(&[(1, 6)]);
        fs::write(path("pagemap-shmem-2.img"), &shared).unwrap();
        read_small_ranges_at_once(folder.path(), 9 * PAGE).unwrap();
        assert_eq!(fs::read(path("pagemap-1.img")).unwrap(), file(&[(3, 4), (131_072, 6), (2, 4)]));
        assert_eq!(fs::read(path("pagemap-7.img")).unwrap(), file(&[(300, 6), (5, 4)]));
        assert_eq!(fs::read(path("pagemap-shmem-2.img")).unwrap(), shared);

        fs::write(path("pagemap-8.img"), b"something else").unwrap();
        let refused = read_small_ranges_at_once(folder.path(), PAGE).unwrap_err();
        assert!(refused.to_string().contains("pagemap-8.img"), "{refused}");
    }

    proptest! {
        #[test]
        fn what_is_read_may_be_anything(mut bytes in prop::collection::vec(any::<u8>(), 0..200), real in any::<bool>()) {
            if real {
                bytes.splice(0..0, MAGICS);
            }
            for range in lazy_ranges(&bytes).unwrap_or_default() {
                prop_assert!(bytes[range.flags_at] & LAZY != 0);
            }
        }
    }
}
