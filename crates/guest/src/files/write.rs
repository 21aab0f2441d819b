//! Writing a file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use roost_wire::{ErrorCode, Failure, FileStat, JoinFiles, Reply, WriteFile, WriteHow};

use super::change::ensure_parents;
use super::stat::describe;
use super::{Caller, attributes, regular};
use crate::conn::{Conn, ConnError, Upload};
use crate::failure::{bad_request, failed_on};
use crate::guest::Guest;

/// Permission bits of a file that did not exist, if the call does not say.
const NEW_FILE: u32 = 0o644;

/// A file being written, beside its place or in it.
#[derive(Debug)]
struct Target {
    file: File,
    path: PathBuf,
    /// Where the content waits until all of it is there; removed unless it is moved to `path`.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting(PathBuf);

impl Drop for Waiting {
    fn drop(&mut self) {
        // After a rename there is nothing under this name any more.
        fs::remove_file(&self.0).ok();
    }
}

/// Receives a file.
pub(crate) fn write(guest: &Guest, conn: &mut Conn, request: &WriteFile) -> Result<(), ConnError> {
    let opened = Caller::new(guest, request.user.as_deref()).and_then(|caller| Ok((open(&caller, request)?, caller)));
    let (mut target, caller) = match opened {
        Ok(opened) => opened,
        Err(failure) => return conn.refuse_upload(failure),
    };
    let mut upload = Upload::new(conn);
    let mut result = Ok(());
    while let Some(piece) = upload.piece() {
        if let Err(error) = target.file.write_all(piece) {
            result = Err(failed_on("write", &target.path, &error));
            break;
        }
    }
    if result.is_ok() && upload.is_cut_short() {
        result = Err(bad_request("the sender gave up"));
    }
    if let (Ok(()), Some(wanted)) = (&result, &request.attributes) {
        result =
            attributes::set(&target.file, wanted).map_err(|error| failed_on("set attributes of", &target.path, &error));
    }
    let result = result.and_then(|()| target.settle(&caller)).map(Reply::Stat);
    upload.finish(result)
}

impl Target {
    /// Puts the content in its place.
    fn settle(self, caller: &Caller) -> Result<FileStat, Failure> {
        let path = &self.path;
        if let Some(waiting) = &self.waiting {
            fs::rename(&waiting.0, path).map_err(|error| failed_on("replace", path, &error))?;
        }
        let metadata = self.file.metadata().map_err(|error| failed_on("look at", path, &error))?;
        Ok(describe(&caller.users, path, &metadata))
    }
}

fn open(caller: &Caller, request: &WriteFile) -> Result<Target, Failure> {
    let mut path = caller.place.resolve(&request.path)?;
    // A link stays a link: what it points to is written. One that points nowhere is followed by the open itself.
    if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
        path = fs::canonicalize(&path).unwrap_or(path);
    }
    if request.path.ends_with('/') && !path.is_dir() {
        return Err(Failure::new(ErrorCode::PathNotFound, format!("`{}` names a folder", request.path)));
    }
    let existing = match fs::metadata(&path) {
        Ok(metadata) => {
            regular::check_writable(&path, &metadata)?;
            Some(metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed_on("look at", &path, &error)),
    };
    if request.create_parents {
        ensure_parents(&path, &caller.place.user)?;
    }
    let dangling = existing.is_none() && fs::symlink_metadata(&path).is_ok();
    let replaces = request.how == WriteHow::Replace && existing.as_ref().is_none_or(Metadata::is_file) && !dangling;
    let kept = existing.as_ref().map(|metadata| metadata.mode() & 0o7777);
    let mode = match (request.mode, kept) {
        (Some(mode), _) => Some(mode & 0o7777),
        (None, Some(mode)) => Some(mode).filter(|_| replaces),
        (None, None) => Some(NEW_FILE),
    };
    let target = match replaces {
        true => open_beside(path)?,
        false => open_in_place(path, request.how, mode.unwrap_or(NEW_FILE))?,
    };
    let user = &caller.place.user;
    let owner = match &existing {
        Some(metadata) if request.take_over && metadata.is_file() => Some((user.uid, user.gid)),
        // In its place it keeps what it has.
        Some(metadata) if replaces => Some((metadata.uid(), metadata.gid())),
        Some(_) => None,
        None => Some((user.uid, user.gid)),
    };
    if let Some((uid, gid)) = owner {
        let given = fchown(&target.file, Some(uid), Some(gid));
        given.map_err(|error| failed_on("set the owner of", &target.path, &error))?;
    }
    if let Some(mode) = mode {
        let set = set_mode(&target.file, mode);
        set.map_err(|error| failed_on("set the permissions of", &target.path, &error))?;
    }
    Ok(target)
}

/// Sets permission bits unless they are right already: whoever watches sees no more changes than needed.
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    if file.metadata()?.mode() & 0o7777 == mode {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(mode))
}

fn open_beside(path: PathBuf) -> Result<Target, Failure> {
    let waiting = beside(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&waiting);
    let file = file.map_err(|error| failed_on("create", &path, &error))?;
    Ok(Target { file, path, waiting: Some(Waiting(waiting)) })
}

/// Joins files to one and removes them. Until the result is in its place nothing is changed.
pub(crate) fn join(caller: &Caller, request: &JoinFiles) -> Result<FileStat, Failure> {
    let to = caller.place.resolve(&request.to)?;
    let mut sources = Vec::new();
    for source in &request.sources {
        let path = caller.place.resolve(source)?;
        let metadata = fs::metadata(&path).map_err(|error| failed_on("open", &path, &error))?;
        if !metadata.is_file() {
            return Err(bad_request(format!("`{}` is not a regular file", path.display())));
        }
        if path == to {
            return Err(bad_request(format!("`{}` would be joined to itself", path.display())));
        }
        sources.push(path);
    }
    let new = WriteFile {
        path: request.to.clone(),
        mode: Some(NEW_FILE),
        create_parents: true,
        take_over: true,
        ..WriteFile::default()
    };
    let mut target = open(caller, &new)?;
    for source in &sources {
        let (mut file, _) = regular::open(source)?;
        io::copy(&mut file, &mut target.file).map_err(|error| failed_on("join", source, &error))?;
    }
    let joined = target.settle(caller)?;
    for source in &sources {
        // Named twice, or removed by somebody else: gone either way.
        fs::remove_file(source).ok();
    }
    Ok(joined)
}

/// A name in the same folder that nobody else has.
pub(super) fn beside(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let unique = format!(".roost-{}-{}-{number}.tmp", std::process::id(), crate::exec::now_ms());
    path.with_file_name(unique)
}

/// The refusal of an opening. A device may refuse with any error, and it is the path that is at fault.
fn refusal_to_open(path: &Path, error: &io::Error) -> Failure {
    let refusal = failed_on("open", path, error);
    let device = refusal.code == ErrorCode::Internal && fs::metadata(path).is_ok_and(|found| !found.is_file());
    if device { bad_request(refusal.message) } else { refusal }
}

fn open_in_place(path: PathBuf, how: WriteHow, mode: u32) -> Result<Target, Failure> {
    let mut options = OpenOptions::new();
    // A pipe that is there since the path was looked at must not be waited for.
    options.write(true).create(true).mode(mode).custom_flags(regular::no_waiting());
    match how {
        WriteHow::Append => options.append(true),
        WriteHow::Replace | WriteHow::Truncate => options.truncate(true),
        WriteHow::At(_) => &mut options,
    };
    let mut file = options.open(&path).map_err(|error| refusal_to_open(&path, &error))?;
    regular::check_writable(&path, &file.metadata().map_err(|error| failed_on("look at", &path, &error))?)?;
    if let WriteHow::At(offset) = how {
        use std::io::Seek;
        file.seek(io::SeekFrom::Start(offset)).map_err(|error| failed_on("seek in", &path, &error))?;
    }
    Ok(Target { file, path, waiting: None })
}
