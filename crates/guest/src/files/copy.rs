//! Moving what a rename cannot move.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use roost_sys::tree::{self, At, Descent, Visitor};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid, chownat, mkdirat, mknodat, open, openat, readlinkat,
    renameat_with, statat, symlinkat,
};

use super::attributes;
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
        tree::remove(&copy).ok();
        return Err(error);
    }
    tree::remove(from)
}

/// Copies a file, a link, a pipe, or a folder with everything in it.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(from)?;
    if !metadata.is_dir() {
        let (from_folder, from_name) = parted(from)?;
        let (to_folder, to_name) = parted(to)?;
        let kind = FileType::from_raw_mode(metadata.mode());
        let source = Entry { folder: from_folder.as_fd(), name: from_name, kind };
        return source.copy(to_folder.as_fd(), to_name);
    }
    fs::create_dir(to)?;
    let open = |path| open(path, FOLDER, Mode::empty());
    tree::walk(open(from)?, &mut Copying { to: Descent::new(open(to)?)? })
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// The open folder of a path, and the name in it.
fn parted(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?, name))
}

/// Copies every entry that the walk visits. Both sides are open folders, so neither the depth of a tree nor the length of its paths matters.
struct Copying {
    /// The copy of the folder that the walk is in.
    to: Descent,
}

impl Visitor for Copying {
    type Error = io::Error;

    fn entry(&mut self, at: &At<'_>) -> io::Result<bool> {
        if at.kind == FileType::Directory {
            mkdirat(self.to.folder(), at.name, Mode::RWXU)?;
            return Ok(true);
        }
        Entry { folder: at.folder, name: at.name, kind: at.kind }.copy(self.to.folder(), at.name)?;
        Ok(false)
    }

    fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        self.to.enter(name)
    }

    fn leave(&mut self, folder: BorrowedFd<'_>, _path: &Path) -> io::Result<()> {
        // Last, because filling a folder changes its times.
        adopt(&File::from(folder.try_clone_to_owned()?), &File::from(self.to.folder().try_clone_to_owned()?))
    }

    fn left(&mut self, _at: &At<'_>) -> io::Result<()> {
        self.to.leave()
    }

    fn fault(&mut self, _path: &Path, error: io::Error) -> io::Error {
        error
    }
}

/// A file, link or pipe to copy.
struct Entry<'a> {
    folder: BorrowedFd<'a>,
    name: &'a OsStr,
    kind: FileType,
}

impl Entry<'_> {
    fn copy(&self, to: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        match self.kind {
            FileType::RegularFile => {
                // Not blocking, should it have become a pipe since it was looked at.
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let mut from = File::from(openat(self.folder, self.name, flags, Mode::empty())?);
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let mut copy = File::from(openat(to, name, flags, Mode::RUSR | Mode::WUSR)?);
                io::copy(&mut from, &mut copy)?;
                return adopt(&from, &copy);
            }
            FileType::Symlink => symlinkat(readlinkat(self.folder, self.name, Vec::new())?, to, name)?,
            FileType::Fifo => mknodat(to, name, FileType::Fifo, Mode::empty(), 0)?,
            // A socket or device is of no use as a copy.
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
        let original = statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (user, group) = (Uid::from_raw(original.st_uid), Gid::from_raw(original.st_gid));
        Ok(chownat(to, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Gives a copy the owner, the attributes, the permissions and the times of its original.
fn adopt(from: &File, copy: &File) -> io::Result<()> {
    let original = from.metadata()?;
    fchown(copy, Some(original.uid()), Some(original.gid()))?;
    attributes::copy(from, copy)?;
    copy.set_permissions(Permissions::from_mode(original.mode() & 0o7777))?;
    copy.set_modified(original.modified()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    use std::os::unix::fs::symlink;

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
    fn deep_tree_moves_with_the_stack_of_a_guest_thread() {
        const LEVELS: usize = 6000;
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        fs::create_dir(&from).unwrap();
        let mut folder = open(&from, FOLDER, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", FOLDER, Mode::empty()).unwrap();
        }
        openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        let moved = (from.clone(), to.clone());
        let work = move || move_by_copy(&moved.0, &moved.1, RenameFlags::NOREPLACE);
        std::thread::Builder::new().stack_size(64 * 1024).spawn(work).unwrap().join().unwrap().unwrap();
        assert!(!from.exists());
        let mut copy = Descent::new(open(&to, FOLDER, Mode::empty()).unwrap()).unwrap();
        (0..LEVELS).for_each(|_| copy.enter(OsStr::new("d")).unwrap());
        assert!(statat(copy.folder(), "file", AtFlags::empty()).is_ok());
        tree::remove(&to).unwrap();
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
