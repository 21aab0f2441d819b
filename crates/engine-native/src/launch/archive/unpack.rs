//! An archive into a folder.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
    fchown, futimens, mkdirat, openat, openat2, seek, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::header::{BLOCK, Header, Kind};
use super::{MOST, Unfit};

/// Nothing in an archive leads out of the folder.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An entry and its content.
type Entry<'a> = (Header, &'a [u8]);

/// Unpacks all that follows in `from`; nothing is made before all is known to be usual.
pub(super) fn unpack(from: BorrowedFd<'_>, folder: &Path) -> Result<(), Unfit> {
    // Only what can be read again can be left to others.
    let begin = seek(from, SeekFrom::Current(0)).map_err(|_| Unfit::Unusual)?;
    let mut packed = Vec::new();
    fs::File::from(from.try_clone_to_owned()?).take(MOST as u64 + 1).read_to_end(&mut packed)?;
    let entries = if packed.len() > MOST { Err(Unfit::Unusual) } else { entries(&packed) };
    let entries = match entries {
        Ok(entries) => entries,
        Err(unfit) => {
            seek(from, SeekFrom::Start(begin))?;
            return Err(unfit);
        }
    };
    let top = openat(CWD, folder, FOLDER, Mode::empty())?;
    for entry in &entries {
        make(&top, entry)?;
    }
    // Last, and those within others before them: what is made in a folder changes its time, and may need its owner's rights.
    for (header, _) in entries.iter().rev().filter(|(header, _)| header.kind == Kind::Folder) {
        let made = openat2(&top, path(&header.name), FOLDER, Mode::empty(), BENEATH)?;
        describe(&made, header)?;
    }
    Ok(())
}

fn entries(packed: &[u8]) -> Result<Vec<Entry<'_>>, Unfit> {
    let mut entries = Vec::new();
    let mut rest = packed;
    loop {
        let (block, after) = rest.split_first_chunk::<BLOCK>().ok_or(Unfit::Unusual)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(entries);
        }
        let header = Header::read(block)?;
        let is_within = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !path(&header.name).components().all(is_within) {
            return Err(Unfit::Unusual);
        }
        let size = if let Kind::File(size) = header.kind { size } else { 0 };
        let size = usize::try_from(size).map_err(|_| Unfit::Unusual)?;
        let content = after.get(..size).ok_or(Unfit::Unusual)?;
        rest = after.get(size.next_multiple_of(BLOCK)..).ok_or(Unfit::Unusual)?;
        entries.push((header, content));
    }
}

fn make(top: &OwnedFd, (header, content): &Entry<'_>) -> Result<(), Unfit> {
    let path = path(&header.name);
    let Some(name) = path.file_name() else { return Ok(()) };
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let parent = openat2(top, parent, FOLDER, Mode::empty(), BENEATH)?;
    match &header.kind {
        Kind::Folder => match mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => Ok(()),
            made => Ok(made?),
        },
        Kind::File(_) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = in_place_of_another(&parent, name, || openat(&parent, name, flags, Mode::RUSR | Mode::WUSR))?;
            let mut file = fs::File::from(made);
            file.write_all(content)?;
            Ok(describe(&file, header)?)
        }
        Kind::Link(target) => {
            let target = OsStr::from_bytes(target);
            in_place_of_another(&parent, name, || symlinkat(target, &parent, name))?;
            let (user, group) = owner(header);
            chownat(&parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(utimensat(&parent, name, &times(header), AtFlags::SYMLINK_NOFOLLOW)?)
        }
    }
}

/// Makes something where another may be.
fn in_place_of_another<T>(
    parent: &OwnedFd,
    name: &OsStr,
    make: impl Fn() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(parent, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

/// Owner first: a change of it takes away bits of the mode.
fn describe(made: impl AsFd, header: &Header) -> io::Result<()> {
    let (user, group) = owner(header);
    fchown(&made, user, group)?;
    fchmod(&made, Mode::from_raw_mode(header.mode))?;
    Ok(futimens(&made, &times(header))?)
}

fn owner(header: &Header) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(header.user)), Some(Gid::from_raw(header.group)))
}

fn times(header: &Header) -> Timestamps {
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    // A field of eleven octal digits fits.
    let changed = Timespec { tv_sec: header.time.cast_signed(), tv_nsec: 0 };
    Timestamps { last_access: unchanged, last_modification: changed }
}

fn path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}
