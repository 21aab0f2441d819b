//! A folder tree that nothing leads out of.
//!
//! Every path is resolved by the kernel with the tree's top as root (`openat2`, `RESOLVE_IN_ROOT`): symlinks and `..`
//! stay inside, whatever an archive says. The last component is never followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use roost_sys::tree;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown,
    fsetxattr, futimens, mkdirat, openat, openat2, statat, utimensat,
};
use rustix::io::Errno;

/// How often a resolution is tried again when the tree changed under it.
const RESOLVE_ATTEMPTS: u32 = 16;
/// Owners at and above this are outside every sandbox's user namespace.
pub(super) const OWNERS: u32 = 65536;

/// Owner, mode, times and extended attributes of a file to be made.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) seconds: i64,
    pub(super) nanoseconds: i64,
    pub(super) xattrs: Vec<(OsString, Vec<u8>)>,
}

impl Attributes {
    fn times(&self) -> Timestamps {
        let time = Timespec { tv_sec: self.seconds, tv_nsec: self.nanoseconds };
        Timestamps { last_access: time, last_modification: time }
    }

    /// Gives an open file its attributes: the owner first, because changing it clears setuid bits and capabilities.
    pub(super) fn apply(&self, file: impl AsFd) -> io::Result<()> {
        let file = file.as_fd();
        fchown(file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        fchmod(file, Mode::from_raw_mode(self.mode & 0o7777))?;
        for (name, value) in &self.xattrs {
            fsetxattr(file, name.as_os_str(), value, XattrFlags::empty())?;
        }
        futimens(file, &self.times())?;
        Ok(())
    }

    /// Gives a symlink its owner and times; it has no mode.
    pub(super) fn apply_to_link(&self, place: &Place) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        chownat(&place.parent, &place.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        utimensat(&place.parent, &place.name, &self.times(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }
}

/// Whether an extended attribute is content of a template.
///
/// The rest belongs to the filesystem that a file came from; overlayfs marks in particular would be obeyed.
pub(super) fn keeps_xattr(name: &[u8]) -> bool {
    name == b"security.capability" || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
}

/// One name in one folder of the tree.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) parent: OwnedFd,
    pub(super) name: OsString,
}

impl Place {
    /// What is there, without following a symlink.
    pub(super) fn kind(&self) -> io::Result<Option<FileType>> {
        match statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether both name the same file.
    pub(super) fn is_same(&self, other: &Self) -> io::Result<bool> {
        let here = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        match statat(&other.parent, &other.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Removes what is there: a file, a symlink, a folder with all its content.
    pub(super) fn clear(&self) -> io::Result<()> {
        match tree::remove_at(&self.parent, &self.name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Makes a new file there, which must be free.
    pub(super) fn create_file(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.parent, &self.name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a folder there, in the place of anything else than a folder.
    pub(super) fn create_folder(&self, mode: u32) -> io::Result<OwnedFd> {
        if self.kind()? != Some(FileType::Directory) {
            self.clear()?;
            mkdirat(&self.parent, &self.name, Mode::RWXU)?;
        }
        let folder = self.open_folder()?;
        fchmod(&folder, Mode::from_raw_mode(mode))?;
        Ok(folder)
    }

    /// Opens the folder that is there.
    pub(super) fn open_folder(&self) -> io::Result<OwnedFd> {
        open_folder(&self.parent, &self.name)
    }
}

/// Opens a folder by one name in another, never through a symlink.
fn open_folder(parent: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

/// The tree, by its top folder.
#[derive(Debug)]
pub(super) struct Tree {
    top: OwnedFd,
}

impl Tree {
    /// Takes the folder at `path` as the top.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { top: File::open(path)?.into() })
    }

    /// The top folder.
    pub(super) fn top(&self) -> &OwnedFd {
        &self.top
    }

    /// Finds the place that `path` names, or `None` for the top itself; missing parents are made if asked.
    ///
    /// Absolute paths count from the top, and so does every `..` beyond it.
    pub(super) fn place(&self, path: &Path, make_parents: bool) -> io::Result<Option<Place>> {
        let inside: PathBuf =
            path.components().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir)).collect();
        let Some(last) = inside.components().next_back() else {
            return Ok(None);
        };
        let Component::Normal(name) = last else {
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, "the path ends in `..`"));
        };
        let parent = inside.parent().unwrap_or(Path::new(""));
        let parent = if make_parents { self.make_folders(parent)? } else { self.folder(parent)? };
        Ok(Some(Place { parent, name: name.to_owned() }))
    }

    /// Opens a folder of the tree, following symlinks inside it.
    pub(super) fn folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut result = Err(Errno::AGAIN);
        for _ in 0..RESOLVE_ATTEMPTS {
            result = openat2(&self.top, path, flags, Mode::empty(), resolve);
            if !matches!(result, Err(Errno::AGAIN)) {
                break;
            }
        }
        Ok(result?)
    }

    /// Opens a file of the tree to read, following symlinks inside it.
    pub(super) fn open_file(&self, path: &Path) -> io::Result<File> {
        // A fifo in the way must not be waited for.
        let file: File = self.resolve(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK)?.into();
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
    }

    /// Opens a folder of the tree after making the missing folders on the way to it.
    fn make_folders(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.folder(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        // A folder is found only where all above it are. A stranger chose the path, and each search takes as long as it has parts.
        let mut ways: Vec<&Path> = path.ancestors().collect();
        ways.reverse();
        let there = ways.partition_point(|way| self.folder(way).is_ok());
        let mut folder = self.folder(ways.get(there.saturating_sub(1)).copied().unwrap_or(Path::new("")))?;
        for way in ways.iter().skip(there) {
            folder = match way.components().next_back() {
                Some(Component::Normal(name)) => match mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) => open_folder(&folder, name)?,
                    Err(Errno::EXIST) => self.folder(way)?,
                    Err(e) => return Err(e.into()),
                },
                _ => self.folder(way)?,
            };
        }
        Ok(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, Tree) {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir(outer.path().join("top")).unwrap();
        let tree = Tree::open(&outer.path().join("top")).unwrap();
        (outer, tree)
    }

    fn write(tree: &Tree, path: &str) -> io::Result<()> {
        let place = tree.place(Path::new(path), true)?.ok_or(io::ErrorKind::InvalidFilename)?;
        place.clear()?;
        place.create_file().map(drop)
    }

    #[test]
    fn paths_stay_inside() {
        let (outer, tree) = tree();
        let top = outer.path().join("top");
        symlink("/", top.join("slash")).unwrap();
        symlink("../../..", top.join("up")).unwrap();
        for path in ["../../a", "/b", "slash/c", "up/d", "./x/../e", "up/../slash/up/f", "new/deep/g"] {
            write(&tree, path).unwrap();
        }
        for name in ["a", "b", "c", "d", "e", "f", "new/deep/g"] {
            assert!(top.join(name).is_file(), "{name}");
        }
        let outside: Vec<_> = std::fs::read_dir(outer.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(outside, ["top"]);
    }

    #[test]
    fn the_last_component_is_replaced_not_followed() {
        let (outer, tree) = tree();
        std::fs::write(outer.path().join("secret"), "kept").unwrap();
        symlink(outer.path().join("secret"), outer.path().join("top/link")).unwrap();
        write(&tree, "link").unwrap();
        assert_eq!(std::fs::read(outer.path().join("secret")).unwrap(), b"kept");
        assert!(outer.path().join("top/link").symlink_metadata().unwrap().is_file());
        assert!(write(&tree, "a/..").is_err());
        assert!(tree.place(Path::new("/"), true).unwrap().is_none());
    }
}
