//! Streams that come from the guest: files, archives, listings, watches.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::frame::{self, FrameError, Kind};
use crate::{
    ArchiveOut, Entries, Failure, FileStat, ListDir, ReadFile, Reply, Request, StreamEnd, Watch, WatchEvent, WatchId,
};

use super::connection::in_time;
use super::{CallError, Connection};

/// Something a frame of one kind is decoded into.
pub trait FromFrame: Sized {
    /// The kind of frame.
    const KIND: Kind;

    /// Decodes the body.
    fn from_body(body: Bytes) -> Result<Self, FrameError>;
}

impl FromFrame for Bytes {
    const KIND: Kind = Kind::FileData;

    fn from_body(body: Bytes) -> Result<Self, FrameError> {
        Ok(body)
    }
}

impl FromFrame for Entries {
    const KIND: Kind = Kind::Entries;

    fn from_body(body: Bytes) -> Result<Self, FrameError> {
        frame::json_body(Self::KIND, &body)
    }
}

impl FromFrame for WatchEvent {
    const KIND: Kind = Kind::WatchEvent;

    fn from_body(body: Bytes) -> Result<Self, FrameError> {
        frame::json_body(Self::KIND, &body)
    }
}

/// A stream of `T` from the guest.
#[derive(Debug)]
pub struct Incoming<S, T> {
    connection: Connection<S>,
    stat: Option<FileStat>,
    /// Longest wait for the next item.
    patience: Option<Duration>,
    ended: bool,
    items: PhantomData<fn() -> T>,
}

/// Content of a file, or a tar stream.
pub type FileStream<S> = Incoming<S, Bytes>;
/// A listing.
pub type EntryStream<S> = Incoming<S, Entries>;
/// Changes of a watched path.
pub type WatchStream<S> = Incoming<S, WatchEvent>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Reads a file.
    pub async fn read_file(self, read: ReadFile) -> Result<FileStream<S>, CallError> {
        Incoming::open(self, Request::Read(read)).await
    }

    /// Reads a file or folder as a tar stream.
    pub async fn archive_out(self, archive: ArchiveOut) -> Result<FileStream<S>, CallError> {
        Incoming::open(self, Request::ArchiveOut(archive)).await
    }

    /// Lists a folder.
    pub async fn list(self, list: ListDir) -> Result<EntryStream<S>, CallError> {
        Incoming::open(self, Request::List(list)).await
    }

    /// Watches a file or folder; when this returns, the watch stands.
    pub async fn watch(self, watch: Watch) -> Result<WatchStream<S>, CallError> {
        Incoming::open(self, Request::Watch(watch)).await
    }

    /// What a watch that goes on by itself has seen since it was last asked.
    pub async fn watch_events(self, id: String) -> Result<WatchStream<S>, CallError> {
        Incoming::open(self, Request::WatchEvents(WatchId { id })).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send, T: FromFrame> Incoming<S, T> {
    /// Makes a call that is answered by a stream of such items.
    pub async fn open(mut connection: Connection<S>, request: Request) -> Result<Self, CallError> {
        connection.begin(&request).await?;
        let stat = match connection.reply().await? {
            Reply::Stat(stat) => Some(stat),
            Reply::Done => None,
            other => return Err(CallError::UnexpectedReply(Box::new(other))),
        };
        let patience = request.patience().item;
        Ok(Self { connection, stat, patience, ended: false, items: PhantomData })
    }

    /// What the stream is of; nothing for a watch.
    pub fn stat(&self) -> Option<&FileStat> {
        self.stat.as_ref()
    }

    /// The next item; `None` after the last or an error. Safe to cancel.
    pub async fn next(&mut self) -> Option<Result<T, CallError>> {
        if self.ended {
            return None;
        }
        let item = self.receive().await.transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }

    async fn receive(&mut self) -> Result<Option<T>, CallError> {
        let (frame, _turn) = in_time(self.patience, self.connection.reader.next()).await?;
        match frame {
            (kind, body) if kind == T::KIND => Ok(Some(T::from_body(body)?)),
            (Kind::End, body) => {
                let _end: StreamEnd = frame::json_body(Kind::End, &body)?;
                self.connection.settled = true;
                Ok(None)
            }
            (Kind::Failure, body) => {
                let failure: Failure = frame::json_body(Kind::Failure, &body)?;
                self.connection.settled = true;
                Err(CallError::Refused(failure))
            }
            (other, _) => Err(CallError::UnexpectedFrame(other)),
        }
    }

    /// The same as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<T, CallError>> + Send
    where
        T: Send,
        S: 'static,
    {
        futures_util::stream::unfold(self, |mut incoming| async move {
            let item = incoming.next().await?;
            Some((item, incoming))
        })
    }

    /// The connection, for another call, if the stream was read to its end.
    pub fn into_connection(self) -> Option<Connection<S>> {
        self.connection.is_reusable().then_some(self.connection)
    }
}
