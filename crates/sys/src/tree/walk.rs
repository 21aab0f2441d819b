//! A walk over all entries of a tree.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;

use super::Descent;

const BUFFER: usize = 32 * 1024;

/// An entry of a tree.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The folder that holds it.
    pub folder: BorrowedFd<'a>,
    /// Its name in that folder.
    pub name: &'a OsStr,
    /// Its kind when the folder was listed.
    pub kind: FileType,
    /// The path of the folder, from the top.
    pub above: &'a Path,
    /// How many folders lie between the folder and the top.
    pub depth: usize,
}

impl At<'_> {
    /// The path of the entry, from the top.
    pub fn path(&self) -> PathBuf {
        self.above.join(self.name)
    }
}

/// The work of a walk.
///
/// All entries of a folder are visited before the walk enters the folders among them.
pub trait Visitor {
    /// Why the walk ends early.
    type Error;

    /// Visits an entry; true enters it later, which must be a folder.
    fn entry(&mut self, at: &At<'_>) -> Result<bool, Self::Error>;

    /// Called after a folder was entered, before its entries are visited.
    fn enter(&mut self, _name: &OsStr) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Called in a folder, of which everything was visited; `path` is its path from the top.
    fn leave(&mut self, _folder: BorrowedFd<'_>, _path: &Path) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Called after [`Visitor::leave`], in the folder above.
    fn left(&mut self, _at: &At<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A folder could not be entered, or not be listed to its end; the walk goes on without it unless this fails.
    fn skipped(&mut self, path: &Path, error: io::Error) -> Result<(), Self::Error> {
        Err(self.fault(path, error))
    }

    /// Makes an error of this visitor of an error of the walk.
    fn fault(&mut self, path: &Path, error: io::Error) -> Self::Error;
}

/// Visits everything below a folder; the folder itself is not visited, but is left at the end.
pub fn walk<V: Visitor>(top: OwnedFd, visitor: &mut V) -> Result<(), V::Error> {
    let mut path = PathBuf::new();
    let mut descent = Descent::new(top).map_err(|error| visitor.fault(&path, error))?;
    let mut pending = vec![list(&descent, &path, visitor)?];
    while let Some(names) = pending.last_mut() {
        let depth = descent.depth();
        if let Some(name) = names.pop() {
            if let Err(error) = descent.enter(&name) {
                visitor.skipped(&path.join(&name), error)?;
                continue;
            }
            visitor.enter(&name)?;
            path.push(&name);
            pending.push(list(&descent, &path, visitor)?);
            continue;
        }
        pending.pop();
        visitor.leave(descent.folder(), &path)?;
        if depth == 0 {
            break;
        }
        descent.leave().map_err(|error| visitor.fault(&path, error))?;
        let name = path.file_name().map(OsStr::to_owned).unwrap_or_default();
        path.pop();
        let (folder, depth) = (descent.folder(), descent.depth());
        visitor.left(&At { folder, name: &name, kind: FileType::Directory, above: &path, depth })?;
    }
    Ok(())
}

/// Visits the entries of the open folder and returns the names of those that are to be entered.
fn list<V: Visitor>(descent: &Descent, path: &Path, visitor: &mut V) -> Result<Names, V::Error> {
    let (folder, depth) = (descent.folder(), descent.depth());
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    let mut names = Names::default();
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                visitor.skipped(path, error.into())?;
                break;
            }
        };
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let name = OsStr::from_bytes(bytes);
        let Some(kind) = kind_of(folder, entry.file_name(), entry.file_type()).transpose() else { continue };
        let kind = kind.map_err(|error| visitor.fault(&path.join(name), error.into()))?;
        if visitor.entry(&At { folder, name, kind, above: path, depth })? {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

/// The kind of an entry, which some filesystems do not list; none if the entry is gone.
fn kind_of(folder: BorrowedFd<'_>, name: &CStr, listed: FileType) -> rustix::io::Result<Option<FileType>> {
    if listed != FileType::Unknown {
        return Ok(Some(listed));
    }
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Names in one piece of memory, each with its NUL.
#[derive(Debug, Default)]
struct Names(Vec<u8>);

impl Names {
    fn push(&mut self, name: &CStr) {
        self.0.extend_from_slice(name.to_bytes_with_nul());
    }

    fn pop(&mut self) -> Option<OsString> {
        self.0.pop()?;
        let begin = self.0.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        Some(OsString::from_vec(self.0.split_off(begin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_last_first() {
        let mut names = Names::default();
        for name in [c"a", c"longer name", c"z"] {
            names.push(name);
        }
        let popped: Vec<_> = std::iter::from_fn(|| names.pop()).collect();
        assert_eq!(popped, ["z", "longer name", "a"]);
    }
}
