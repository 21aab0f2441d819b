//! Extended attributes of the namespace `user`: what people and programs note about a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use roost_wire::SetAttributes;
use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;

const NAMESPACE: &str = "user.";
/// Room for the names of nearly every file; the kernel keeps no more than [`ALL_NAMES`].
const FEW_NAMES: usize = 1024;
const ALL_NAMES: usize = 64 * 1024;
/// Most bytes of names and values that are told of one file, so that many files fit a frame.
const MOST_BYTES: usize = 16 * 1024;

/// The attributes of what a path leads to. None where the filesystem has none, or where they cannot be read.
pub(super) fn attributes(path: &Path) -> BTreeMap<String, String> {
    let names = names(|buffer| listxattr(path, buffer)).unwrap_or_default();
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    for name in names {
        let mut value = vec![0; MOST_BYTES];
        let length = match getxattr(path, name.as_str(), value.as_mut_slice()) {
            Ok(length) => length,
            Err(Errno::RANGE) => return BTreeMap::new(),
            // Removed meanwhile.
            Err(_) => continue,
        };
        bytes += name.len() + length;
        if bytes > MOST_BYTES {
            return BTreeMap::new();
        }
        value.truncate(length);
        if let (Some(name), Ok(value)) = (name.strip_prefix(NAMESPACE), String::from_utf8(value)) {
            found.insert(name.to_owned(), value);
        }
    }
    found
}

/// Makes the attributes with the prefix exactly those that are wanted.
///
/// Nothing is touched that is right already. A filesystem without attributes is fine unless some are wanted.
pub(super) fn set(file: &File, wanted: &SetAttributes) -> io::Result<()> {
    let prefix = format!("{NAMESPACE}{}", wanted.prefix);
    let present = match names(|buffer| flistxattr(file, buffer)) {
        Err(Errno::NOTSUP | Errno::NOSYS) if wanted.values.is_empty() => return Ok(()),
        present => present?,
    };
    for name in present {
        if name.strip_prefix(&prefix).is_some_and(|rest| !wanted.values.contains_key(rest)) {
            match fremovexattr(file, name.as_str()) {
                Err(Errno::NODATA) => {}
                removed => removed?,
            }
        }
    }
    for (name, value) in &wanted.values {
        let name = format!("{prefix}{name}");
        let mut current = vec![0; value.len()];
        let same = fgetxattr(file, name.as_str(), current.as_mut_slice()).is_ok_and(|length| length == value.len());
        if !same || current != value.as_bytes() {
            fsetxattr(file, name.as_str(), value.as_bytes(), XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Gives a copy all attributes of its original, text or not.
pub(super) fn copy(from: &File, to: &File) -> io::Result<()> {
    let names = match names(|buffer| flistxattr(from, buffer)) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
        names => names?,
    };
    for name in names {
        // As large as the kernel allows at all.
        let mut value = vec![0; ALL_NAMES];
        let length = fgetxattr(from, name.as_str(), value.as_mut_slice())?;
        fsetxattr(to, name.as_str(), value.get(..length).unwrap_or_default(), XattrFlags::empty())?;
    }
    Ok(())
}

/// Names of the namespace that are text.
fn names(list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<String>> {
    let mut buffer = vec![0; FEW_NAMES];
    let length = match list(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(ALL_NAMES, 0);
            list(&mut buffer)?
        }
        listed => listed?,
    };
    let names = buffer.get(..length).unwrap_or_default().split(|byte| *byte == 0);
    let ours = names.filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| name.starts_with(NAMESPACE));
    Ok(ours.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(values: &[(&str, &str)]) -> SetAttributes {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        SetAttributes { prefix: "mine.".to_owned(), values }
    }

    #[test]
    fn attributes_become_what_is_wanted_and_others_stay() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        assert!(attributes(&path).is_empty());
        fsetxattr(&file, "user.other", b"stays", XattrFlags::empty()).unwrap();
        fsetxattr(&file, "user.binary", &[0xff, 0xfe], XattrFlags::empty()).unwrap();
        set(&file, &wanted(&[("a", "1"), ("b", "two")])).unwrap();
        set(&file, &wanted(&[("b", "three"), ("c", "")])).unwrap();
        let expected = [("mine.b", "three"), ("mine.c", ""), ("other", "stays")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(attributes(&path), BTreeMap::from(expected));
        set(&file, &SetAttributes { prefix: "mine.".to_owned(), ..SetAttributes::default() }).unwrap();
        assert_eq!(attributes(&path).len(), 1);
    }

    #[test]
    fn no_more_is_told_than_fits() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        let large = vec![b'x'; MOST_BYTES];
        // Not every kernel lets its memory filesystem have such attributes.
        if fsetxattr(&file, "user.large", &large, XattrFlags::empty()).is_ok() {
            assert!(attributes(&path).is_empty());
        }
    }

    #[test]
    fn a_filesystem_without_attributes_is_fine_unless_some_are_wanted() {
        let file = File::open("/proc/self/comm").unwrap();
        set(&file, &SetAttributes::default()).unwrap();
        assert!(attributes(Path::new("/proc/self/comm")).is_empty());
        assert!(set(&file, &wanted(&[("a", "1")])).is_err());
    }
}
