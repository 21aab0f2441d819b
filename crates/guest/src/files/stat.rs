//! What is known about a file.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use roost_wire::{Failure, FileKind, FileStat};

use crate::failure::failed_on;
use crate::users::Users;

/// Looks at a path without following a link at its end.
pub(crate) fn stat(users: &Users, path: &Path) -> Result<FileStat, Failure> {
    let metadata = fs::symlink_metadata(path).map_err(|error| failed_on("look at", path, &error))?;
    Ok(describe(users, path, &metadata))
}

/// Puts what the kernel says into words.
pub(crate) fn describe(users: &Users, path: &Path, metadata: &Metadata) -> FileStat {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let target = match kind {
        FileKind::Symlink => fs::read_link(path).ok().map(|target| target.to_string_lossy().into_owned()),
        _ => None,
    };
    FileStat {
        path: path.to_string_lossy().into_owned(),
        kind,
        size: metadata.size(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        user: users.user_name(metadata.uid()),
        group: users.group_name(metadata.gid()),
        modified_ms: metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000),
        target,
    }
}
