//! A root as overlayfs shows it: changes above a template.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, fstat, open, openat2, statat};
use rustix::io::Errno;

use super::fingerprints::Fingerprints;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const OPAQUE: &str = "trusted.overlay.opaque";
const REDIRECT: &str = "trusted.overlay.redirect";

/// A root: its changes, if it has any, and the template below.
pub(super) struct View {
    upper: Option<File>,
    lower: File,
    pub(super) fingerprints: Fingerprints,
}

/// A folder of a view: where its parts are in the layers, as paths from their roots.
///
/// Paths, not descriptors, so that a tree of any depth is walked with a handful of them.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    upper: Option<PathBuf>,
    pub(super) lower: Option<PathBuf>,
}

/// A folder of a view with its parts open.
pub(super) struct OpenFolder {
    paths: Folder,
    upper: Option<Rc<File>>,
    lower: Option<Rc<File>>,
}

/// What a view shows under a name.
pub(super) struct Entry {
    /// The folder that holds it, in its layer.
    pub(super) parent: Rc<File>,
    pub(super) name: OsString,
    pub(super) stat: Stat,
    lower: bool,
    /// If it is a folder: where to go on.
    pub(super) folder: Option<Folder>,
}

impl Entry {
    pub(super) fn is_lower(&self) -> bool {
        self.lower
    }

    pub(super) fn inode(&self) -> u64 {
        self.stat.st_ino
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Bytes of a file; of anything else 0.
    pub(super) fn size(&self) -> u64 {
        if self.kind() == FileType::RegularFile { u64::try_from(self.stat.st_size).unwrap_or(0) } else { 0 }
    }
}

impl View {
    pub(super) fn open(upper: Option<File>, lower: &Path) -> io::Result<Self> {
        // The mount point may be reached by any path; what is below it is resolved strictly.
        let lower = File::from(open(lower, FOLDER, Mode::empty())?);
        let fingerprints = upper.as_ref().map(Fingerprints::read).transpose()?.unwrap_or_default();
        Ok(Self { upper, lower, fingerprints })
    }

    pub(super) fn same_lower(&self, other: &Self) -> io::Result<bool> {
        let (one, two) = (fstat(&self.lower)?, fstat(&other.lower)?);
        Ok((one.st_dev, one.st_ino) == (two.st_dev, two.st_ino))
    }

    pub(super) fn root(&self) -> Folder {
        Folder { upper: self.upper.is_some().then(PathBuf::new), lower: Some(PathBuf::new()) }
    }

    pub(super) fn open_folder(&self, paths: &Folder) -> io::Result<OpenFolder> {
        let upper = match (&self.upper, &paths.upper) {
            (Some(root), Some(path)) => Some(Rc::new(below(root, path)?)),
            _ => None,
        };
        let lower = paths.lower.as_ref().map(|path| below(&self.lower, path).map(Rc::new)).transpose()?;
        Ok(OpenFolder { paths: paths.clone(), upper, lower })
    }

    /// What is there under a name, as overlayfs decides it: the upper layer's entry hides the lower one's, a whiteout
    /// hides it without being there, and folders are merged unless the upper one is opaque.
    pub(super) fn lookup(&self, folder: &OpenFolder, name: &OsStr) -> io::Result<Option<Entry>> {
        let lower_path = folder.paths.lower.as_ref().map(|path| path.join(name));
        if let (Some(parent), Some(path)) = (&folder.upper, &folder.paths.upper)
            && let Some(stat) = find(parent, name)?
        {
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
                return Ok(None);
            }
            let upper = path.join(name);
            let below = match kind {
                FileType::Directory => {
                    let lower = self.merged_with(&upper, folder, lower_path)?;
                    Some(Folder { upper: Some(upper), lower })
                }
                _ => None,
            };
            return Ok(Some(Entry { parent: parent.clone(), name: name.into(), stat, lower: false, folder: below }));
        }
        let (Some(parent), Some(path)) = (&folder.lower, lower_path) else {
            return Ok(None);
        };
        Ok(find(parent, name)?.map(|stat| {
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let below = is_folder.then_some(Folder { upper: None, lower: Some(path) });
            Entry { parent: parent.clone(), name: name.into(), stat, lower: true, folder: below }
        }))
    }

    /// The template's folder that an upper folder is merged with, which is elsewhere if it was moved.
    fn merged_with(&self, upper: &Path, parent: &OpenFolder, same: Option<PathBuf>) -> io::Result<Option<PathBuf>> {
        let Some(root) = &self.upper else { return Ok(None) };
        let folder = below(root, upper)?;
        if xattr(&folder, OPAQUE)?.is_some_and(|value| value == b"y") {
            return Ok(None);
        }
        let candidate = match xattr(&folder, REDIRECT)? {
            None => same,
            Some(target) => {
                let target = Path::new(OsStr::from_bytes(&target));
                match target.strip_prefix("/") {
                    Ok(from_root) => Some(from_root.to_owned()),
                    Err(_) => parent.paths.lower.as_ref().map(|lower| lower.join(target)),
                }
            }
        };
        let Some(candidate) = candidate else { return Ok(None) };
        match below(&self.lower, &candidate) {
            Ok(_) => Ok(Some(candidate)),
            // Nothing there, or nothing that a folder can be merged with.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl OpenFolder {
    /// Adds the names of its upper part and, if asked for, of its lower one.
    pub(super) fn names(&self, with_lower: bool, names: &mut BTreeSet<OsString>) -> io::Result<()> {
        let lower = self.lower.as_ref().filter(|_| with_lower);
        for layer in self.upper.iter().chain(lower) {
            for entry in Dir::read_from(layer.as_ref())? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    names.insert(OsStr::from_bytes(name).to_owned());
                }
            }
        }
        Ok(())
    }
}

/// Opens a folder below another without ever leaving it: the trees were made by strangers.
fn below(root: &File, path: &Path) -> io::Result<File> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(root, path, FOLDER, Mode::empty(), flags)?.into())
}

fn find(parent: &File, name: &OsStr) -> io::Result<Option<Stat>> {
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn xattr(folder: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; 4096];
    match fgetxattr(folder, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
