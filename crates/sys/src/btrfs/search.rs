//! Reading the items of a subvolume's tree, many per call.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Updater, ioctl};

use super::{SearchHead, TREE_SEARCH_V2};

const HEADER: usize = 32;

/// One call's worth of items behind its head, as the kernel expects them in memory.
#[repr(C)]
struct SearchMany {
    head: SearchHead,
    buffer: [u8; SearchMany::ROOM],
}

impl SearchMany {
    /// Several of the largest items, which are a leaf of 16 KiB each.
    const ROOM: usize = 128 * 1024;
}

/// What an item describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemKind {
    /// The inode itself.
    Inode,
    /// An extended attribute of it, or several whose names collide.
    Xattr,
    /// An extent of its content, or the content itself where that is small.
    Extent,
}

/// An item of a subvolume's tree.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// The inode it belongs to.
    pub inode: u64,
    /// What it describes.
    pub kind: ItemKind,
    /// Its place among the inode's items of that kind; of an extent, where in the file it begins.
    pub offset: u64,
    /// Its content as on disk, little-endian.
    pub data: &'a [u8],
}

/// Where an item is in the tree, which is ordered by these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    inode: u64,
    kind: u32,
    offset: u64,
}

/// Calls `visit` for every inode, extended attribute and extent of the subvolume that the descriptor is in.
///
/// They come by inode; items of other kinds are skipped.
pub fn for_each_item(fd: impl AsFd, mut visit: impl FnMut(Item<'_>)) -> io::Result<()> {
    let fd = fd.as_fd();
    let mut search = Box::new(SearchMany {
        head: SearchHead {
            tree_id: 0,
            min_objectid: super::FIRST_FREE_OBJECTID,
            max_objectid: u64::MAX,
            min_offset: 0,
            max_offset: u64::MAX,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: 0,
            max_type: u32::MAX,
            nr_items: u32::MAX,
            unused: 0,
            unused_more: [0; 4],
            buf_size: SearchMany::ROOM as u64,
        },
        buffer: [0; SearchMany::ROOM],
    });
    loop {
        search.head.nr_items = u32::MAX;
        // SAFETY: the kernel reads the head and writes at most `buf_size` bytes behind it, which `buffer` holds:
        // `SearchHead` has no tail padding, so `buffer` follows it directly.
        unsafe { ioctl(fd, Updater::<TREE_SEARCH_V2, SearchMany>::new(&mut search)) }?;
        let mut rest = search.buffer.as_slice();
        let mut last = None;
        for _ in 0..search.head.nr_items {
            let Some((key, data, tail)) = split_item(rest) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            rest = tail;
            last = Some(key);
            if let Some(kind) = known_kind(key.kind) {
                visit(Item { inode: key.inode, kind, offset: key.offset, data });
            }
        }
        let Some(next) = last.and_then(Key::next) else {
            return Ok(());
        };
        search.head.min_objectid = next.inode;
        search.head.min_type = next.kind;
        search.head.min_offset = next.offset;
    }
}

fn known_kind(kind: u32) -> Option<ItemKind> {
    match kind {
        1 => Some(ItemKind::Inode),
        24 => Some(ItemKind::Xattr),
        108 => Some(ItemKind::Extent),
        _ => None,
    }
}

impl Key {
    fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        // The kind is a byte on disk.
        if self.kind < 255 {
            return Some(Self { kind: self.kind + 1, offset: 0, ..self });
        }
        self.inode.checked_add(1).map(|inode| Self { inode, kind: 0, offset: 0 })
    }
}

/// Splits `struct btrfs_ioctl_search_header`, which is in the order of this machine, and its item off the front.
fn split_item(bytes: &[u8]) -> Option<(Key, &[u8], &[u8])> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let word = |at: usize| Some(u64::from_ne_bytes(header.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let key = Key { inode: word(8)?, offset: word(16)?, kind: half(24)? };
    let (data, rest) = rest.split_at_checked(half(28)? as usize)?;
    Some((key, data, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_skips_nothing() {
        let next = |inode, kind, offset| Key { inode, kind, offset }.next().map(|k| (k.inode, k.kind, k.offset));
        assert_eq!(next(256, 1, 0), Some((256, 1, 1)));
        assert_eq!(next(256, 1, u64::MAX), Some((256, 2, 0)));
        assert_eq!(next(256, 255, u64::MAX), Some((257, 0, 0)));
        assert_eq!(next(u64::MAX, 255, u64::MAX), None);
    }

    #[test]
    fn an_item_that_does_not_fit_is_none() {
        let mut bytes = [0_u8; 40];
        bytes[8] = 7;
        bytes[24] = 108;
        bytes[28] = 8;
        let (key, data, rest) = split_item(&bytes).unwrap();
        assert_eq!((key.inode, key.kind, data.len(), rest.len()), (7, 108, 8, 0));
        bytes[28] = 9;
        assert!(split_item(&bytes).is_none());
    }
}
