//! What differs between two saved disks, as the sandboxes would see it: the overlay of each, compared.
//!
//! Both trees of changes are walked side by side. Where neither has an entry both show the template's, so only what
//! was touched is looked at; the template's own tree is read where one of the two hides or moved a folder of it, or
//! where they stand on different templates. Times alone are no difference.

mod compare;
mod fingerprints;
mod view;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use roost_model::{ChangeKind, FileChange};

use crate::pool::{DiskError, Pool};
use compare::same_content;
use view::{Entry, Folder, OpenFolder, View};

/// One of the two sides of a diff.
#[derive(Debug, Clone, Copy)]
pub struct DiffSide<'a> {
    /// The checkpoint; the template alone if there is none.
    pub checkpoint: Option<&'a str>,
    /// Where the template below it is mounted.
    pub lower: &'a Path,
}

/// What differs between two saved disks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// The paths that differ, sorted; of a folder that was added or removed, everything in it too.
    pub files: Vec<FileChange>,
    /// Whether there may be more.
    pub truncated: bool,
}

/// Why two disks could not be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// A checkpoint's disk could not be opened.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A folder or file could not be read.
    #[error("failed to compare `{}`", path.display())]
    Compare { path: PathBuf, source: io::Error },
}

/// Two folders of the same path that are still to be compared; at least one is there.
struct Pair {
    path: PathBuf,
    from: Option<Folder>,
    to: Option<Folder>,
}

impl Pool {
    /// Compares two saved disks and lists at most `most` paths.
    pub fn diff(&self, from: DiffSide<'_>, to: DiffSide<'_>, most: usize) -> Result<Diff, DiffError> {
        let root = PathBuf::from("/");
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DiffError::Compare { path, source }
        };
        let open = |side: DiffSide<'_>| -> Result<View, DiffError> {
            let upper = side.checkpoint.map(|id| self.open_checkpoint_upper(id)).transpose()?;
            View::open(upper, side.lower).map_err(failed(side.lower))
        };
        let (from, to) = (open(from)?, open(to)?);
        let same_template = from.same_lower(&to).map_err(failed(&root))?;
        let mut walk = Walk { from, to, same_template, most, diff: Diff::default(), pairs: Vec::new() };
        walk.pairs.push(Pair { path: root, from: Some(walk.from.root()), to: Some(walk.to.root()) });
        while let Some(pair) = walk.pairs.pop() {
            match walk.folder(&pair) {
                Ok(true) => {}
                Ok(false) => break,
                // Deeper than a path can be: somebody's joke.
                Err(e) if e.kind() == io::ErrorKind::InvalidFilename => walk.diff.truncated = true,
                Err(e) => return Err(failed(&pair.path)(e)),
            }
        }
        walk.diff.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(walk.diff)
    }
}

struct Walk {
    from: View,
    to: View,
    same_template: bool,
    most: usize,
    diff: Diff,
    pairs: Vec<Pair>,
}

impl Walk {
    /// Compares the entries of two folders and queues the folders among them; false once the list is full.
    fn folder(&mut self, pair: &Pair) -> io::Result<bool> {
        let from = pair.from.as_ref().map(|folder| self.from.open_folder(folder)).transpose()?;
        let to = pair.to.as_ref().map(|folder| self.to.open_folder(folder)).transpose()?;
        for name in self.names(pair, from.as_ref(), to.as_ref())? {
            let before = from.as_ref().map(|folder| self.from.lookup(folder, &name)).transpose()?.flatten();
            let after = to.as_ref().map(|folder| self.to.lookup(folder, &name)).transpose()?.flatten();
            let path = pair.path.join(&name);
            let kind = match (&before, &after) {
                (None, None) => continue,
                (None, Some(_)) => Some(ChangeKind::Added),
                (Some(_), None) => Some(ChangeKind::Removed),
                (Some(before), Some(after)) if self.is_one(before, after) => continue,
                (Some(before), Some(after)) => {
                    (!same_content(&self.from, before, &self.to, after)?).then_some(ChangeKind::Changed)
                }
            };
            if let Some(kind) = kind {
                if self.diff.files.len() == self.most {
                    self.diff.truncated = true;
                    return Ok(false);
                }
                let size = after.as_ref().map_or(0, Entry::size);
                self.diff.files.push(FileChange { path: path.to_string_lossy().into_owned(), kind, size });
            }
            let (from, to) = (before.and_then(|entry| entry.folder), after.and_then(|entry| entry.folder));
            if from.is_some() || to.is_some() {
                self.pairs.push(Pair { path, from, to });
            }
        }
        Ok(true)
    }

    /// The names at which the two can differ.
    fn names(&self, pair: &Pair, from: Option<&OpenFolder>, to: Option<&OpenFolder>) -> io::Result<BTreeSet<OsString>> {
        let mut names = BTreeSet::new();
        let lower = |folder: &Option<Folder>| folder.as_ref().and_then(|folder| folder.lower.clone());
        let same_below = self.same_template && lower(&pair.from) == lower(&pair.to);
        for folder in [from, to].into_iter().flatten() {
            folder.names(!same_below, &mut names)?;
        }
        Ok(names)
    }

    /// Whether both are the same entry of the same template, and so is everything below.
    fn is_one(&self, before: &Entry, after: &Entry) -> bool {
        self.same_template && before.is_lower() && after.is_lower() && before.inode() == after.inode()
    }
}
