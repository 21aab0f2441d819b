//! Whether two entries of the same path are alike to whoever looks at them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{FileType, Mode, OFlags, fgetxattr, flistxattr, openat, readlinkat};

use super::view::{Entry, View};

const BLOCK: usize = 64 * 1024;
const OVERLAY: &[u8] = b"trusted.overlay.";

/// Whether kind, mode, owner, extended attributes and content are the same; of folders, what is in them does not count.
pub(super) fn same_content(from: &View, before: &Entry, to: &View, after: &Entry) -> io::Result<bool> {
    if is_untouched(from, before, to, after) {
        return Ok(true);
    }
    let outside = |entry: &Entry| (entry.stat.st_mode, entry.stat.st_uid, entry.stat.st_gid, entry.size());
    if outside(before) != outside(after) {
        return Ok(false);
    }
    Ok(match before.kind() {
        FileType::RegularFile => {
            let (before, after) = (open(before)?, open(after)?);
            xattrs(&before)? == xattrs(&after)? && same_bytes(before, after)?
        }
        FileType::Directory => xattrs(&open(before)?)? == xattrs(&open(after)?)?,
        FileType::Symlink => {
            let target = |entry: &Entry| readlinkat(entry.parent.as_ref(), &entry.name, Vec::new());
            target(before)? == target(after)?
        }
        FileType::CharacterDevice | FileType::BlockDevice => before.stat.st_rdev == after.stat.st_rdev,
        _ => true,
    })
}

/// Whether both are one inode that nobody wrote to since the two disks parted.
fn is_untouched(from: &View, before: &Entry, to: &View, after: &Entry) -> bool {
    if before.is_lower() || after.is_lower() || before.inode() != after.inode() {
        return false;
    }
    let fingerprint = from.fingerprints.get(before.inode());
    fingerprint.is_some() && fingerprint == to.fingerprints.get(after.inode())
}

/// Opens a plain file or a folder; anything else could block or do things when opened.
fn open(entry: &Entry) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat(entry.parent.as_ref(), &entry.name, flags, Mode::empty())?.into())
}

fn same_bytes(mut one: File, mut two: File) -> io::Result<bool> {
    let (mut first, mut second) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let count = fill(&mut one, &mut first)?;
        if count != fill(&mut two, &mut second)? || first[..count] != second[..count] {
            return Ok(false);
        }
        if count < BLOCK {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(count)
}

/// The extended attributes, without those that overlayfs keeps its own books in.
fn xattrs(file: &File) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The most that a list or a value can be.
    let mut buffer = vec![0_u8; 64 * 1024];
    let length = match flistxattr(file, &mut buffer[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e.into()),
    };
    let names: Vec<Vec<u8>> = buffer[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
    let mut found = BTreeMap::new();
    for name in names.into_iter().filter(|name| !name.is_empty() && !name.starts_with(OVERLAY)) {
        let length = fgetxattr(file, name.as_slice(), &mut buffer[..])?;
        found.insert(name, buffer[..length].to_vec());
    }
    Ok(found)
}
