//! Paths of the host that a caller names, for a template to be made of.
//!
//! The daemon reads as root. Only the owner of its socket, who is root, may name any path. All others, a token without limits
//! and the page among them, name paths below folders of the configuration, and no link leads out of these.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use roost_disk::ImportSource;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;

use crate::HostError;
use crate::caller::Caller;

/// Nothing waits for the other side of a pipe, nor becomes a terminal of the daemon's.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a folder or an archive that a caller names, if the caller may have it read.
pub(crate) fn open_named(path: PathBuf, caller: &Caller, folders: &[PathBuf]) -> Result<ImportSource, HostError> {
    let unreadable = |error: Errno| HostError::BadRequest(format!("cannot read `{}`: {error}", path.display()));
    let opened = if caller.owns_host() {
        open(&path, READ, Mode::empty()).map_err(unreadable)?
    } else {
        open_below(&path, folders).map_err(unreadable)?.ok_or_else(|| HostError::ForeignPath(path.clone()))?
    };
    let opened = File::from(opened);
    let kind = opened.metadata().map_err(|error| HostError::BadRequest(format!("cannot read a path: {error}")))?;
    match () {
        () if kind.is_dir() => Ok(ImportSource::Folder { path, opened }),
        () if kind.is_file() => Ok(ImportSource::Tar(Box::new(opened))),
        () => Err(HostError::BadRequest(format!("`{}` is neither a folder nor an archive", path.display()))),
    }
}

/// Opens a path below one of the folders; none if it is below none of them, or a link leads out.
fn open_below(path: &Path, folders: &[PathBuf]) -> rustix::io::Result<Option<OwnedFd>> {
    let Some((folder, within)) = folders.iter().find_map(|folder| Some((folder, path.strip_prefix(folder).ok()?)))
    else {
        return Ok(None);
    };
    let within = if within.as_os_str().is_empty() { Path::new(".") } else { within };
    let folder =
        openat2(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())?;
    match openat2(&folder, within, READ, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS) {
        Err(Errno::XDEV | Errno::LOOP) => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_the_owner_reads_beyond_the_configured_folders() {
        let home = tempfile::tempdir().unwrap();
        let (allowed, secret) = (home.path().join("allowed"), home.path().join("secret"));
        fs::create_dir_all(allowed.join("tree/inner")).unwrap();
        fs::create_dir(&secret).unwrap();
        symlink(&secret, allowed.join("out")).unwrap();
        symlink("../secret", allowed.join("up")).unwrap();
        symlink("tree", allowed.join("within")).unwrap();
        let folders = [allowed.clone()];
        let anybody = Caller::session();
        let open = |path: &Path, caller: &Caller| open_named(path.to_owned(), caller, &folders);

        for path in ["tree", "tree/inner", "within", "within/inner", "."] {
            assert!(open(&allowed.join(path), &anybody).is_ok(), "{path}");
        }
        let beside = home.path().join("allowed-not");
        fs::create_dir(&beside).unwrap();
        let outside = [&allowed.join("out"), &allowed.join("up"), &allowed.join("../secret"), &secret, &beside];
        for path in outside {
            let refused = open(path, &anybody).unwrap_err();
            assert!(matches!(refused, HostError::ForeignPath(_)), "{}: {refused}", path.display());
            assert!(open(path, &Caller::owner()).is_ok(), "{}", path.display());
        }
        assert!(matches!(open(&allowed.join("none"), &anybody), Err(HostError::BadRequest(_))));
    }

    #[test]
    fn devices_and_pipes_are_neither_folder_nor_archive() {
        for path in ["/dev/null", "/dev/ptmx"] {
            let refused = open_named(path.into(), &Caller::owner(), &[]).unwrap_err();
            assert!(matches!(refused, HostError::BadRequest(_)), "{path}: {refused}");
        }
    }
}
