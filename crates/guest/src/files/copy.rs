//! Moving what a rename cannot move.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::attributes;
use super::list::sorted_names;
use super::write::beside;

/// Copies `from` beside `to`, puts the copy in its place and removes the original. Until then nothing is changed.
pub(super) fn move_by_copy(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    if to.starts_with(from) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let copy = beside(to);
    let placed =
        copy_tree(from, &copy).and_then(|()| renameat_with(CWD, &copy, CWD, to, flags).map_err(io::Error::from));
    if let Err(error) = placed {
        remove(&copy).ok();
        return Err(error);
    }
    remove(from)
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders: Vec<(PathBuf, PathBuf, Metadata)> = Vec::new();
    let mut pending = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = pending.pop() {
        let metadata = fs::symlink_metadata(&from)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            fs::create_dir(&to)?;
            for name in sorted_names(&from)? {
                pending.push((from.join(&name), to.join(&name)));
            }
            folders.push((from, to, metadata));
            continue;
        }
        if kind.is_file() {
            fs::copy(&from, &to)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else if kind.is_fifo() {
            mknodat(CWD, &to, FileType::Fifo, Mode::empty(), 0)?;
        } else {
            // A socket or device is of no use as a copy.
            return Err(io::ErrorKind::Unsupported.into());
        }
        adopt(&from, &to, &metadata)?;
    }
    // Last, because filling a folder changes its times.
    folders.iter().rev().try_for_each(|(from, to, metadata)| adopt(from, to, metadata))
}

/// Gives a copy the owner, the attributes, the permissions and the times of its original.
fn adopt(from: &Path, copy: &Path, original: &Metadata) -> io::Result<()> {
    lchown(copy, Some(original.uid()), Some(original.gid()))?;
    if original.is_symlink() || original.file_type().is_fifo() {
        return Ok(());
    }
    let copied = File::open(copy)?;
    attributes::copy(from, &copied)?;
    fs::set_permissions(copy, Permissions::from_mode(original.mode() & 0o7777))?;
    copied.set_modified(original.modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, getxattr, setxattr};

    #[test]
    fn a_tree_moves_with_everything() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/file"), "text").unwrap();
        fs::set_permissions(from.join("a/b/file"), Permissions::from_mode(0o4751)).unwrap();
        symlink("b/file", from.join("a/link")).unwrap();
        let noted = ["a", "a/b/file"];
        for name in noted {
            setxattr(from.join(name), "user.note", &[0xff, 1], XattrFlags::empty()).unwrap();
        }
        move_by_copy(&from, &to, RenameFlags::NOREPLACE).unwrap();
        assert!(!from.exists());
        assert_eq!(fs::read(to.join("a/link")).unwrap(), b"text");
        assert_eq!(fs::metadata(to.join("a/b/file")).unwrap().mode() & 0o7777, 0o4751);
        for name in noted {
            let mut value = [0; 2];
            assert_eq!(getxattr(to.join(name), "user.note", &mut value[..]).unwrap(), 2);
            assert_eq!(value, [0xff, 1]);
        }
    }

    #[test]
    fn nothing_is_replaced_unless_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        assert!(move_by_copy(&from, &to, RenameFlags::NOREPLACE).is_err());
        assert_eq!(fs::read(&to).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        move_by_copy(&from, &to, RenameFlags::empty()).unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
