//! Folders as tar streams, both ways.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::lchown;
use std::path::{Component, Path, PathBuf};

use roost_wire::frame::Kind;
use roost_wire::{ArchiveIn, ArchiveOut, ErrorCode, Failure, FileStat, MakeDir, Reply};
use tar::{Archive, Builder, EntryType, Header};

use super::Caller;
use super::change::{ensure_parents, make_dir};
use super::list::sorted_names;
use super::regular;
use super::stat::stat;
use crate::conn::{Conn, ConnError, Download, Upload};
use crate::failure::{bad_request, code_of, failed_on};
use crate::guest::Guest;

/// Sends a file or folder as a tar stream.
pub(crate) fn pack(guest: &Guest, conn: &mut Conn, request: &ArchiveOut) -> Result<(), ConnError> {
    let opened = Caller::new(guest, request.user.as_deref()).and_then(|caller| {
        let path = caller.place.resolve(&request.path)?;
        let path = fs::canonicalize(&path).map_err(|error| failed_on("open", &path, &error))?;
        Ok((stat(&caller.users, &path)?, path))
    });
    let (described, path) = match opened {
        Ok(opened) => opened,
        Err(failure) => return conn.answer(Err(failure)),
    };
    conn.queue(Kind::Reply, &Reply::Stat(described))?;
    let mut archive = Builder::new(Download::new(conn));
    let packed = pack_tree(&mut archive, &path).and_then(|()| archive.finish());
    let packed = packed.map_err(|error| failed_on("pack", &path, &error));
    match archive.into_inner() {
        Ok(download) => download.finish(packed),
        // The rest could not be sent.
        Err(_) => Err(ConnError::Gone),
    }
}

fn pack_tree(archive: &mut Builder<impl Write>, root: &Path) -> io::Result<()> {
    let root_is_folder = fs::metadata(root)?.is_dir();
    let name = root.file_name().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut pending = if root_is_folder { below(root, Path::new(""))? } else { vec![(root.to_owned(), name)] };
    while let Some((path, name)) = pending.pop() {
        // What vanishes meanwhile is not in the archive.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        let mut header = Header::new_gnu();
        header.set_metadata(&metadata);
        let kind = metadata.file_type();
        if kind.is_dir() {
            archive.append_data(&mut header, &name, io::empty())?;
            pending.extend(below(&path, &name)?);
        } else if kind.is_symlink() {
            header.set_size(0);
            archive.append_link(&mut header, &name, fs::read_link(&path)?)?;
        } else if kind.is_file() {
            let Ok((file, _)) = regular::open(&path) else { continue };
            // Exactly as many bytes as the header says, even if the file changes while it is read.
            let size = metadata.len();
            archive.append_data(&mut header, &name, file.chain(io::repeat(0)).take(size))?;
        } else if header.entry_type() == EntryType::Fifo {
            archive.append_data(&mut header, &name, io::empty())?;
        }
    }
    Ok(())
}

/// What is in a folder, last first, as a stack wants it.
fn below(folder: &Path, name: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let names = sorted_names(folder)?;
    Ok(names.into_iter().rev().map(|entry| (folder.join(&entry), name.join(&entry))).collect())
}

/// Unpacks a tar stream into a folder.
pub(crate) fn unpack(guest: &Guest, conn: &mut Conn, request: &ArchiveIn) -> Result<(), ConnError> {
    let prepared = Caller::new(guest, request.user.as_deref()).and_then(|caller| {
        let folder = MakeDir { path: request.path.clone(), parents: true, ..MakeDir::default() };
        let folder = make_dir(&caller, &folder)?;
        let path = PathBuf::from(&folder.path);
        Ok((caller, fs::canonicalize(&path).map_err(|error| failed_on("open", &path, &error))?))
    });
    let (caller, folder) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => return conn.refuse_upload(failure),
    };
    let mut upload = Upload::new(conn);
    let result = unpack_into(&caller, &folder, &mut upload, request.keep_owners);
    let result = match result {
        Ok(_) | Err(_) if upload.is_cut_short() => Err(bad_request("the sender gave up")),
        result => result,
    };
    upload.finish(result.map(Reply::Stat))
}

fn unpack_into(caller: &Caller, folder: &Path, data: &mut impl Read, keep_owners: bool) -> Result<FileStat, Failure> {
    let mut archive = Archive::new(data);
    archive.set_preserve_permissions(true);
    archive.set_preserve_ownerships(keep_owners);
    let broken = |error: io::Error| match code_of(&error) {
        ErrorCode::Internal => bad_request(format!("failed to read the archive: {error}")),
        code => Failure::new(code, format!("failed to read the archive: {error}")),
    };
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path().map_err(broken)?.into_owned();
        if name.components().any(|part| matches!(part, Component::ParentDir)) {
            return Err(bad_request(format!("archive leads outside with `{}`", name.display())));
        }
        let inside: PathBuf = name.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        if inside.as_os_str().is_empty() {
            continue;
        }
        let path = folder.join(inside);
        ensure_parents(&path, &caller.place.user)?;
        let unpacked = entry.unpack_in(folder).map_err(|error| unpack_failure(&path, &error))?;
        if unpacked && !keep_owners {
            let user = &caller.place.user;
            lchown(&path, Some(user.uid), Some(user.gid))
                .map_err(|error| failed_on("set the owner of", &path, &error))?;
        }
    }
    stat(&caller.users, folder)
}

/// The archive reader wraps the kernel's errors; the innermost one says what happened.
fn unpack_failure(path: &Path, error: &io::Error) -> Failure {
    let mut innermost = error;
    while let Some(inner) = innermost.get_ref().and_then(|inner| std::error::Error::source(inner)) {
        match inner.downcast_ref::<io::Error>() {
            Some(inner) => innermost = inner,
            None => break,
        }
    }
    failed_on("unpack", path, innermost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Namer;
    use crate::users::Users;
    use roost_wire::{GuestConfig, Key};
    use std::os::unix::fs::MetadataExt;

    fn caller() -> Caller {
        let guest = Guest::new(GuestConfig::new("sbx_test", "test", Key::from_bytes([0; 32])), Namer::default(), 0);
        let users = Users::load();
        let place = guest.place(&users, Some("4321:4322")).unwrap();
        Caller { users, place }
    }

    #[test]
    fn a_tree_survives_both_ways_and_belongs_to_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("empty")).unwrap();
        fs::create_dir_all(from.join("a").join("x".repeat(120))).unwrap();
        fs::write(from.join("a").join("x".repeat(120)).join("deep"), "deep").unwrap();
        std::os::unix::fs::symlink("../a", from.join("empty/link")).unwrap();
        let mut archive = Builder::new(Vec::new());
        pack_tree(&mut archive, &from).unwrap();
        let bytes = archive.into_inner().unwrap();
        fs::create_dir(&to).unwrap();
        unpack_into(&caller(), &to, &mut bytes.as_slice(), false).unwrap();
        let deep = to.join("a").join("x".repeat(120)).join("deep");
        assert_eq!(fs::read(&deep).unwrap(), b"deep");
        assert_eq!(fs::metadata(&deep).unwrap().uid(), 4321);
        assert_eq!(fs::metadata(to.join("a")).unwrap().gid(), 4322);
        assert_eq!(fs::read_link(to.join("empty/link")).unwrap(), Path::new("../a"));
    }

    #[test]
    fn an_archive_that_leads_outside_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut header = Header::new_gnu();
        header.set_size(0);
        let name = b"../evil";
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.resize(bytes.len() + 1024, 0);
        let to = folder.path().join("to");
        fs::create_dir(&to).unwrap();
        let failure = unpack_into(&caller(), &to, &mut bytes.as_slice(), false).unwrap_err();
        assert_eq!(failure.code, ErrorCode::BadRequest);
        assert!(!folder.path().join("evil").exists());
    }

    #[test]
    fn garbage_is_a_bad_request() {
        let folder = tempfile::tempdir().unwrap();
        let failure = unpack_into(&caller(), folder.path(), &mut [7u8; 2000].as_slice(), false).unwrap_err();
        assert_eq!(failure.code, ErrorCode::BadRequest);
    }
}
