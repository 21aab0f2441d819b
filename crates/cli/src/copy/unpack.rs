//! A tar stream from a sandbox, unpacked here.
//!
//! Whatever root inside a sandbox can put into an archive, nothing may be written outside the destination: no entry is
//! reached through a symbolic link (`openat2` refuses it), `..` and absolute names are refused, what exists is unlinked and
//! never written through, devices are left out, and no set-user-id bit reaches this side.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

/// Permission bits that are taken over.
const MODE: u32 = 0o777;

/// Why an archive was not unpacked to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    #[error("failed to open `{}`", path.display())]
    Root { path: PathBuf, source: io::Error },
    #[error("failed to read the archive")]
    Archive(#[source] io::Error),
    #[error("the archive names `{}`, which leads out of the destination", path.display())]
    Escapes { path: PathBuf },
    #[error("failed to write `{}`: it is reached through a symbolic link", path.display())]
    ThroughLink { path: PathBuf },
    #[error("failed to write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// What came of an archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Entries that were made.
    pub(crate) entries: u64,
    /// Entries that cannot be made here: devices, pipes and sockets.
    pub(crate) left_out: Vec<PathBuf>,
}

/// Unpacks an archive into a folder that exists.
pub(crate) fn unpack(archive: impl Read, root: &Path) -> Result<Unpacked, UnpackError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = fs::open(root, flags, Mode::empty())
        .map_err(|error| UnpackError::Root { path: root.to_owned(), source: error.into() })?;
    let mut unpacker = Unpacker { root: fd, folders: Vec::new(), done: Unpacked::default() };
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(UnpackError::Archive)? {
        unpacker.take(entry.map_err(UnpackError::Archive)?)?;
    }
    unpacker.finish()
}

struct Unpacker {
    root: OwnedFd,
    /// Folders get their modes last: a read-only one must first be filled.
    folders: Vec<(PathBuf, u32)>,
    done: Unpacked,
}

impl Unpacker {
    fn take(&mut self, mut entry: Entry<'_, impl Read>) -> Result<(), UnpackError> {
        let path = inside(&entry.path().map_err(UnpackError::Archive)?)?;
        let mode = entry.header().mode().map_err(UnpackError::Archive)? & MODE;
        let Some(name) = path.file_name().map(OsStr::to_owned) else { return Ok(()) };
        match entry.header().entry_type() {
            EntryType::Directory => {
                self.folder(&path)?;
                self.folders.push((path, mode));
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let folder = self.parent(&path)?;
                self.file(&folder, &name, &mut entry, mode).map_err(|error| writing(&path, error))?;
            }
            EntryType::Symlink => {
                let target = link_target(&entry)?;
                let folder = self.parent(&path)?;
                vacate(&folder, &name)
                    .and_then(|()| Ok(fs::symlinkat(&target, &folder, &name)?))
                    .map_err(|error| writing(&path, error))?;
            }
            EntryType::Link => {
                let target = inside(&link_target(&entry)?)?;
                let Some(target_name) = target.file_name() else {
                    return Err(UnpackError::Escapes { path: target });
                };
                let (from, to) = (self.parent(&target)?, self.parent(&path)?);
                vacate(&to, &name)
                    .and_then(|()| Ok(fs::linkat(&from, target_name, &to, &name, AtFlags::empty())?))
                    .map_err(|error| writing(&path, error))?;
            }
            _ => {
                self.done.left_out.push(path);
                return Ok(());
            }
        }
        self.done.entries += 1;
        Ok(())
    }

    fn file(&self, folder: &OwnedFd, name: &OsString, entry: &mut Entry<'_, impl Read>, mode: u32) -> io::Result<()> {
        vacate(folder, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
        io::copy(entry, &mut file)?;
        fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        if let Some(seconds) = entry.header().mtime().ok().and_then(|time| i64::try_from(time).ok()) {
            let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let last_modification = Timespec { tv_sec: seconds, tv_nsec: 0 };
            fs::futimens(&file, &Timestamps { last_access, last_modification })?;
        }
        Ok(())
    }

    /// The folder that an entry goes into, made if missing.
    fn parent(&self, path: &Path) -> Result<OwnedFd, UnpackError> {
        self.folder(path.parent().unwrap_or(Path::new("")))
    }

    /// Opens a folder below the root, and makes what is missing of it.
    fn folder(&self, path: &Path) -> Result<OwnedFd, UnpackError> {
        if let Ok(found) = self.open(path) {
            return Ok(found);
        }
        let mut so_far = PathBuf::new();
        let mut folder = self.open(&so_far).map_err(|error| writing(path, error.into()))?;
        for part in path.components() {
            match fs::mkdirat(&folder, part.as_os_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(writing(path, error.into())),
            }
            so_far.push(part);
            folder = self.open(&so_far).map_err(|error| match error {
                Errno::LOOP => UnpackError::ThroughLink { path: path.to_owned() },
                error => writing(path, error.into()),
            })?;
        }
        Ok(folder)
    }

    fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn finish(self) -> Result<Unpacked, UnpackError> {
        for (path, mode) in self.folders.iter().rev() {
            // A later entry may have put something else in its place, which has its own mode.
            if let Ok(folder) = self.open(path) {
                fs::fchmod(folder.as_fd(), Mode::from_raw_mode(*mode)).map_err(|error| writing(path, error.into()))?;
            }
        }
        Ok(self.done)
    }
}

/// The parts of an entry's name, if they stay inside.
fn inside(path: &Path) -> Result<PathBuf, UnpackError> {
    let mut kept = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => kept.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(UnpackError::Escapes { path: path.to_owned() });
            }
        }
    }
    Ok(kept)
}

fn link_target(entry: &Entry<'_, impl Read>) -> Result<PathBuf, UnpackError> {
    let target = entry.link_name().map_err(UnpackError::Archive)?;
    let missing = || UnpackError::Archive(io::Error::new(io::ErrorKind::InvalidData, "a link without a target"));
    Ok(target.ok_or_else(missing)?.into_owned())
}

/// Removes what is at a name, so that nothing is written through it.
fn vacate(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn writing(path: &Path, source: io::Error) -> UnpackError {
    UnpackError::Write { path: path.to_owned(), source }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
