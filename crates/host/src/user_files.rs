//! Files of a sandbox as one of its users means them: whose home `~` is, and who owns what is made.

use std::collections::BTreeMap;
use std::error::Error;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use roost_model::{FileStat, Signal};
use roost_wire as wire;
use roost_wire::client::{CallError, Limits};
use roost_wire::{
    EventKind, JoinFiles, KeepWatch, LinkEnd, ListDir, MakeDir, MovePath, PathOf, RemovePath, Request, SetAttributes,
    Watch, WatchId, WriteFile, WriteHow,
};

use crate::convert::file_stat;
use crate::files::checked;
use crate::{FileDownload, Handle, HostError, ReadRange};

/// Changes as they happen.
pub type ChangeStream = Pin<Box<dyn Stream<Item = Result<Change, HostError>> + Send>>;

/// What is at a path, with all that is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is; a link itself, not what it leads to.
    pub stat: FileStat,
    /// Name of the owner, or its number where it has none.
    pub owner: String,
    /// Name of the group, or its number where it has none.
    pub group: String,
    /// Type and permission bits as the kernel gives them.
    pub st_mode: u32,
    /// What is at the end of a link, if anything is.
    pub leads_to: Option<LinkEnd>,
    /// Extended attributes of the namespace `user`, without its name.
    pub attributes: BTreeMap<String, String>,
}

/// A change of what is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: EventKind,
    /// Absolute path; empty for an overflow.
    pub path: String,
    /// Where it was before.
    pub moved_from: Option<String>,
    /// Whether what is gone from here was moved to where nobody watches.
    pub moved_away: bool,
    /// What is there now, if that was asked for and something is.
    pub entry: Option<Entry>,
}

/// How to watch a folder.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchOptions {
    /// Folders below too.
    pub recursive: bool,
    /// Say with each change what is there now.
    pub with_entries: bool,
    /// Also on a filesystem of the network, which does not tell of every change.
    pub network: bool,
}

/// Files as one user means them.
#[derive(Debug, Clone)]
pub struct UserFiles<'a> {
    handle: &'a Handle,
    user: Option<String>,
}

impl Handle {
    /// Its files as a user means them; the default user if none is named.
    pub fn files_of(&self, user: Option<&str>) -> UserFiles<'_> {
        UserFiles { handle: self, user: user.map(str::to_owned) }
    }
}

impl UserFiles<'_> {
    /// What a path is.
    pub async fn stat(&self, path: &str) -> Result<Entry, HostError> {
        let busy = self.handle.request(format!("file stat {path}"));
        let request = Request::Stat(PathOf { path: checked(path)?, user: self.user.clone() });
        self.handle.told_call(&request, &busy).await.map(entry)
    }

    /// What is in a folder, and in those below it down to a depth; the folder's own content has depth 1.
    pub async fn list(&self, path: &str, depth: u32) -> Result<Vec<Entry>, HostError> {
        let busy = self.handle.request(format!("file list {path}"));
        let list = ListDir { path: checked(path)?, user: self.user.clone(), depth };
        let (guest, mut stream) = self.handle.stream::<wire::Entries>(Request::List(list), &busy).await?;
        let (mut entries, mut bounded) = (Vec::new(), guest.bounded(Limits::ENTRIES));
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| guest.failed(error))?.entries;
            bounded.take(&batch).map_err(|error| match error {
                CallError::TooLarge(most) => {
                    HostError::LimitExceeded(format!("`{path}` has more than {most} below it: list less at once"))
                }
                error => guest.failed(error),
            })?;
            entries.extend(batch.into_iter().map(entry));
        }
        guest.release(stream);
        Ok(entries)
    }

    /// Makes a folder that must be new, and those missing on the way to it.
    pub async fn make_folder(&self, path: &str) -> Result<Entry, HostError> {
        let busy = self.handle.request(format!("file make {path}"));
        let (path, user) = (checked(path)?, self.user.clone());
        let request = MakeDir { path, user, mode: None, parents: true, must_be_new: true };
        self.handle.told_once(&Request::MakeDir(request), &busy).await.map(entry)
    }

    /// Moves a path, makes the folders missing on the way, and replaces a file that is there.
    pub async fn rename(&self, from: &str, to: &str) -> Result<Entry, HostError> {
        let busy = self.handle.request(format!("file move {from}"));
        let (from, to, user) = (checked(from)?, checked(to)?, self.user.clone());
        let request = MovePath { from, to, user, overwrite: true, create_parents: true };
        self.handle.told_once(&Request::Move(request), &busy).await.map(entry)
    }

    /// Removes a path with everything in it.
    pub async fn remove(&self, path: &str) -> Result<(), HostError> {
        let busy = self.handle.request(format!("file remove {path}"));
        let request = RemovePath { path: checked(path)?, user: self.user.clone(), recursive: true };
        self.handle.done_once(&Request::Remove(request), &busy).await
    }

    /// Reads a file.
    pub async fn read(&self, path: &str, range: ReadRange) -> Result<FileDownload, HostError> {
        self.handle.read_file_of(self.user.clone(), path, range).await
    }

    /// Writes a file in its place, gives it to the user, and makes the folders missing on the way.
    ///
    /// In its place, because programs that watch or have it open are to see the change; what it held before is gone as
    /// soon as the first bytes arrive.
    pub async fn write<D, E>(&self, path: &str, attributes: SetAttributes, data: D) -> Result<Entry, HostError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let write = WriteFile {
            path: checked(path)?,
            user: self.user.clone(),
            mode: None,
            how: WriteHow::Truncate,
            create_parents: true,
            take_over: true,
            attributes: Some(attributes),
        };
        self.handle.send_file(write, data).await.map(entry)
    }

    /// Joins files to one, in order, and removes them.
    pub async fn join(&self, sources: &[String], to: &str) -> Result<Entry, HostError> {
        let busy = self.handle.request(format!("file join {to}"));
        let sources = sources.iter().map(|source| checked(source)).collect::<Result<_, _>>()?;
        let request = JoinFiles { sources, to: checked(to)?, user: self.user.clone() };
        self.handle.told_once(&Request::Join(request), &busy).await.map(entry)
    }

    /// Watches a folder for as long as the stream is held; when this returns, the watch stands. Also says what is watched.
    pub async fn watch(&self, path: &str, options: WatchOptions) -> Result<(Entry, ChangeStream), HostError> {
        let busy = self.handle.request(format!("watch {path}"));
        let (guest, mut connection) = self.handle.connection(&busy).await?;
        let asked = Request::Stat(PathOf { path: checked(path)?, user: self.user.clone() });
        let watched = connection.call_stat(&asked).await.map_err(|error| guest.failed(error))?;
        let stream = connection.watch(self.asked(path, options)?).await.map_err(|error| guest.failed(error))?;
        let watching = self.handle.busy(Signal::Connections, format!("watch {path}"));
        drop(busy);
        let changes = stream.into_stream().map(move |event| {
            let _watching = &watching;
            event.map(change).map_err(|error| guest.failed(error))
        });
        Ok((entry(watched), Box::pin(changes)))
    }

    /// Starts a watch of a folder that goes on by itself and keeps what it sees; nothing of it keeps the sandbox awake.
    pub async fn keep_watch(&self, id: &str, path: &str, options: WatchOptions) -> Result<(), HostError> {
        let busy = self.handle.request(format!("watch {path}"));
        let request = KeepWatch { id: id.to_owned(), watch: self.asked(path, options)? };
        self.handle.told_once(&Request::KeepWatch(request), &busy).await.map(drop)
    }

    fn asked(&self, path: &str, options: WatchOptions) -> Result<Watch, HostError> {
        let WatchOptions { recursive, with_entries: with_stat, network } = options;
        let (path, user) = (checked(path)?, self.user.clone());
        Ok(Watch { path, user, recursive, with_stat, only_folder: true, only_local: !network })
    }
}

impl Handle {
    /// The path that a watch that goes on by itself watches, and what it has seen since it was last asked.
    pub async fn watched_changes(&self, id: &str) -> Result<(String, Vec<Change>), HostError> {
        let busy = self.request("watch");
        let (guest, connection) = self.connection(&busy).await?;
        let mut stream = connection.watch_events(id.to_owned()).await.map_err(|error| guest.failed(error))?;
        let root = stream.stat().map(|stat| stat.path.clone()).unwrap_or_default();
        let (mut changes, mut bounded) = (Vec::new(), guest.bounded(Limits::CHANGES));
        while let Some(event) = stream.next().await {
            let event = event.map_err(|error| guest.failed(error))?;
            bounded.take(std::slice::from_ref(&event)).map_err(|error| guest.failed(error))?;
            changes.push(change(event));
        }
        guest.release(stream);
        Ok((root, changes))
    }

    /// Ends a watch that goes on by itself.
    pub async fn end_watch(&self, id: &str) -> Result<(), HostError> {
        let busy = self.request("watch");
        self.done_once(&Request::EndWatch(WatchId { id: id.to_owned() }), &busy).await
    }
}

fn entry(told: wire::FileStat) -> Entry {
    let kind = match told.kind {
        wire::FileKind::File => 0o100_000,
        wire::FileKind::Directory => 0o040_000,
        wire::FileKind::Symlink => 0o120_000,
        wire::FileKind::Other => 0,
    };
    Entry {
        owner: told.user.clone().unwrap_or_else(|| told.uid.to_string()),
        group: told.group.clone().unwrap_or_else(|| told.gid.to_string()),
        // A guest that slept through an upgrade does not tell.
        st_mode: if told.st_mode == 0 { kind | told.mode } else { told.st_mode },
        leads_to: told.leads_to.clone(),
        attributes: told.attributes.clone(),
        stat: file_stat(told),
    }
}

fn change(event: wire::WatchEvent) -> Change {
    let wire::WatchEvent { kind, path, is_dir: _, moved_from, moved_away, stat } = event;
    Change { kind, path, moved_from, moved_away, entry: stat.map(|stat| entry(*stat)) }
}
