//! Copying a folder into a tree, descriptor by descriptor: no symlink is followed on either side.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, copy_file_range, fgetxattr, flistxattr, ftruncate, ioctl_ficlone,
    linkat, mknodat, openat, readlinkat, seek, statat, symlinkat,
};
use rustix::io::Errno;

use super::import::{ImportError, Meter};
use super::tree::{self, Attributes, OWNERS, Place, Tree};

/// Data moved by one call, so that the free space is looked at now and then.
const CHUNK: usize = 8 << 20;
/// The kernel's limit for the names of a file's attributes together, and for one value.
const XATTR_MAX: usize = 64 * 1024;

/// Copies everything in `source`, except what is mounted there and the folder `leave_out`.
pub(super) fn copy(source: &Path, leave_out: &Path, tree: &Tree, meter: &mut Meter<'_>) -> Result<(), ImportError> {
    let opened = |source_error| ImportError::Folder { path: source.to_owned(), source: source_error };
    let folder = File::open(source).map_err(opened)?;
    let metadata = folder.metadata().map_err(opened)?;
    if !metadata.is_dir() {
        return Err(opened(io::ErrorKind::NotADirectory.into()));
    }
    let leave_out = leave_out.metadata().map_err(opened)?;
    let mut copying = Copying {
        meter,
        device: metadata.dev(),
        leave_out: (leave_out.dev(), leave_out.ino()),
        links: HashMap::new(),
        top: tree.top(),
    };
    let stat = rustix::fs::fstat(&folder).map_err(|e| opened(e.into()))?;
    copying.folder(&folder.into(), tree.top(), Path::new(""))?;
    attributes(&stat, Path::new("/"))?.apply(tree.top()).map_err(opened)
}

struct Copying<'a, 'b> {
    meter: &'a mut Meter<'b>,
    /// Other filesystems below the source, such as a mounted `/proc`, are not its content.
    device: u64,
    leave_out: (u64, u64),
    /// First copied name, from the top, of files that have several.
    links: HashMap<u64, PathBuf>,
    top: &'a OwnedFd,
}

impl Copying<'_, '_> {
    fn folder(&mut self, from: &OwnedFd, to: &OwnedFd, path: &Path) -> Result<(), ImportError> {
        for name in tree::names(from).map_err(ImportError::file(path))? {
            let path = path.join(&name);
            let stat = match statat(from, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Removed since it was listed.
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(ImportError::file(&path)(e.into())),
            };
            self.meter.file()?;
            self.entry(from, to, name, &stat, &path)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: OsString,
        stat: &Stat,
        path: &Path,
    ) -> Result<(), ImportError> {
        let failed = || ImportError::file(path);
        let kind = FileType::from_raw_mode(stat.st_mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket | FileType::Unknown) {
            return Ok(());
        }
        let mut attributes = attributes(stat, path)?;
        let parent = to.try_clone().map_err(failed())?;
        let place = Place { parent, name };
        match kind {
            FileType::Directory => {
                let folder = place.create_folder(0o700).map_err(failed())?;
                let source = tree::open_folder(from, &place.name).map_err(failed())?;
                if stat.st_dev == self.device && (stat.st_dev, stat.st_ino) != self.leave_out {
                    self.folder(&source, &folder, path)?;
                    attributes.xattrs = xattrs(&source).map_err(failed())?;
                }
                attributes.apply(&folder).map_err(failed())
            }
            FileType::Symlink => {
                let made = || -> io::Result<()> {
                    let target = readlinkat(from, &place.name, Vec::new())?;
                    symlinkat(target, &place.parent, &place.name)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())
            }
            FileType::Fifo => {
                let made = || -> io::Result<()> {
                    let mode = Mode::from_raw_mode(attributes.mode);
                    mknodat(&place.parent, &place.name, FileType::Fifo, mode, 0)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())
            }
            _ => {
                if stat.st_nlink > 1
                    && let Some(first) = self.links.get(&stat.st_ino)
                {
                    // Both names are ones that this copy made, below a top that only it writes to.
                    let linked = linkat(self.top, first, &place.parent, &place.name, AtFlags::empty());
                    return linked.map_err(|e| failed()(e.into()));
                }
                self.file(from, &place, &mut attributes, path)?;
                if stat.st_nlink > 1 {
                    self.links.insert(stat.st_ino, path.to_owned());
                }
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        from: &OwnedFd,
        place: &Place,
        attributes: &mut Attributes,
        path: &Path,
    ) -> Result<(), ImportError> {
        let failed = || ImportError::file(path);
        // Not blocking, should it have become a pipe since it was looked at.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source: File = openat(from, &place.name, flags, Mode::empty()).map_err(|e| failed()(e.into()))?.into();
        let metadata = source.metadata().map_err(failed())?;
        if !metadata.is_file() {
            return Err(failed()(io::Error::other("it changed while it was copied")));
        }
        attributes.xattrs = xattrs(&source).map_err(failed())?;
        let copy = place.create_file().map_err(failed())?;
        if ioctl_ficlone(&copy, &source).is_ok() {
            self.meter.bytes(metadata.len())?;
        } else {
            self.data(&source, &copy, metadata.len(), path)?;
        }
        attributes.apply(&copy).map_err(failed())
    }

    /// Copies the parts of a file that hold data and leaves its holes holes.
    fn data(&mut self, from: &File, to: &File, length: u64, path: &Path) -> Result<(), ImportError> {
        let failed = |e: Errno| ImportError::file(path)(e.into());
        ftruncate(to, length).map_err(failed)?;
        let mut position = 0;
        while position < length {
            let start = match seek(from, SeekFrom::Data(position)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(failed(e)),
            };
            let end = seek(from, SeekFrom::Hole(start)).map_err(failed)?.min(length);
            let (mut read_at, mut write_at) = (start, start);
            while read_at < end {
                let count = usize::try_from(end - read_at).unwrap_or(CHUNK).min(CHUNK);
                self.meter.bytes(count as u64)?;
                let moved =
                    copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), count).map_err(failed)?;
                if moved == 0 {
                    // Cut shorter since it was looked at.
                    return Ok(());
                }
            }
            position = end.max(start + 1);
        }
        Ok(())
    }
}

fn attributes(stat: &Stat, path: &Path) -> Result<Attributes, ImportError> {
    if stat.st_uid >= OWNERS || stat.st_gid >= OWNERS {
        return Err(ImportError::Owner { path: path.to_owned(), uid: stat.st_uid, gid: stat.st_gid });
    }
    Ok(Attributes {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        seconds: stat.st_mtime,
        nanoseconds: 0,
        xattrs: Vec::new(),
    })
}

fn xattrs(file: impl AsFd) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let file = file.as_fd();
    let mut list = Vec::with_capacity(XATTR_MAX);
    match flistxattr(file, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    }
    let mut kept = Vec::new();
    for name in list.split(|b| *b == 0).filter(|name| tree::keeps_xattr(name)) {
        let name = std::ffi::OsStr::from_bytes(name);
        let mut value = Vec::with_capacity(XATTR_MAX);
        fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
        value.shrink_to_fit();
        kept.push((name.to_owned(), value));
    }
    Ok(kept)
}
