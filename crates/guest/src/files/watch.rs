//! Watching files and folders.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use roost_wire::frame::Kind;
use roost_wire::{ErrorCode, EventKind, Failure, Reply, Watch, WatchEvent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use super::Caller;
use super::list::sorted_names;
use crate::conn::{Conn, ConnError};
use crate::failure::{failed, failed_on};
use crate::guest::Guest;

/// Room for the events of one read; the kernel keeps the rest.
const BUFFER: usize = 8 * 1024;

/// Most events that are looked at before any is sent.
const MAX_EVENTS: usize = 4096;

/// An inotify instance and what its watches stand for.
#[derive(Debug)]
struct Watcher {
    inotify: OwnedFd,
    paths: BTreeMap<i32, PathBuf>,
    recursive: bool,
}

/// An event as the kernel tells it.
#[derive(Debug, Clone)]
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: PathBuf,
}

/// Tells of changes until the peer hangs up.
pub(crate) fn watch(guest: &Guest, conn: &mut Conn, request: &Watch) -> Result<(), ConnError> {
    let opened = Caller::new(guest, request.user.as_deref()).and_then(|caller| {
        let path = caller.place.resolve(&request.path)?;
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| failed("make a watch", &error.into()))?;
        let mut watcher = Watcher { inotify, paths: BTreeMap::new(), recursive: request.recursive };
        watcher.add(&path)?;
        if request.recursive {
            watcher.add_below(&path, &mut Vec::new())?;
        }
        Ok(watcher)
    });
    let mut watcher = match opened {
        Ok(watcher) => watcher,
        Err(failure) => return conn.answer(Err(failure)),
    };
    conn.answer(Ok(Reply::Done))?;
    loop {
        let mut fds =
            [PollFd::new(&watcher.inotify, PollFlags::IN), PollFd::new(conn, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(ConnError::Gone),
        }
        let [_, peer] = &fds;
        if !peer.revents().is_empty() {
            // A watch ends only by hanging up.
            return Err(ConnError::Gone);
        }
        for event in watcher.events()? {
            conn.queue(Kind::WatchEvent, &event)?;
        }
        conn.flush()?;
    }
}

impl Watcher {
    fn add(&mut self, path: &Path) -> Result<(), Failure> {
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
                Ok(())
            }
            Err(Errno::NOSPC) => {
                Err(Failure::new(ErrorCode::LimitExceeded, format!("no watch is left for `{}`", path.display())))
            }
            Err(error) => Err(failed_on("watch", path, &error.into())),
        }
    }

    /// Watches every folder below `folder` and notes what is found there.
    fn add_below(&mut self, folder: &Path, found: &mut Vec<WatchEvent>) -> Result<(), Failure> {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for name in sorted_names(&folder).unwrap_or_default() {
                let path = folder.join(name);
                let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
                found.push(event(EventKind::Created, &path, is_dir));
                if is_dir {
                    match self.add(&path) {
                        // It vanished between the listing and now.
                        Err(failure) if failure.code == ErrorCode::PathNotFound => {}
                        added => added?,
                    }
                    folders.push(path);
                }
            }
        }
        Ok(())
    }

    /// Everything that has happened by now.
    fn events(&mut self) -> Result<Vec<WatchEvent>, ConnError> {
        let raws = self.read()?;
        let mut events = Vec::new();
        let mut pending: Option<Raw> = None;
        for raw in raws {
            let left = pending.take();
            if raw.flags.contains(ReadFlags::MOVED_FROM) {
                events.extend(left.and_then(|raw| self.gone(&raw)));
                pending = Some(raw);
                continue;
            }
            if raw.flags.contains(ReadFlags::MOVED_TO)
                && let Some(from) = left.as_ref().filter(|left| left.cookie == raw.cookie)
            {
                events.extend(self.moved(from, &raw));
                continue;
            }
            events.extend(left.and_then(|raw| self.gone(&raw)));
            self.translate(&raw, &mut events);
        }
        events.extend(pending.and_then(|raw| self.gone(&raw)));
        Ok(events)
    }

    fn read(&self) -> Result<Vec<Raw>, ConnError> {
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
                Err(Errno::AGAIN) => return Ok(raws),
                Err(Errno::INTR) => {}
                Err(_) => return Err(ConnError::Gone),
            }
        }
        Ok(raws)
    }

    fn path(&self, raw: &Raw) -> Option<PathBuf> {
        let watched = self.paths.get(&raw.watch)?;
        Some(if raw.name.as_os_str().is_empty() { watched.clone() } else { watched.join(&raw.name) })
    }

    fn gone(&self, raw: &Raw) -> Option<WatchEvent> {
        Some(event(EventKind::Removed, &self.path(raw)?, raw.flags.contains(ReadFlags::ISDIR)))
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
            events.push(event(EventKind::Overflow, Path::new(""), false));
            return;
        }
        if raw.flags.contains(ReadFlags::IGNORED) {
            self.paths.remove(&raw.watch);
            return;
        }
        let Some(path) = self.path(raw) else { return };
        let kind = if raw.flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            EventKind::Created
        } else if raw.flags.contains(ReadFlags::MODIFY) {
            EventKind::Modified
        } else if raw.flags.contains(ReadFlags::ATTRIB) {
            EventKind::Attrib
        } else if raw.flags.contains(ReadFlags::DELETE) {
            EventKind::Removed
        } else if raw.flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF) && self.is_root(raw) {
            // For anything below, the folder that holds it tells the same.
            EventKind::Removed
        } else {
            return;
        };
        events.push(event(kind, &path, is_dir));
        if kind == EventKind::Created && is_dir && self.recursive {
            // What was put into it before the watch stood would be missed. If no watch is left, say that some is.
            if self.add(&path).and_then(|()| self.add_below(&path, events)).is_err() && path.exists() {
                events.push(event(EventKind::Overflow, Path::new(""), false));
            }
        }
    }

    /// Whether an event is about the path that was asked for.
    fn is_root(&self, raw: &Raw) -> bool {
        self.paths.keys().next() == Some(&raw.watch)
    }
}

fn event(kind: EventKind, path: &Path, is_dir: bool) -> WatchEvent {
    WatchEvent { kind, path: path.to_string_lossy().into_owned(), is_dir, moved_from: None }
}
