//! What is known about a file.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use roost_wire::{Failure, FileKind, FileStat, LinkEnd};

use super::attributes::attributes;
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
    let is_link = kind == FileKind::Symlink;
    let target = is_link.then(|| fs::read_link(path).ok()).flatten();
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
        target: target.map(|target| target.to_string_lossy().into_owned()),
        leads_to: is_link.then(|| link_end(path)).flatten(),
        st_mode: metadata.mode(),
        // A link has none of its own, and a device or pipe cannot have any.
        attributes: match kind {
            FileKind::File | FileKind::Directory => attributes(path),
            FileKind::Symlink | FileKind::Other => Default::default(),
        },
    }
}

fn link_end(path: &Path) -> Option<LinkEnd> {
    let end = fs::canonicalize(path).ok()?;
    let st_mode = fs::metadata(&end).ok()?.mode();
    Some(LinkEnd { path: end.to_string_lossy().into_owned(), st_mode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_end_of_a_link_is_told_unless_it_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        symlink("folder", root.join("first")).unwrap();
        symlink(root.join("first"), root.join("second")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();
        symlink("round", root.join("round")).unwrap();
        let users = Users::load();
        let described = stat(&users, &root.join("second")).unwrap();
        assert_eq!((described.kind, described.st_mode & 0o170_000), (FileKind::Symlink, 0o120_000));
        let end = described.leads_to.unwrap();
        assert_eq!((end.path.as_str(), end.st_mode & 0o170_000), (root.join("folder").to_str().unwrap(), 0o040_000));
        for name in ["broken", "round", "folder"] {
            assert_eq!(stat(&users, &root.join(name)).unwrap().leads_to, None, "{name}");
        }
    }
}
