//! How much room disks take that share extents with each other.
//!
//! Simple quotas charge whoever wrote first, which says nothing of what a deletion gives back. So the extents are
//! counted: an extent is exclusive to the only disk, of those asked about, that refers to it.

use std::collections::HashMap;
use std::fs::File;
use std::io;

use roost_sys::btrfs::{self, Item, ItemKind};

use super::Pool;
use super::disks::DiskError;

/// A disk to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOf<'a> {
    /// That of a sandbox.
    Sandbox(&'a str),
    /// That of a checkpoint.
    Checkpoint(&'a str),
}

/// A checkpoint that may hold content which the disk of its sandbox does not hold any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retaining<'a> {
    /// Its id.
    pub id: &'a str,
    /// Whether it is kept when room is short.
    pub stays: bool,
}

/// The room that the content of a disk takes, compressed as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSizes {
    /// What none of the other disks that were asked about holds: what a deletion gives back.
    pub exclusive: u64,
    /// All of it.
    pub referenced: u64,
}

/// What tells extents apart: the place on disk; of content within the tree, its inode and transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Extent {
    OnDisk { at: u64 },
    InTree { inode: u64, generation: u64 },
}

impl Pool {
    /// The sizes of disks that may share content, in the order they were given.
    ///
    /// It reads a tree of metadata per disk: milliseconds for thousands of files.
    pub fn sizes(&self, disks: &[DiskOf<'_>]) -> Result<Vec<DiskSizes>, DiskError> {
        let mut sizes = vec![DiskSizes::default(); disks.len()];
        // The bytes of an extent and who has it; nobody if several have.
        let mut extents: HashMap<Extent, (u64, Option<usize>)> = HashMap::new();
        for (index, disk) in disks.iter().enumerate() {
            let (id, open) = match *disk {
                DiskOf::Sandbox(id) => (id, self.open_disk(id)?),
                DiskOf::Checkpoint(id) => (id, self.open_checkpoint_disk(id)?),
            };
            let found = extents_of(&open).map_err(DiskError::failed("measure", id))?;
            sizes[index].referenced = found.values().sum();
            for (extent, bytes) in found {
                extents.entry(extent).and_modify(|(_, owner)| *owner = None).or_insert((bytes, Some(index)));
            }
        }
        for (bytes, owner) in extents.into_values() {
            if let Some(index) = owner {
                sizes[index].exclusive += bytes;
            }
        }
        Ok(sizes)
    }
}

impl Pool {
    /// What checkpoints of a sandbox hold that its disk does not hold any more, in the order they were given.
    ///
    /// What several checkpoints hold counts for one of them alone: for the last of those that stay, or for the last of all
    /// if none stays. So checkpoints that do not stay can be removed from the first to the last, and each removal gives back
    /// what counted for that one.
    pub fn retained(&self, sandbox: &str, checkpoints: &[Retaining<'_>]) -> Result<Vec<u64>, DiskError> {
        let mut retained = vec![0; checkpoints.len()];
        let present = self.open_disk(sandbox)?;
        let present = extents_of(&present).map_err(DiskError::failed("measure", sandbox))?;
        let mut extents: HashMap<Extent, (u64, usize)> = HashMap::new();
        for (index, Retaining { id, .. }) in checkpoints.iter().enumerate() {
            let disk = self.open_checkpoint_disk(id)?;
            let found = extents_of(&disk).map_err(DiskError::failed("measure", id))?;
            for (extent, bytes) in found.into_iter().filter(|(extent, _)| !present.contains_key(extent)) {
                let (_, owner) = extents.entry(extent).or_insert((bytes, index));
                if checkpoints[index].stays || !checkpoints[*owner].stays {
                    *owner = index;
                }
            }
        }
        for (bytes, owner) in extents.into_values() {
            retained[owner] += bytes;
        }
        Ok(retained)
    }
}

fn extents_of(disk: &File) -> io::Result<HashMap<Extent, u64>> {
    let mut extents = HashMap::new();
    btrfs::for_each_item(disk, |item| extents.extend(extent(&item)))?;
    Ok(extents)
}

/// Reads a `struct btrfs_file_extent_item`; a hole is none.
fn extent(item: &Item<'_>) -> Option<(Extent, u64)> {
    const HEAD: usize = 21;
    const INLINE: u8 = 0;
    if item.kind != ItemKind::Extent {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(item.data.get(at..at + 8)?.try_into().ok()?));
    if *item.data.get(20)? == INLINE {
        let extent = Extent::InTree { inode: item.inode, generation: word(0)? };
        return Some((extent, (item.data.len() - HEAD) as u64));
    }
    let (at, bytes) = (word(HEAD)?, word(HEAD + 8)?);
    (at != 0).then_some((Extent::OnDisk { at }, bytes))
}
