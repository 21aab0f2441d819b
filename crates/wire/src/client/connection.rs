//! A connection and its plain calls.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::frame::{self, FrameError, Kind};
use crate::{
    Dial, ExecFilter, ExecInfo, ExecList, Failure, FileStat, GuestInfo, Hello, Key, ListProcesses, PROTOCOL,
    ProcessInfo, Reply, Request,
};

use super::codec::{FrameReader, FrameWriter};

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The guest refused; the connection is still good.
    #[error("guest refused: {0}")]
    Refused(Failure),
    /// The guest hung up.
    #[error("guest closed the connection")]
    Closed,
    /// The connection broke.
    #[error("connection to the guest failed")]
    Io(#[from] io::Error),
    /// What arrived, or what was to be sent, is not a frame.
    #[error("frame of the guest connection is invalid")]
    Frame(#[from] FrameError),
    /// A frame arrived that has no place here.
    #[error("guest sent an unexpected frame of kind {0:?}")]
    UnexpectedFrame(Kind),
    /// A reply of another sort than the request calls for.
    #[error("guest sent an unexpected reply")]
    UnexpectedReply(Box<Reply>),
    /// An earlier call on this connection was left unfinished.
    #[error("connection to the guest was left in the middle of a call")]
    Unfinished,
    /// The data to be sent could not be had.
    #[error("failed to read the data to send to the guest")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl CallError {
    /// The refusal, if the guest refused.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            CallError::Refused(failure) => Some(failure),
            _ => None,
        }
    }
}

/// A connection to a guest, with at most one call at a time.
#[derive(Debug)]
pub struct Connection<S> {
    pub(super) reader: FrameReader<ReadHalf<S>>,
    pub(super) writer: FrameWriter<WriteHalf<S>>,
    /// Whether the last call was carried to its end.
    pub(super) settled: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Takes a connected stream. The greeting is sent together with the first request, so this does not wait.
    pub fn new(stream: S, key: &Key) -> Result<Self, CallError> {
        let (reader, writer) = tokio::io::split(stream);
        let mut connection = Self { reader: FrameReader::new(reader), writer: FrameWriter::new(writer), settled: true };
        let mut hello = Vec::new();
        frame::put_json(&mut hello, Kind::Hello, &Hello { protocol: PROTOCOL, key: key.clone() })?;
        connection.writer.queue(&hello);
        Ok(connection)
    }

    /// Whether the last call ended cleanly, so that another can follow on this connection.
    pub fn is_reusable(&self) -> bool {
        self.settled && self.reader.is_drained()
    }

    /// Gives the stream back; anything still in line is lost.
    pub fn into_inner(self) -> S {
        self.reader.into_inner().unsplit(self.writer.into_inner())
    }

    /// Makes a call that has one reply and no stream.
    pub async fn call(&mut self, request: &Request) -> Result<Reply, CallError> {
        self.begin(request).await?;
        let reply = self.reply().await?;
        self.settled = true;
        Ok(reply)
    }

    /// A call that is answered with [`Reply::Exec`].
    pub async fn call_exec(&mut self, request: &Request) -> Result<ExecInfo, CallError> {
        match self.call(request).await? {
            Reply::Exec(info) => Ok(info),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }

    /// A call that is answered with [`Reply::Stat`].
    pub async fn call_stat(&mut self, request: &Request) -> Result<FileStat, CallError> {
        match self.call(request).await? {
            Reply::Stat(stat) => Ok(stat),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }

    /// A call that is answered with [`Reply::Done`].
    pub async fn call_done(&mut self, request: &Request) -> Result<(), CallError> {
        match self.call(request).await? {
            Reply::Done => Ok(()),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }

    /// Has the guest connect to a port of its own loopback and gives the stream over: what is written arrives there, what
    /// comes from there is the returned bytes and then what is read.
    pub async fn tunnel(self, port: u16) -> Result<(S, Bytes), CallError> {
        self.tunnel_by(&Request::Dial(Dial { port })).await
    }

    /// The same for any request that is answered with a connection.
    pub async fn tunnel_by(mut self, request: &Request) -> Result<(S, Bytes), CallError> {
        self.call_done(request).await?;
        let (reader, ahead) = self.reader.into_parts();
        Ok((reader.unsplit(self.writer.into_inner()), ahead))
    }

    /// Asks whether the guest is there.
    pub async fn ping(&mut self) -> Result<GuestInfo, CallError> {
        match self.call(&Request::Ping).await? {
            Reply::Pong(info) => Ok(info),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }

    /// Has the guest close every connection, this one last; when this returns, it holds none of them any more.
    pub async fn quiesce(mut self) -> Result<(), CallError> {
        self.call_done(&Request::Quiesce).await?;
        match self.reader.next().await {
            Err(CallError::Closed) => Ok(()),
            // However it ended, it has.
            Err(CallError::Io(_)) => Ok(()),
            Err(error) => Err(error),
            Ok((kind, _)) => Err(CallError::UnexpectedFrame(kind)),
        }
    }

    /// Those execs the guest remembers that are meant, ordered by id.
    pub async fn exec_list(&mut self, filter: ExecFilter) -> Result<Vec<ExecInfo>, CallError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.call(&Request::ExecList(ExecList { after, filter: filter.clone() })).await? {
                Reply::Execs(page) => match page.last() {
                    None => return Ok(all),
                    Some(last) => {
                        after = Some(last.id.clone());
                        all.extend(page.into_iter().filter(|exec| filter.fits(exec)));
                    }
                },
                other => return Err(CallError::UnexpectedReply(Box::new(other))),
            }
        }
    }

    /// Everything that runs inside, by pid.
    pub async fn processes(&mut self) -> Result<Vec<ProcessInfo>, CallError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.call(&Request::Processes(ListProcesses { after })).await? {
                Reply::Processes(page) => match page.last() {
                    None => return Ok(all),
                    Some(last) => {
                        after = Some(last.pid);
                        all.extend(page);
                    }
                },
                other => return Err(CallError::UnexpectedReply(Box::new(other))),
            }
        }
    }

    /// Sends a request; from here on the connection is unsettled until its last frame was read.
    pub(super) async fn begin(&mut self, request: &Request) -> Result<(), CallError> {
        if !self.settled {
            return Err(CallError::Unfinished);
        }
        let mut bytes = Vec::new();
        frame::put_json(&mut bytes, Kind::Request, request)?;
        self.settled = false;
        self.writer.queue(&bytes);
        match self.writer.flush().await {
            Ok(()) => Ok(()),
            // A guest that refuses the key hangs up while the request is still on its way; its reason may be there.
            Err(error) => match self.reply().await {
                Err(refused @ CallError::Refused(_)) => {
                    self.settled = false;
                    Err(refused)
                }
                _ => Err(error.into()),
            },
        }
    }

    /// Reads the reply to a request. A refusal settles the connection.
    pub(super) async fn reply(&mut self) -> Result<Reply, CallError> {
        match self.reader.next().await? {
            (Kind::Reply, body) => Ok(frame::json_body(Kind::Reply, &body)?),
            (Kind::Failure, body) => {
                let failure: Failure = frame::json_body(Kind::Failure, &body)?;
                // After a wrong key or an unreadable frame the guest hangs up.
                self.settled = failure.code != crate::ErrorCode::Unauthorized;
                Err(CallError::Refused(failure))
            }
            (other, _) => Err(CallError::UnexpectedFrame(other)),
        }
    }
}
