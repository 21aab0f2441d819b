//! What inotify says, in the wire's words.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roost_wire::{ErrorCode, EventKind, Failure, FileStat, Watch, WatchEvent};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::failure::{bad_request, failed, failed_on};
use crate::files::Caller;
use crate::files::list::sorted_names;
use crate::files::stat::stat;
use crate::users::Users;

/// Room for the events of one read; the kernel keeps the rest.
const BUFFER: usize = 8 * 1024;
/// Most events that are looked at before any is sent.
const MAX_EVENTS: usize = 4096;
/// The kernel's word of a write that was found does not come later than this.
const LATE: Duration = Duration::from_secs(2);
/// Filesystems on which others make changes that inotify does not see: NFS, CIFS, SMB, SMB2, FUSE.
const NETWORK: [u32; 5] = [0x6969, 0xff53_4d42, 0x517b, 0xfe53_4d42, 0x6573_5546];

/// An inotify instance and what its watches stand for.
#[derive(Debug)]
pub(super) struct Watcher {
    inotify: OwnedFd,
    /// The watch of the path that was asked for.
    root: i32,
    paths: BTreeMap<i32, PathBuf>,
    recursive: bool,
    with_stat: bool,
    /// Found in a new folder, so that the kernel's own word of it, if there is one, would be the second.
    told: Told,
}

/// Paths whose creation, and perhaps a write to them, has been told without the kernel's word.
///
/// The kernel's word of a creation, if it comes at all, was in its queue when the folder was looked through. So a path can be
/// forgotten when the queue has been read to its end once more. That of a write comes a moment after the bytes.
#[derive(Debug, Default)]
struct Told {
    before: BTreeSet<PathBuf>,
    now: BTreeSet<PathBuf>,
    written: BTreeMap<PathBuf, (Version, Instant)>,
}

/// What tells one state of a file from the next: size, and time of the last change in seconds and nanoseconds.
type Version = (u64, i64, i64);

/// An event as the kernel tells it.
#[derive(Debug, Clone)]
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: PathBuf,
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Watcher {
    /// Watches what is asked for, and says what that is.
    pub(super) fn open(caller: &Caller, request: &Watch) -> Result<(Self, FileStat), Failure> {
        let path = caller.place.resolve(&request.path)?;
        let described = stat(&caller.users, &path)?;
        if request.only_folder && !path.is_dir() {
            return Err(Failure::new(ErrorCode::NotADirectory, format!("`{}` is not a folder", path.display())));
        }
        if request.only_local {
            check_local(&path)?;
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| failed("make a watch", &error.into()))?;
        let mut watcher = Self {
            inotify,
            root: 0,
            paths: BTreeMap::new(),
            recursive: request.recursive,
            with_stat: request.with_stat,
            told: Told::default(),
        };
        watcher.root = watcher.add(&path)?;
        if request.recursive {
            watcher.add_below(&path, &mut Vec::new())?;
            watcher.told = Told::default();
        }
        Ok((watcher, described))
    }

    /// The kernel's queue, to be waited for elsewhere.
    pub(super) fn queue(&self) -> io::Result<OwnedFd> {
        self.inotify.try_clone()
    }

    fn add(&mut self, path: &Path) -> Result<i32, Failure> {
        let wanted = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF;
        match inotify::add_watch(&self.inotify, path, wanted) {
            Ok(watch) => {
                self.paths.insert(watch, path.to_owned());
                Ok(watch)
            }
            Err(Errno::NOSPC) => {
                Err(Failure::new(ErrorCode::LimitExceeded, format!("no watch is left for `{}`", path.display())))
            }
            Err(error) => Err(failed_on("watch", path, &error.into())),
        }
    }

    /// Watches every folder below `folder` and tells what is found there.
    fn add_below(&mut self, folder: &Path, found: &mut Vec<WatchEvent>) -> Result<(), Failure> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for name in sorted_names(&folder).unwrap_or_default() {
                let path = folder.join(name);
                let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
                found.push(event(EventKind::Created, &path, metadata.is_dir()));
                if metadata.is_file() && metadata.size() > 0 {
                    found.push(event(EventKind::Modified, &path, false));
                    self.told.written.insert(path.clone(), (version(&metadata), Instant::now()));
                }
                self.told.now.insert(path.clone());
                if metadata.is_dir() {
                    match self.add(&path) {
                        // It vanished between the listing and now.
                        Err(failure) if failure.code == ErrorCode::PathNotFound => {}
                        added => drop(added?),
                    }
                    folders.push(path);
                }
            }
        }
        Ok(())
    }

    /// Everything that has happened by now.
    pub(super) fn events(&mut self) -> io::Result<Vec<WatchEvent>> {
        let (raws, is_all) = self.read()?;
        let mut events = Vec::new();
        let mut pending: Option<Raw> = None;
        for raw in raws {
            let left = pending.take();
            if raw.flags.contains(ReadFlags::MOVED_FROM) {
                events.extend(left.and_then(|raw| self.moved_away(&raw)));
                pending = Some(raw);
                continue;
            }
            if raw.flags.contains(ReadFlags::MOVED_TO)
                && let Some(from) = left.as_ref().filter(|left| left.cookie == raw.cookie)
            {
                events.extend(self.moved(from, &raw));
                continue;
            }
            events.extend(left.and_then(|raw| self.moved_away(&raw)));
            self.translate(&raw, &mut events);
        }
        events.extend(pending.and_then(|raw| self.moved_away(&raw)));
        self.told.age(is_all);
        if self.with_stat {
            let users = Users::load();
            events.iter_mut().for_each(|event| add_stat(&users, event));
        }
        Ok(events)
    }

    /// What the kernel has to tell, and whether that is all of it.
    fn read(&self) -> io::Result<(Vec<Raw>, bool)> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut raws = Vec::new();
        // Bounded, because whoever makes the events may never pause.
        while raws.len() < MAX_EVENTS {
            match reader.next() {
                Ok(event) => raws.push(Raw {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event
                        .file_name()
                        .map(|name| PathBuf::from(OsStr::from_bytes(name.to_bytes())))
                        .unwrap_or_default(),
                }),
                Err(Errno::AGAIN) => return Ok((raws, true)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((raws, false))
    }

    fn path(&self, raw: &Raw) -> Option<PathBuf> {
        let watched = self.paths.get(&raw.watch)?;
        Some(if raw.name.as_os_str().is_empty() { watched.clone() } else { watched.join(&raw.name) })
    }

    fn moved_away(&mut self, raw: &Raw) -> Option<WatchEvent> {
        let (path, is_dir) = (self.path(raw)?, raw.flags.contains(ReadFlags::ISDIR));
        if is_dir {
            // What happens to it elsewhere is none of ours. If it only moved on within, it is found there.
            let below: Vec<i32> =
                self.paths.iter().filter(|(_, watched)| watched.starts_with(&path)).map(|(watch, _)| *watch).collect();
            for watch in below {
                self.paths.remove(&watch);
                inotify::remove_watch(&self.inotify, watch).ok();
            }
        }
        Some(WatchEvent { moved_away: true, ..event(EventKind::Removed, &path, is_dir) })
    }

    fn moved(&mut self, from: &Raw, to: &Raw) -> Option<WatchEvent> {
        let (from, path) = (self.path(from)?, self.path(to)?);
        // Watches move along with their folders; only our names for them are old.
        for watched in self.paths.values_mut() {
            if let Ok(rest) = watched.strip_prefix(&from) {
                *watched = if rest.as_os_str().is_empty() { path.clone() } else { path.join(rest) };
            }
        }
        let mut moved = event(EventKind::Moved, &path, to.flags.contains(ReadFlags::ISDIR));
        moved.moved_from = Some(from.to_string_lossy().into_owned());
        Some(moved)
    }

    fn translate(&mut self, raw: &Raw, events: &mut Vec<WatchEvent>) {
        let is_dir = raw.flags.contains(ReadFlags::ISDIR);
        if raw.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            events.push(overflow());
            return;
        }
        if raw.flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&raw.watch);
            return;
        }
        // What happens to a folder below is told by the folder that holds it, too.
        if raw.name.as_os_str().is_empty() && raw.watch != self.root {
            return;
        }
        let Some(path) = self.path(raw) else { return };
        let kind = if raw.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            EventKind::Created
        } else if raw.flags.contains(ReadFlags::MODIFY) {
            EventKind::Modified
        } else if raw.flags.contains(ReadFlags::ATTRIB) {
            EventKind::Attrib
        } else if raw.flags.intersects(ReadFlags::DELETE | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) {
            EventKind::Removed
        } else {
            return;
        };
        if kind == EventKind::Removed {
            self.told.forget(&path);
        }
        let is_second =
            match kind {
                EventKind::Created => self.told.has(&path),
                // A write since then has left another version, and is told.
                EventKind::Modified => self.told.written.remove(&path).is_some_and(|(told, _)| {
                    fs::symlink_metadata(&path).is_ok_and(|metadata| version(&metadata) == told)
                }),
                _ => false,
            };
        if is_second {
            return;
        }
        let moved_away = raw.flags.contains(ReadFlags::MOVE_SELF);
        events.push(WatchEvent { moved_away, ..event(kind, &path, is_dir) });
        if kind == EventKind::Created && is_dir && self.recursive {
            // What was put into it before the watch stood would be missed. If no watch is left, say that some is.
            if self.add(&path).and_then(|_| self.add_below(&path, events)).is_err() && path.exists() {
                events.push(overflow());
            }
        }
    }
}

impl Told {
    fn has(&self, path: &Path) -> bool {
        self.before.contains(path) || self.now.contains(path)
    }

    /// What is created there from now on is something else.
    fn forget(&mut self, path: &Path) {
        self.before.remove(path);
        self.now.remove(path);
        self.written.remove(path);
    }

    /// To be called after each look at the queue.
    fn age(&mut self, was_all: bool) {
        let now = std::mem::take(&mut self.now);
        if was_all {
            self.before = now;
        } else {
            self.before.extend(now);
        }
        self.written.retain(|_, (_, found)| found.elapsed() < LATE);
    }
}

fn version(metadata: &fs::Metadata) -> Version {
    (metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

fn check_local(path: &Path) -> Result<(), Failure> {
    let filesystem = rustix::fs::statfs(path).map_err(|error| failed_on("look at", path, &error.into()))?;
    // The kernel's numbers have 32 bits, whatever the width of the field.
    if NETWORK.contains(&(filesystem.f_type as u32)) {
        return Err(bad_request(format!("`{}` is on a filesystem of the network", path.display())));
    }
    Ok(())
}

fn event(kind: EventKind, path: &Path, is_dir: bool) -> WatchEvent {
    let path = path.to_string_lossy().into_owned();
    WatchEvent { kind, path, is_dir, moved_from: None, moved_away: false, stat: None }
}

/// The word that events were lost.
pub(super) fn overflow() -> WatchEvent {
    event(EventKind::Overflow, Path::new(""), false)
}

fn add_stat(users: &Users, event: &mut WatchEvent) {
    if !matches!(event.kind, EventKind::Removed | EventKind::Overflow) {
        event.stat = stat(users, Path::new(&event.path)).ok().map(Box::new);
    }
}
