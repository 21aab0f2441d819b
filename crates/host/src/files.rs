//! Files of a sandbox. All work happens in the guest, as the sandbox sees paths.

use std::error::Error;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use roost_model::{FileStat, MakeFolder, MoveFile, PatchFile, Signal};
use roost_wire::client::{Bounded, CallError, Limits};
use roost_wire::{
    ArchiveIn, ArchiveOut, Chmod, Chown, Entries, ListDir, MakeDir, MovePath, PathOf, ReadFile, RemovePath, Reply,
    Request, Symlink, Watch, WriteFile, WriteHow,
};

use crate::HostError;
use crate::convert::{file_stat, parse_mode, watch_event};
use crate::download::{ByteStream, FileDownload};
use crate::guards::Busy;
use crate::handle::Handle;

/// Changes as they happen.
pub type WatchStream = std::pin::Pin<Box<dyn Stream<Item = Result<roost_model::WatchEvent, HostError>> + Send>>;

/// A folder and its entries as they come.
pub struct FileListing {
    /// The folder.
    pub path: String,
    /// Its entries, some at a time. An error is the last item.
    pub batches: BatchStream,
}

/// Entries of a folder, some at a time.
pub type BatchStream = std::pin::Pin<Box<dyn Stream<Item = Result<Vec<FileStat>, HostError>> + Send>>;

impl std::fmt::Debug for FileListing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileListing").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Which part of a file to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadRange {
    /// First byte.
    pub offset: u64,
    /// At most this many.
    pub length: Option<u64>,
}

/// How to write a file.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Permission bits, octal.
    pub mode: Option<String>,
    /// Who owns it; the template's user if absent.
    pub owner: Option<String>,
    /// Add to its end instead of replacing it.
    pub append: bool,
    /// Make missing folders.
    pub parents: bool,
}

impl Handle {
    /// What a path is; a link itself, not what it leads to.
    pub async fn stat(&self, path: &str) -> Result<FileStat, HostError> {
        let busy = self.request(format!("file stat {path}"));
        self.stat_call(&Request::Stat(path_of(path)?), &busy).await
    }

    /// The entries of a folder, as they come.
    pub async fn list_files(&self, path: &str) -> Result<FileListing, HostError> {
        let busy = self.request(format!("file list {path}"));
        let list = ListDir { path: checked(path)?, user: None, depth: 1 };
        let (guest, entries) = self.stream::<Entries>(Request::List(list), &busy).await?;
        let path = entries.stat().map_or_else(|| path.to_owned(), |stat| stat.path.clone());
        let bounded = Bounded::new(Limits::PASSED_ENTRIES);
        // The guard is held until the last batch was taken.
        let entries = stream::unfold(Some((entries, bounded, guest, busy)), |open| async {
            let (mut entries, mut bounded, guest, busy) = open?;
            let Some(batch) = entries.next().await else {
                guest.release(entries);
                guest.note_reply(bounded.bytes());
                return None;
            };
            match batch.and_then(|batch| bounded.take(&batch.entries).map(|()| batch.entries)) {
                Ok(batch) => {
                    let batch = batch.into_iter().map(file_stat).collect();
                    Some((Ok(batch), Some((entries, bounded, guest, busy))))
                }
                Err(error) => {
                    guest.note_reply(bounded.bytes());
                    Some((Err(guest.failed(error)), None))
                }
            }
        });
        Ok(FileListing { path, batches: Box::pin(entries.fuse()) })
    }

    /// Reads a file.
    pub async fn read_file(&self, path: &str, range: ReadRange) -> Result<FileDownload, HostError> {
        self.read_file_of(None, path, range).await
    }

    /// Reads a file whose path a user means.
    pub(crate) async fn read_file_of(
        &self,
        user: Option<String>,
        path: &str,
        range: ReadRange,
    ) -> Result<FileDownload, HostError> {
        let busy = self.request(format!("file read {path}"));
        let read = ReadFile { path: checked(path)?, user, offset: range.offset, len: range.length };
        let (guest, content) = self.stream::<Bytes>(Request::Read(read), &busy).await?;
        let stat = content.stat().cloned().ok_or_else(|| guest.unexpected(Reply::Done))?;
        let left = stat.size.saturating_sub(range.offset);
        let length = range.length.map_or(left, |most| most.min(left));
        // The guard is held until the last piece was taken.
        let most = range.length.unwrap_or(u64::MAX);
        let content = stream::unfold(Some((content, most, guest, busy)), |open| async {
            let (mut content, most, guest, busy) = open?;
            match content.next().await {
                Some(Ok(piece)) => match most.checked_sub(piece.len() as u64) {
                    Some(left) => Some((Ok(piece), Some((content, left, guest, busy)))),
                    None => Some((Err(guest.failed(CallError::Contradiction("the length of the file"))), None)),
                },
                Some(Err(error)) => Some((Err(guest.failed(error)), None)),
                None => {
                    guest.release(content);
                    None
                }
            }
        });
        // Files of `/proc` and `/sys` have other sizes than they say, often none.
        let known = (stat.size > 0).then_some(length);
        Ok(FileDownload { stat: file_stat(stat), length, known, content: Box::pin(content.fuse()) })
    }

    /// Writes a file; the new content takes the old one's place when all of it has arrived.
    pub async fn write_file<D, E>(&self, path: &str, options: &WriteOptions, data: D) -> Result<FileStat, HostError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let write = WriteFile {
            path: checked(path)?,
            user: options.owner.clone(),
            mode: options.mode.as_deref().map(parse_mode).transpose()?,
            how: if options.append { WriteHow::Append } else { WriteHow::Replace },
            create_parents: options.parents,
            ..WriteFile::default()
        };
        self.send_file(write, data).await.map(file_stat)
    }

    /// Writes a file, told in the guest's own words.
    pub(crate) async fn send_file<D, E>(&self, write: WriteFile, data: D) -> Result<roost_wire::FileStat, HostError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let busy = self.request(format!("file write {}", write.path));
        let (guest, mut connection) = self.connection(&busy).await?;
        let stat = connection.write_file(write, data).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(stat)
    }

    /// Makes a folder.
    pub async fn make_folder(&self, wanted: &MakeFolder) -> Result<FileStat, HostError> {
        let mode = wanted.mode.as_deref().map(parse_mode).transpose()?;
        let request = MakeDir { path: checked(&wanted.path)?, mode, parents: wanted.parents, ..MakeDir::default() };
        let busy = self.request(format!("file make {}", wanted.path));
        self.stat_once(&Request::MakeDir(request), &busy).await
    }

    /// Moves a path.
    pub async fn move_file(&self, wanted: &MoveFile) -> Result<FileStat, HostError> {
        let (from, to) = (checked(&wanted.from)?, checked(&wanted.to)?);
        let request = MovePath { from, to, overwrite: true, ..MovePath::default() };
        let busy = self.request(format!("file move {}", wanted.from));
        self.stat_once(&Request::Move(request), &busy).await
    }

    /// Changes mode or owner of a path, or makes it a symbolic link.
    pub async fn patch_file(&self, path: &str, patch: &PatchFile) -> Result<FileStat, HostError> {
        let path = checked(path)?;
        let busy = self.request(format!("file change {path}"));
        if let Some(target) = &patch.symlink_to {
            let request = Symlink { path: path.clone(), target: target.clone(), user: None };
            self.stat_once(&Request::Symlink(request), &busy).await?;
        }
        if let Some(mode) = &patch.mode {
            let request = Chmod { path: path.clone(), user: None, mode: parse_mode(mode)? };
            self.stat_call(&Request::Chmod(request), &busy).await?;
        }
        if let Some(owner) = &patch.owner {
            let (owner, group) = match owner.split_once(':') {
                Some((owner, group)) => (owner, Some(group.to_owned())),
                None => (owner.as_str(), None),
            };
            let owner = (!owner.is_empty()).then(|| owner.to_owned());
            let request = Chown { path: path.clone(), user: None, owner, group, recursive: false };
            self.stat_call(&Request::Chown(request), &busy).await?;
        }
        self.stat(&path).await
    }

    /// Removes a path.
    pub async fn remove_file(&self, path: &str, recursive: bool) -> Result<(), HostError> {
        let request = Request::Remove(RemovePath { path: checked(path)?, user: None, recursive });
        let busy = self.request(format!("file remove {path}"));
        self.done_once(&request, &busy).await
    }

    /// A folder or file as a tar stream.
    pub async fn archive_out(&self, path: &str) -> Result<ByteStream, HostError> {
        let busy = self.request(format!("file read {path}"));
        let (guest, connection) = self.connection(&busy).await?;
        let archive = ArchiveOut { path: checked(path)?, user: None };
        let stream = connection.archive_out(archive).await.map_err(|error| guest.failed(error))?;
        Ok(Box::pin(stream.into_stream().map(move |piece| {
            let _busy = &busy;
            piece.map_err(|error| guest.failed(error))
        })))
    }

    /// Unpacks a tar stream into a folder.
    pub async fn archive_in<D, E>(&self, path: &str, owner: Option<String>, data: D) -> Result<FileStat, HostError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let busy = self.request(format!("file write {path}"));
        let (guest, mut connection) = self.connection(&busy).await?;
        let archive = ArchiveIn { path: checked(path)?, user: owner, keep_owners: false };
        let stat = connection.archive_in(archive, data).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(file_stat(stat))
    }

    /// Watches a path; when this returns, the watch stands.
    pub async fn watch(&self, path: &str, recursive: bool) -> Result<WatchStream, HostError> {
        let busy = self.request(format!("watch {path}"));
        let (guest, connection) = self.connection(&busy).await?;
        let watch = Watch { path: checked(path)?, recursive, ..Watch::default() };
        let stream = connection.watch(watch).await.map_err(|error| guest.failed(error))?;
        let watching = self.busy(Signal::Connections, format!("watch {path}"));
        drop(busy);
        let events = stream.into_stream().map(move |event| {
            let _watching = &watching;
            match event {
                Ok(event) => Ok(watch_event(event)),
                Err(error) => Err(guest.failed(error)),
            }
        });
        Ok(Box::pin(events))
    }

    async fn stat_call(&self, request: &Request, busy: &Busy) -> Result<FileStat, HostError> {
        self.told_call(request, busy).await.map(file_stat)
    }

    async fn stat_once(&self, request: &Request, busy: &Busy) -> Result<FileStat, HostError> {
        self.told_once(request, busy).await.map(file_stat)
    }

    /// What the guest says of a file, in its own words.
    pub(crate) async fn told_call(&self, request: &Request, busy: &Busy) -> Result<roost_wire::FileStat, HostError> {
        match self.call(request, busy).await? {
            Reply::Stat(stat) => Ok(stat),
            other => Err(self.unexpected(other)),
        }
    }

    /// A call that would answer differently the second time, so never over a connection that may be stale.
    pub(crate) async fn told_once(&self, request: &Request, busy: &Busy) -> Result<roost_wire::FileStat, HostError> {
        let (guest, mut connection) = self.connection(busy).await?;
        let stat = connection.call_stat(request).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(stat)
    }

    /// A call that is done or refused, and would be refused the second time.
    pub(crate) async fn done_once(&self, request: &Request, busy: &Busy) -> Result<(), HostError> {
        let (guest, mut connection) = self.connection(busy).await?;
        connection.call_done(request).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(())
    }
}

fn path_of(path: &str) -> Result<PathOf, HostError> {
    Ok(PathOf { path: checked(path)?, user: None })
}

pub(crate) fn checked(path: &str) -> Result<String, HostError> {
    if path.is_empty() {
        return Err(HostError::BadRequest("a path is needed".to_owned()));
    }
    if path.contains('\0') {
        return Err(HostError::BadRequest("a path cannot hold a zero byte".to_owned()));
    }
    Ok(path.to_owned())
}
