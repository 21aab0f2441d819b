//! The mount table of this thread, from `/proc/thread-self/mountinfo`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::MountError;

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number, as `statx` shows it.
    pub id: u64,
    /// The number of the mount it hangs on.
    pub parent: u64,
    /// Major and minor number of the filesystem.
    pub device: (u32, u32),
    /// The folder of the filesystem that is this mount's root.
    pub root: PathBuf,
    /// Where it is attached.
    pub target: PathBuf,
    /// The mount's own options, such as `rw,noatime`.
    pub options: String,
    /// The filesystem type.
    pub kind: String,
    /// What was mounted: a device, a file or a word.
    pub source: PathBuf,
    /// The superblock's options.
    pub super_options: String,
}

/// Reads this process's mount table.
pub fn mount_table() -> Result<Vec<MountEntry>, MountError> {
    let path = "/proc/thread-self/mountinfo";
    let attempt = || format!("read `{path}`");
    let bytes = std::fs::read(path).map_err(|e| MountError::new(attempt(), e))?;
    bytes
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_entry(line).ok_or_else(|| {
                let text = String::from_utf8_lossy(line).into_owned();
                MountError::new(attempt(), io::Error::new(io::ErrorKind::InvalidData, text))
            })
        })
        .collect()
}

/// The topmost mount attached exactly at `target`, which must be absolute and free of symlinks.
pub fn find_mount(target: impl AsRef<Path>) -> Result<Option<MountEntry>, MountError> {
    let target = target.as_ref();
    Ok(mount_table()?.into_iter().rfind(|entry| entry.target == target))
}

/// All mounts attached at `folder` or below it, the deepest last.
pub fn mounts_below(folder: impl AsRef<Path>) -> Result<Vec<MountEntry>, MountError> {
    let folder = folder.as_ref();
    let below = |entry: &MountEntry| entry.target.starts_with(folder);
    Ok(mount_table()?.into_iter().filter(below).collect())
}

fn parse_entry(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|b| *b == b' ');
    let text = |field: &[u8]| String::from_utf8(unescape(field)).ok();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let id = text(fields.next()?)?.parse().ok()?;
    let parent = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.next()?)?;
    let (major, minor) = device.split_once(':')?;
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let options = text(fields.next()?)?;
    // A varying number of optional fields (shared:1 master:2) ends with a lone dash.
    fields.by_ref().find(|field| *field == b"-")?;
    Some(MountEntry {
        id,
        parent,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root,
        target,
        options,
        kind: text(fields.next()?)?,
        source: path(fields.next()?),
        super_options: text(fields.next()?)?,
    })
}

/// Undoes the kernel's octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\').then(|| tail.get(..3)).flatten();
        let value = octal.and_then(|digits| {
            digits.iter().try_fold(0_u32, |sum, d| matches!(d, b'0'..=b'7').then(|| sum * 8 + u32::from(d - b'0')))
        });
        match value.and_then(|v| u8::try_from(v).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &tail[3..];
            }
            None => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_optional_fields_and_escapes() {
        let line =
            br"36 35 98:0 /mnt1 /mnt\040two rw,noatime shared:1 master:2 - ext3 /dev/ro\134ot rw,errors=continue";
        let entry = parse_entry(line).expect("line parses");
        assert_eq!(entry.target, Path::new("/mnt two"));
        assert_eq!(entry.source, Path::new(r"/dev/ro\ot"));
        assert_eq!(entry.device, (98, 0));
        assert_eq!(entry.super_options, "rw,errors=continue");
    }

    #[test]
    fn own_table_has_proc() {
        let entry = find_mount("/proc").expect("table").expect("proc is mounted");
        assert_eq!(entry.kind, "proc");
    }
}
