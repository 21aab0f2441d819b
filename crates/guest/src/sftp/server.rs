//! Requests and what is done for them.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions, Permissions, ReadDir};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatVfs, Timespec, Timestamps, fstatvfs, futimens, statvfs, utimensat};
use rustix::io::Errno;

use super::names::{expand, long_name, path, real};
use super::packet::{Attributes, Fields, Malformed, Packet};
use crate::users::Users;

const VERSION: u32 = 3;
/// Most bytes of one read; clients that ask what is allowed ask for this much.
const LONGEST_READ: usize = 255 * 1024;
/// Entries of a folder that are told at once.
const ENTRIES: usize = 100;
const MOST_HANDLES: usize = 1000;

const EXTENSIONS: &[(&str, &str)] = &[
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("lsetstat@openssh.com", "1"),
    ("limits@openssh.com", "1"),
    ("expand-path@openssh.com", "1"),
    ("home-directory", "1"),
];

mod kind {
    pub(super) const INIT: u8 = 1;
    pub(super) const VERSION: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSE: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const LSTAT: u8 = 7;
    pub(super) const FSTAT: u8 = 8;
    pub(super) const SETSTAT: u8 = 9;
    pub(super) const FSETSTAT: u8 = 10;
    pub(super) const OPENDIR: u8 = 11;
    pub(super) const READDIR: u8 = 12;
    pub(super) const REMOVE: u8 = 13;
    pub(super) const MKDIR: u8 = 14;
    pub(super) const RMDIR: u8 = 15;
    pub(super) const REALPATH: u8 = 16;
    pub(super) const STAT: u8 = 17;
    pub(super) const RENAME: u8 = 18;
    pub(super) const READLINK: u8 = 19;
    pub(super) const SYMLINK: u8 = 20;
    pub(super) const STATUS: u8 = 101;
    pub(super) const HANDLE: u8 = 102;
    pub(super) const DATA: u8 = 103;
    pub(super) const NAME: u8 = 104;
    pub(super) const ATTRS: u8 = 105;
    pub(super) const EXTENDED: u8 = 200;
    pub(super) const EXTENDED_REPLY: u8 = 201;
}

mod status {
    pub(super) const OK: u32 = 0;
    pub(super) const EOF: u32 = 1;
    pub(super) const NO_SUCH_FILE: u32 = 2;
    pub(super) const PERMISSION_DENIED: u32 = 3;
    pub(super) const FAILURE: u32 = 4;
    pub(super) const BAD_MESSAGE: u32 = 5;
    pub(super) const UNSUPPORTED: u32 = 8;
}

/// Why a request has no better answer than a status.
#[derive(Debug)]
enum Refusal {
    Io(io::Error),
    Status(u32, &'static str),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<Malformed> for Refusal {
    fn from(_: Malformed) -> Self {
        Self::Status(status::BAD_MESSAGE, "the request makes no sense")
    }
}

impl Refusal {
    fn packet(&self, id: u32) -> Packet {
        let (code, text) = match self {
            Self::Status(code, text) => (*code, (*text).to_owned()),
            Self::Io(error) => {
                let code = match error.kind() {
                    io::ErrorKind::NotFound => status::NO_SUCH_FILE,
                    io::ErrorKind::PermissionDenied => status::PERMISSION_DENIED,
                    io::ErrorKind::UnexpectedEof => status::EOF,
                    _ => status::FAILURE,
                };
                (code, error.to_string())
            }
        };
        said(id, code, &text)
    }
}

fn said(id: u32, code: u32, text: &str) -> Packet {
    Packet::new(kind::STATUS).u32(id).u32(code).bytes(text.as_bytes()).bytes(b"en")
}

#[derive(Debug)]
enum Handle {
    File { file: File, append: bool },
    Folder { path: PathBuf, entries: ReadDir, users: Users },
}

/// What a client has open.
#[derive(Debug, Default)]
pub(super) struct Server {
    handles: BTreeMap<u32, Handle>,
    next: u32,
}

type Answer = Result<Packet, Refusal>;

impl Server {
    /// Answers a request; an error means that the other side does not speak this protocol.
    pub(super) fn answer(&mut self, request: &[u8]) -> Result<Packet, Malformed> {
        let mut fields = Fields::new(request);
        let wanted = fields.byte()?;
        if wanted == kind::INIT {
            fields.u32()?;
            let known = EXTENSIONS.iter();
            return Ok(known.fold(Packet::new(kind::VERSION).u32(VERSION), |packet, (name, version)| {
                packet.bytes(name.as_bytes()).bytes(version.as_bytes())
            }));
        }
        let id = fields.u32()?;
        Ok(self.serve(wanted, id, &mut fields).unwrap_or_else(|refusal| refusal.packet(id)))
    }

    fn serve(&mut self, wanted: u8, id: u32, fields: &mut Fields<'_>) -> Answer {
        let done = || Ok(said(id, status::OK, ""));
        match wanted {
            kind::OPEN => self.open(id, fields),
            kind::CLOSE => {
                let number = handle_number(fields)?;
                self.handles.remove(&number).ok_or_else(no_handle)?;
                done()
            }
            kind::READ => self.read(id, fields),
            kind::WRITE => {
                let (number, offset, data) = (handle_number(fields)?, fields.u64()?, fields.bytes()?);
                match self.file(number)? {
                    (file, true) => io::Write::write_all(&mut &*file, data)?,
                    (file, false) => file.write_all_at(data, offset)?,
                }
                done()
            }
            kind::LSTAT => attributes(id, &fs::symlink_metadata(path(fields.bytes()?))?),
            kind::STAT => attributes(id, &fs::metadata(path(fields.bytes()?))?),
            kind::FSTAT => {
                let number = handle_number(fields)?;
                attributes(id, &self.metadata(number)?)
            }
            kind::SETSTAT => {
                let (path, wished) = (path(fields.bytes()?), fields.attributes()?);
                set(&path, &wished)?;
                done()
            }
            kind::FSETSTAT => {
                let (number, wished) = (handle_number(fields)?, fields.attributes()?);
                self.set_open(number, &wished)?;
                done()
            }
            kind::OPENDIR => {
                let path = path(fields.bytes()?);
                let entries = fs::read_dir(&path)?;
                self.keep(id, Handle::Folder { path, entries, users: Users::load() })
            }
            kind::READDIR => self.entries(id, fields),
            kind::REMOVE => {
                fs::remove_file(path(fields.bytes()?))?;
                done()
            }
            kind::MKDIR => {
                let (path, wished) = (path(fields.bytes()?), fields.attributes()?);
                fs::DirBuilder::new().mode(wished.mode.unwrap_or(0o777) & 0o7777).create(path)?;
                done()
            }
            kind::RMDIR => {
                fs::remove_dir(path(fields.bytes()?))?;
                done()
            }
            kind::REALPATH => name(id, &real(&path(fields.bytes()?))?),
            kind::RENAME => {
                let (from, to) = (path(fields.bytes()?), path(fields.bytes()?));
                // This version of the protocol does not replace what is there.
                if fs::symlink_metadata(&to).is_ok() {
                    return Err(Refusal::Status(status::FAILURE, "the new name is taken"));
                }
                fs::rename(from, to)?;
                done()
            }
            kind::READLINK => name(id, &fs::read_link(path(fields.bytes()?))?),
            kind::SYMLINK => {
                // In the order of OpenSSH, which all clients follow, not that of the draft.
                let (target, link) = (path(fields.bytes()?), path(fields.bytes()?));
                symlink(target, link)?;
                done()
            }
            kind::EXTENDED => {
                let which = fields.bytes()?;
                self.extended(id, which, fields)
            }
            _ => Err(Refusal::Status(status::UNSUPPORTED, "this is not supported")),
        }
    }

    fn extended(&mut self, id: u32, which: &[u8], fields: &mut Fields<'_>) -> Answer {
        let done = || Ok(said(id, status::OK, ""));
        match which {
            b"posix-rename@openssh.com" => {
                let (from, to) = (path(fields.bytes()?), path(fields.bytes()?));
                fs::rename(from, to)?;
                done()
            }
            b"hardlink@openssh.com" => {
                let (from, to) = (path(fields.bytes()?), path(fields.bytes()?));
                fs::hard_link(from, to)?;
                done()
            }
            b"fsync@openssh.com" => {
                let number = handle_number(fields)?;
                self.file(number)?.0.sync_all()?;
                done()
            }
            b"lsetstat@openssh.com" => {
                let (path, wished) = (path(fields.bytes()?), fields.attributes()?);
                set_link(&path, &wished)?;
                done()
            }
            b"statvfs@openssh.com" => Ok(space(id, &statvfs(path(fields.bytes()?))?)),
            b"fstatvfs@openssh.com" => {
                let number = handle_number(fields)?;
                Ok(space(id, &fstatvfs(self.file(number)?.0.as_fd())?))
            }
            b"limits@openssh.com" => {
                let longest = LONGEST_READ as u64;
                let packet = Packet::new(kind::EXTENDED_REPLY).u32(id).u64(256 * 1024);
                Ok(packet.u64(longest).u64(longest).u64(MOST_HANDLES as u64))
            }
            b"expand-path@openssh.com" => name(id, &real(&expand(fields.bytes()?))?),
            b"home-directory" => name(id, &expand(b"~")),
            _ => Err(Refusal::Status(status::UNSUPPORTED, "this extension is not supported")),
        }
    }

    fn open(&mut self, id: u32, fields: &mut Fields<'_>) -> Answer {
        const READ: u32 = 1;
        const WRITE: u32 = 2;
        const APPEND: u32 = 4;
        const CREATE: u32 = 8;
        const TRUNCATE: u32 = 16;
        const EXCLUSIVE: u32 = 32;
        let (path, flags, wished) = (path(fields.bytes()?), fields.u32()?, fields.attributes()?);
        let has = |flag: u32| flags & flag != 0;
        let mut options = OpenOptions::new();
        options.read(has(READ)).write(has(WRITE)).append(has(APPEND)).mode(wished.mode.unwrap_or(0o666) & 0o7777);
        if has(CREATE) && has(EXCLUSIVE) {
            options.create_new(true);
        } else {
            options.create(has(CREATE)).truncate(has(TRUNCATE) && !has(APPEND));
        }
        let file = options.open(&path)?;
        if file.metadata()?.is_dir() {
            return Err(Refusal::Io(io::ErrorKind::IsADirectory.into()));
        }
        self.keep(id, Handle::File { file, append: has(APPEND) })
    }

    fn keep(&mut self, id: u32, handle: Handle) -> Answer {
        if self.handles.len() >= MOST_HANDLES {
            return Err(Refusal::Status(status::FAILURE, "too many files are open"));
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.handles.insert(number, handle);
        Ok(Packet::new(kind::HANDLE).u32(id).bytes(&number.to_be_bytes()))
    }

    /// An open file, and whether it is only added to.
    fn file(&self, number: u32) -> Result<(&File, bool), Refusal> {
        match self.handles.get(&number) {
            Some(Handle::File { file, append }) => Ok((file, *append)),
            _ => Err(no_handle()),
        }
    }

    fn metadata(&self, number: u32) -> Result<Metadata, Refusal> {
        match self.handles.get(&number) {
            Some(Handle::File { file, .. }) => Ok(file.metadata()?),
            Some(Handle::Folder { path, .. }) => Ok(fs::metadata(path)?),
            None => Err(no_handle()),
        }
    }

    fn set_open(&self, number: u32, wished: &Attributes) -> Result<(), Refusal> {
        let file = match self.handles.get(&number) {
            Some(Handle::File { file, .. }) => file,
            Some(Handle::Folder { path, .. }) => return set(path, wished),
            None => return Err(no_handle()),
        };
        if let Some(size) = wished.size {
            file.set_len(size)?;
        }
        if let Some((uid, gid)) = wished.owner {
            std::os::unix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        if let Some(mode) = wished.mode {
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        if let Some(times) = wished.times {
            futimens(file, &timestamps(times))?;
        }
        Ok(())
    }

    fn read(&self, id: u32, fields: &mut Fields<'_>) -> Answer {
        let (number, offset, length) = (handle_number(fields)?, fields.u64()?, fields.u32()? as usize);
        let (file, _) = self.file(number)?;
        let read = |room: &mut [u8]| {
            loop {
                match file.read_at(room, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            }
        };
        match Packet::new(kind::DATA).u32(id).filled(length.min(LONGEST_READ), read)? {
            (_, 0) if length > 0 => Err(Refusal::Status(status::EOF, "end of file")),
            (packet, _) => Ok(packet),
        }
    }

    fn entries(&mut self, id: u32, fields: &mut Fields<'_>) -> Answer {
        let number = handle_number(fields)?;
        let Some(Handle::Folder { path, entries, users }) = self.handles.get_mut(&number) else {
            return Err(no_handle());
        };
        let mut found = Vec::new();
        for entry in entries.take(ENTRIES) {
            let name = entry?.file_name();
            // One that is gone again, or not for this user to look at, has a name all the same.
            let metadata = fs::symlink_metadata(path.join(&name)).ok();
            found.push((name, metadata));
        }
        if found.is_empty() {
            return Err(Refusal::Status(status::EOF, "end of folder"));
        }
        let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
        Ok(found.iter().fold(Packet::new(kind::NAME).u32(id).u32(count), |packet, (name, metadata)| {
            let (long, attributes) = match metadata {
                Some(metadata) => (long_name(users, name, metadata), Attributes::of(metadata)),
                None => (name.as_bytes().to_vec(), Attributes::default()),
            };
            packet.bytes(name.as_bytes()).bytes(&long).attributes(&attributes)
        }))
    }
}

fn handle_number(fields: &mut Fields<'_>) -> Result<u32, Refusal> {
    let bytes = fields.bytes()?.try_into().map_err(|_| no_handle())?;
    Ok(u32::from_be_bytes(bytes))
}

fn no_handle() -> Refusal {
    Refusal::Status(status::FAILURE, "nothing is open under this handle")
}

fn attributes(id: u32, metadata: &Metadata) -> Answer {
    Ok(Packet::new(kind::ATTRS).u32(id).attributes(&Attributes::of(metadata)))
}

fn name(id: u32, path: &Path) -> Answer {
    let bytes = path.as_os_str().as_bytes();
    Ok(Packet::new(kind::NAME).u32(id).u32(1).bytes(bytes).bytes(bytes).attributes(&Attributes::default()))
}

fn set(path: &Path, wished: &Attributes) -> Result<(), Refusal> {
    if let Some(size) = wished.size {
        OpenOptions::new().write(true).open(path)?.set_len(size)?;
    }
    if let Some((uid, gid)) = wished.owner {
        chown(path, Some(uid), Some(gid))?;
    }
    if let Some(mode) = wished.mode {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
    }
    if let Some(times) = wished.times {
        utimensat(CWD, path, &timestamps(times), AtFlags::empty())?;
    }
    Ok(())
}

/// The same for a link itself, which has neither a size nor permissions that could be changed.
fn set_link(path: &Path, wished: &Attributes) -> Result<(), Refusal> {
    if wished.size.is_some() {
        return Err(Refusal::Status(status::FAILURE, "a link has no size to set"));
    }
    if let Some((uid, gid)) = wished.owner {
        lchown(path, Some(uid), Some(gid))?;
    }
    if let Some(mode) = wished.mode
        && !fs::symlink_metadata(path)?.is_symlink()
    {
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
    }
    if let Some(times) = wished.times {
        utimensat(CWD, path, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn timestamps((accessed, modified): (u32, u32)) -> Timestamps {
    let at = |seconds: u32| Timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    Timestamps { last_access: at(accessed), last_modification: at(modified) }
}

fn space(id: u32, found: &StatVfs) -> Packet {
    const READ_ONLY: u64 = 1;
    const NO_SETUID: u64 = 2;
    let has = |flag, value| if found.f_flag.contains(flag) { value } else { 0 };
    let flags =
        has(rustix::fs::StatVfsMountFlags::RDONLY, READ_ONLY) | has(rustix::fs::StatVfsMountFlags::NOSUID, NO_SETUID);
    [
        found.f_bsize,
        found.f_frsize,
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        found.f_favail,
        found.f_fsid,
        flags,
        found.f_namemax,
    ]
    .into_iter()
    .fold(Packet::new(kind::EXTENDED_REPLY).u32(id), Packet::u64)
}
