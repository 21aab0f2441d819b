//! Copying a folder into a tree, descriptor by descriptor: no symlink is followed on either side.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use roost_sys::tree::{At, Descent, Visitor, walk};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, copy_file_range, fgetxattr, flistxattr, ftruncate, ioctl_ficlone,
    linkat, mknodat, openat, readlinkat, seek, statat, symlinkat,
};
use rustix::io::Errno;

use super::import::{ImportError, Meter};
use super::limits;
use super::tree::{self, Attributes, OWNERS, Place, Tree};

/// Data moved by one call, so that the free space is looked at now and then.
const CHUNK: usize = 8 << 20;
/// The kernel's limit for the names of a file's attributes together, and for one value.
const XATTR_MAX: usize = 64 * 1024;

/// Copies everything in the folder `source`, except mounted filesystems and the folder `leave_out`.
pub(super) fn copy(
    source: File,
    path: &Path,
    leave_out: &Path,
    tree: &Tree,
    meter: &mut Meter<'_>,
) -> Result<(), ImportError> {
    let opened = |source| ImportError::Folder { path: path.to_owned(), source };
    if !source.metadata().map_err(opened)?.is_dir() {
        return Err(opened(io::ErrorKind::NotADirectory.into()));
    }
    let leave_out = leave_out.metadata().map_err(opened)?;
    let to = tree.top().try_clone().and_then(Descent::new).map_err(opened)?;
    let leave_out = (leave_out.dev(), leave_out.ino());
    walk(source.into(), &mut Copying { meter, leave_out, links: HashMap::new(), top: tree.top(), to })
}

/// Copies every entry that the walk visits.
struct Copying<'a, 'b> {
    meter: &'a mut Meter<'b>,
    leave_out: (u64, u64),
    /// First copied name, from the top, of files that have several.
    links: HashMap<u64, PathBuf>,
    top: &'a OwnedFd,
    /// The copy of the folder that the walk is in.
    to: Descent,
}

impl Visitor for Copying<'_, '_> {
    type Error = ImportError;

    fn entry(&mut self, at: &At<'_>) -> Result<bool, ImportError> {
        let path = limits::check(at)?;
        let failed = || ImportError::file(&path);
        let stat = match statat(at.folder, at.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since it was listed.
            Err(Errno::NOENT) => return Ok(false),
            Err(e) => return Err(failed()(e.into())),
        };
        self.meter.file()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket | FileType::Unknown) {
            return Ok(false);
        }
        let mut attributes = attributes(&stat, &path)?;
        let parent = self.to.folder().try_clone_to_owned().map_err(failed())?;
        let place = Place { parent, name: at.name.to_owned() };
        match kind {
            FileType::Directory => {
                let folder = place.create_folder(0o700).map_err(failed())?;
                // Once more when it is filled; a folder that is not entered has them already.
                attributes.apply(&folder).map_err(failed())?;
                return Ok((stat.st_dev, stat.st_ino) != self.leave_out);
            }
            FileType::Symlink => {
                let made = || -> io::Result<()> {
                    let target = readlinkat(at.folder, &place.name, Vec::new())?;
                    symlinkat(target, &place.parent, &place.name)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())?;
            }
            FileType::Fifo => {
                let made = || -> io::Result<()> {
                    let mode = Mode::from_raw_mode(attributes.mode);
                    mknodat(&place.parent, &place.name, FileType::Fifo, mode, 0)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())?;
            }
            _ => {
                if stat.st_nlink > 1
                    && let Some(first) = self.links.get(&stat.st_ino)
                {
                    // Both names are ones that this copy made, below a top that only it writes to.
                    let linked = linkat(self.top, first, &place.parent, &place.name, AtFlags::empty());
                    linked.map_err(|e| failed()(e.into()))?;
                    return Ok(false);
                }
                self.file(at.folder, &place, &mut attributes, &path)?;
                if stat.st_nlink > 1 {
                    self.links.insert(stat.st_ino, path);
                }
            }
        }
        Ok(false)
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), ImportError> {
        self.to.enter(name).map_err(ImportError::file(Path::new(name)))
    }

    fn leave(&mut self, folder: BorrowedFd<'_>, path: &Path) -> Result<(), ImportError> {
        let stat = rustix::fs::fstat(folder).map_err(|e| ImportError::file(path)(e.into()))?;
        let mut attributes = attributes(&stat, path)?;
        attributes.xattrs = xattrs(folder).map_err(ImportError::file(path))?;
        attributes.apply(self.to.folder()).map_err(ImportError::file(path))
    }

    fn left(&mut self, at: &At<'_>) -> Result<(), ImportError> {
        self.to.leave().map_err(ImportError::file(&at.path()))
    }

    fn skipped(&mut self, path: &Path, error: io::Error) -> Result<(), ImportError> {
        match error.kind() {
            // A filesystem that is mounted there, such as `/proc`, is not content of the folder.
            io::ErrorKind::CrossesDevices => Ok(()),
            _ => Err(self.fault(path, error)),
        }
    }

    fn fault(&mut self, path: &Path, error: io::Error) -> ImportError {
        ImportError::file(path)(error)
    }
}

impl Copying<'_, '_> {
    fn file(
        &mut self,
        from: BorrowedFd<'_>,
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
        let (mut position, mut holes) = (0, length);
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
                holes = holes.saturating_sub(count as u64);
                let moved =
                    copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), count).map_err(failed)?;
                if moved == 0 {
                    // Cut shorter since it was looked at.
                    return Ok(());
                }
            }
            position = end.max(start + 1);
        }
        // They take no room here, but to pack them takes as long as to pack data.
        self.meter.bytes(holes)
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
        let name = OsStr::from_bytes(name);
        let mut value = Vec::with_capacity(XATTR_MAX);
        fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))?;
        value.shrink_to_fit();
        kept.push((name.to_owned(), value));
    }
    Ok(kept)
}
