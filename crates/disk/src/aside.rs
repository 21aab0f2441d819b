//! Leftovers that could not be removed, and entries that do not belong where they are.
//!
//! Neither may keep a daemon from starting. They are moved to `aside` in the folder that they are found in, named in a warning,
//! and left to a person.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::pool::rename_new;

const FOLDER: &str = "aside";
/// Names that are tried for an entry.
const ATTEMPTS: u32 = 10_000;

/// Moves an entry of a data folder, or of its pool, to `aside` in it; logs what happened and does not fail.
pub fn put_aside(base: &Path, entry: &Path, reason: &(dyn std::error::Error + 'static)) {
    let shown = entry.display();
    match move_aside(base, entry) {
        Ok(to) => tracing::warn!(reason, entry = %shown, aside = %to.display(), "put an entry aside"),
        Err(error) => tracing::warn!(reason, entry = %shown, %error, "failed to put an entry aside, left it in place"),
    }
}

/// The number of entries that were put aside in a folder.
pub fn count_aside(base: &Path) -> usize {
    std::fs::read_dir(base.join(FOLDER)).map_or(0, |entries| entries.flatten().count())
}

/// The folder that entries are put in.
pub fn aside_of(base: &Path) -> PathBuf {
    base.join(FOLDER)
}

/// Makes a folder where it is missing; anything else in its place is put aside.
pub fn provide_folder(base: &Path, path: &Path, mode: u32) -> io::Result<()> {
    if path.symlink_metadata().is_ok() && !path.is_dir() {
        put_aside(base, path, &io::Error::from(io::ErrorKind::NotADirectory));
    }
    DirBuilder::new().recursive(true).mode(mode).create(path)
}

fn move_aside(base: &Path, entry: &Path) -> io::Result<PathBuf> {
    let aside = base.join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&aside)?;
    let within = entry.strip_prefix(base).unwrap_or(entry).to_string_lossy().replace('/', "-");
    for number in 0..ATTEMPTS {
        let to = aside.join(format!("{within}.{number}"));
        match rename_new(entry, &to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            moved => return moved.map(|()| to),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn leftovers_are_moved_aside_under_names_of_their_own() {
        let base = tempfile::tempdir().unwrap();
        for _ in 0..3 {
            let leftover = base.path().join("templates/.staging-x");
            fs::create_dir_all(leftover.join("inner")).unwrap();
            put_aside(base.path(), &leftover, &io::Error::other("kept"));
            assert!(!leftover.exists());
        }
        assert_eq!(count_aside(base.path()), 3);
        assert!(base.path().join("aside/templates-.staging-x.2/inner").is_dir());
    }

    #[test]
    fn file_in_the_place_of_a_folder_gives_way() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("images");
        fs::write(&folder, "odd").unwrap();
        provide_folder(base.path(), &folder, 0o700).unwrap();
        assert!(folder.is_dir());
        assert_eq!(fs::read(base.path().join("aside/images.0")).unwrap(), b"odd");
        provide_folder(base.path(), &folder, 0o700).unwrap();
        assert_eq!(count_aside(base.path()), 1);
    }
}
