//! Streams that go to the guest: files and archives.

use std::error::Error;
use std::pin::pin;

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::frame::{self, Kind, MAX_DATA};
use crate::{ArchiveIn, FileStat, Reply, Request, StreamEnd, WriteFile};

use super::{CallError, Connection};

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Writes a file. If `data` fails, or this is cancelled, a file that is being replaced stays as it was.
    pub async fn write_file<D, E>(&mut self, write: WriteFile, data: D) -> Result<FileStat, CallError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.upload(Request::Write(write), data).await
    }

    /// Writes a file from memory.
    pub async fn write_bytes(&mut self, write: WriteFile, data: Bytes) -> Result<FileStat, CallError> {
        let once = futures_util::stream::iter([Ok::<_, std::io::Error>(data)]);
        self.write_file(write, once).await
    }

    /// Unpacks a tar stream into a folder.
    pub async fn archive_in<D, E>(&mut self, archive: ArchiveIn, data: D) -> Result<FileStat, CallError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.upload(Request::ArchiveIn(archive), data).await
    }

    /// The guest may answer before the data ends (the disk is full, the path is a folder). It then reads on and discards
    /// until the end, so the connection stays usable.
    async fn upload<D, E>(&mut self, request: Request, data: D) -> Result<FileStat, CallError>
    where
        D: Stream<Item = Result<Bytes, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.begin(&request).await?;
        let mut data = pin!(data);
        let mut count = 0;
        let early = loop {
            let next = tokio::select! {
                biased;
                // The data may be slow to come, and the guest waits for it.
                reply = self.early_reply() => break Some(reply),
                next = data.next() => next,
            };
            match next {
                Some(Ok(mut bytes)) => {
                    while bytes.has_remaining() {
                        let piece = bytes.split_to(bytes.len().min(MAX_DATA));
                        count += piece.len() as u64;
                        self.writer.send_data(Kind::FileData, piece).await?;
                    }
                }
                Some(Err(error)) => {
                    self.finish(count, true).await?;
                    // The guest confirms that it gave up; its reply says no more than that.
                    let settled = matches!(self.reply().await, Err(CallError::Refused(_)));
                    self.settled = settled;
                    return Err(CallError::Source(error.into()));
                }
                None => break None,
            }
        };
        self.finish(count, early.is_some()).await?;
        let reply = match early {
            Some(reply) => reply,
            None => self.reply().await,
        };
        match reply? {
            Reply::Stat(stat) => {
                self.settled = true;
                Ok(stat)
            }
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }

    async fn finish(&mut self, count: u64, abort: bool) -> Result<(), CallError> {
        let mut end = Vec::new();
        frame::put_json(&mut end, Kind::End, &StreamEnd { count, abort })?;
        self.writer.queue(&end);
        Ok(self.writer.flush().await?)
    }
}
