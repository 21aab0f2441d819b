//! Fingerprints of inodes: equal ones have equal content, because extents are never changed in place.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use roost_sys::btrfs;

/// A hash of all that the filesystem keeps of each inode of a subvolume: attributes and where its content lies.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(HashMap<u64, blake3::Hash>);

impl Fingerprints {
    /// Reads those of the subvolume that a folder is in.
    ///
    /// Also of a file that is overwritten in place (`chattr +C`) the first write after a snapshot goes elsewhere, so two
    /// snapshots that point to the same extents hold the same bytes.
    pub(super) fn read(folder: &File) -> io::Result<Self> {
        let mut found = HashMap::new();
        let mut current: Option<(u64, blake3::Hasher)> = None;
        btrfs::for_each_item(folder, |item| {
            // They come by inode, so one hasher is open at a time.
            if current.as_ref().is_none_or(|(inode, _)| *inode != item.inode) {
                let done = current.replace((item.inode, blake3::Hasher::new()));
                found.extend(done.map(|(inode, hasher)| (inode, hasher.finalize())));
            }
            if let Some((_, hasher)) = &mut current {
                hasher.update(&[item.kind as u8]);
                hasher.update(&item.offset.to_le_bytes());
                hasher.update(&(item.data.len() as u64).to_le_bytes());
                hasher.update(item.data);
            }
        })?;
        found.extend(current.map(|(inode, hasher)| (inode, hasher.finalize())));
        Ok(Self(found))
    }

    pub(super) fn get(&self, inode: u64) -> Option<&blake3::Hash> {
        self.0.get(&inode)
    }
}
