//! Changes of names, owners and permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink as make_symlink};
use std::path::{Path, PathBuf};

use roost_sys::tree::{self, At, Visitor};
use roost_wire::{Chmod, Chown, ErrorCode, Failure, FileStat, MakeDir, MovePath, PathOf, RemovePath, Symlink};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid, chownat, open, renameat_with};
use rustix::io::Errno;

use super::Caller;
use super::copy::move_by_copy;
use super::stat::stat;
use crate::failure::{bad_request, failed, failed_on};
use crate::users::User;

/// Permission bits of a new folder.
const NEW_FOLDER: u32 = 0o755;

pub(crate) fn read_link(caller: &Caller, request: &PathOf) -> Result<String, Failure> {
    let path = caller.place.resolve(&request.path)?;
    let target = fs::read_link(&path).map_err(|error| failed_on("read the link", &path, &error))?;
    Ok(target.to_string_lossy().into_owned())
}

pub(crate) fn make_dir(caller: &Caller, request: &MakeDir) -> Result<FileStat, Failure> {
    let path = caller.place.resolve(&request.path)?;
    let mode = request.mode.unwrap_or(NEW_FOLDER) & 0o7777;
    if request.parents {
        ensure_parents(&path, &caller.place.user)?;
    }
    match make_folder(&path, mode, &caller.place.user) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && request.parents => {
            if path.is_dir() && request.must_be_new {
                return Err(failed_on("create the folder", &path, &error));
            }
            if !path.is_dir() {
                return Err(Failure::new(ErrorCode::NotADirectory, format!("`{}` is not a folder", path.display())));
            }
        }
        made => made.map_err(|error| failed_on("create the folder", &path, &error))?,
    }
    stat(&caller.users, &path)
}

/// Creates the folders on the way to `path` that are missing; they belong to `user`.
pub(super) fn ensure_parents(path: &Path, user: &User) -> Result<(), Failure> {
    let mut missing: Vec<PathBuf> = Vec::new();
    for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
        match fs::metadata(folder) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(folder.to_owned()),
            Err(error) => return Err(failed_on("look at", folder, &error)),
        }
    }
    for folder in missing.into_iter().rev() {
        match make_folder(&folder, NEW_FOLDER, user) {
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made.map_err(|error| failed_on("create the folder", &folder, &error))?,
        }
    }
    Ok(())
}

fn make_folder(path: &Path, mode: u32, user: &User) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)?;
    lchown(path, Some(user.uid), Some(user.gid))?;
    // Once more only if the umask or the new owner took some away: whoever watches sees no more changes than needed.
    if fs::symlink_metadata(path)?.mode() & 0o7777 != mode {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

pub(crate) fn move_path(caller: &Caller, request: &MovePath) -> Result<FileStat, Failure> {
    let (from, to) = (caller.place.resolve(&request.from)?, caller.place.resolve(&request.to)?);
    if request.create_parents {
        // What is not there cannot be moved, and leaves no folders behind.
        fs::symlink_metadata(&from).map_err(|error| failed_on("move", &from, &error))?;
        ensure_parents(&to, &caller.place.user)?;
    }
    let flags = if request.overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let moved = match renameat_with(CWD, &from, CWD, &to, flags) {
        // Another filesystem, or a folder of the template, which overlayfs does not rename.
        Err(Errno::XDEV) => move_by_copy(&from, &to, flags),
        // A filesystem that cannot promise not to replace.
        Err(Errno::INVAL) if !request.overwrite && fs::symlink_metadata(&to).is_err() => fs::rename(&from, &to),
        result => result.map_err(io::Error::from),
    };
    moved.map_err(|error| failed(format_args!("move `{}` to `{}`", from.display(), to.display()), &error))?;
    stat(&caller.users, &to)
}

pub(crate) fn remove(caller: &Caller, request: &RemovePath) -> Result<(), Failure> {
    let path = caller.place.resolve(&request.path)?;
    if path == Path::new("/") {
        return Err(bad_request("the root folder cannot be removed"));
    }
    let metadata = fs::symlink_metadata(&path).map_err(|error| failed_on("remove", &path, &error))?;
    let removed = match (metadata.is_dir(), request.recursive) {
        (true, true) => tree::remove(&path),
        (true, false) => fs::remove_dir(&path),
        (false, _) => fs::remove_file(&path),
    };
    removed.map_err(|error| failed_on("remove", &path, &error))
}

pub(crate) fn chmod(caller: &Caller, request: &Chmod) -> Result<FileStat, Failure> {
    let path = caller.place.resolve(&request.path)?;
    let set = fs::set_permissions(&path, Permissions::from_mode(request.mode & 0o7777));
    set.map_err(|error| failed_on("set the permissions of", &path, &error))?;
    stat(&caller.users, &path)
}

pub(crate) fn chown(caller: &Caller, request: &Chown) -> Result<FileStat, Failure> {
    let path = caller.place.resolve(&request.path)?;
    let uid = request.owner.as_deref().map(|owner| caller.users.uid(owner)).transpose()?;
    let gid = request.group.as_deref().map(|group| caller.users.gid(group)).transpose()?;
    lchown(&path, uid, gid).map_err(|error| failed_on("set the owner of", &path, &error))?;
    if request.recursive && fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = open(&path, flags, Mode::empty()).map_err(|error| failed_on("list", &path, &error.into()))?;
        let owner = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        tree::walk(top, &mut Giving { top: &path, owner })?;
    }
    stat(&caller.users, &path)
}

/// Gives every entry that the walk visits to another owner.
struct Giving<'a> {
    top: &'a Path,
    owner: (Option<Uid>, Option<Gid>),
}

impl Visitor for Giving<'_> {
    type Error = Failure;

    fn entry(&mut self, at: &At<'_>) -> Result<bool, Failure> {
        let (user, group) = self.owner;
        match chownat(at.folder, at.name, user, group, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => Ok(at.kind == FileType::Directory),
            // Removed since it was listed.
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed_on("set the owner of", &self.top.join(at.path()), &error.into())),
        }
    }

    fn skipped(&mut self, path: &Path, error: io::Error) -> Result<(), Failure> {
        // A filesystem that is mounted inside keeps its owners.
        if error.kind() == io::ErrorKind::CrossesDevices { Ok(()) } else { Err(self.fault(path, error)) }
    }

    fn fault(&mut self, path: &Path, error: io::Error) -> Failure {
        failed_on("list", &self.top.join(path), &error)
    }
}

pub(crate) fn symlink(caller: &Caller, request: &Symlink) -> Result<FileStat, Failure> {
    let path = caller.place.resolve(&request.path)?;
    if request.target.is_empty() || request.target.contains('\0') {
        return Err(bad_request("target of the link is empty or contains a NUL byte"));
    }
    let user = &caller.place.user;
    make_symlink(&request.target, &path)
        .and_then(|()| lchown(&path, Some(user.uid), Some(user.gid)))
        .map_err(|error| failed_on("create the link", &path, &error))?;
    stat(&caller.users, &path)
}
