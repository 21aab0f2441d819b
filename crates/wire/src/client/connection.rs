//! A connection and its plain calls.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::frame::{self, FrameError, Kind};
use crate::{
    Dial, ExecFilter, ExecInfo, ExecList, Failure, FileStat, GuestInfo, Hello, Key, ListProcesses, PROTOCOL,
    ProcessInfo, Reply, Request,
};

use super::bounds::{Bounded, Limits};
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
    /// The request does not fit into a frame.
    #[error("request to the guest cannot be sent")]
    Unsendable(#[source] FrameError),
    /// A frame arrived that has no place here.
    #[error("guest sent an unexpected frame of kind {0:?}")]
    UnexpectedFrame(Kind),
    /// A reply of another sort than the request calls for.
    #[error("guest sent an unexpected reply")]
    UnexpectedReply(Box<Reply>),
    /// The guest took longer than a reply or a frame may take.
    #[error("guest sent no whole reply within {} s", .0.as_secs())]
    Slow(Duration),
    /// The guest sent more than one call collects.
    #[error("guest sent more than {0}")]
    TooLarge(Limits),
    /// All calls together hold as many replies of guests as the daemon holds.
    #[error("replies of guests take {} MiB already, the most that the daemon holds at once", .0 >> 20)]
    NoRoom(usize),
    /// A list, or the output of a process, repeats itself, goes backwards or stands still.
    #[error("guest sent {0} that do not go forward")]
    Backwards(&'static str),
    /// The reply is about another process than the request, or contradicts itself.
    #[error("guest sent a reply that contradicts {0}")]
    Contradiction(&'static str),
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

    /// Whether the connection merely ended, so that the call may succeed on another one.
    pub fn is_lost(&self) -> bool {
        matches!(self, CallError::Closed | CallError::Io(_))
    }

    /// Whether the guest broke the protocol, which another connection does not mend.
    pub fn is_breach(&self) -> bool {
        match self {
            CallError::Frame(_)
            | CallError::UnexpectedFrame(_)
            | CallError::UnexpectedReply(_)
            | CallError::TooLarge(_)
            | CallError::Backwards(_)
            | CallError::Contradiction(_) => true,
            CallError::Refused(_)
            | CallError::Closed
            | CallError::Io(_)
            | CallError::Slow(_)
            | CallError::NoRoom(_)
            | CallError::Unsendable(_)
            | CallError::Unfinished
            | CallError::Source(_) => false,
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
    /// Longest wait for the reply to the call that is under way.
    pub(super) patience: Option<Duration>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Takes a connected stream. The greeting is sent together with the first request, so this does not wait.
    pub fn new(stream: S, key: &Key) -> Result<Self, CallError> {
        let (reader, writer) = tokio::io::split(stream);
        let (reader, writer) = (FrameReader::new(reader), FrameWriter::new(writer));
        let mut connection = Self { reader, writer, settled: true, patience: None };
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
        if let Reply::Exec(info) = &reply {
            check_exec(info, request.exec_id())?;
        }
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
            Ok(((kind, _), _)) => Err(CallError::UnexpectedFrame(kind)),
        }
    }

    /// Those execs the guest remembers that are meant, ordered by id.
    pub async fn exec_list(&mut self, filter: ExecFilter, mut bounded: Bounded) -> Result<Vec<ExecInfo>, CallError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.call(&Request::ExecList(ExecList { after: after.clone(), filter: filter.clone() })).await? {
                Reply::Execs(page) if page.is_empty() => return Ok(all),
                Reply::Execs(page) => {
                    after = bounded.page(&page, after, |exec| exec.id.clone())?;
                    page.iter().try_for_each(|exec| check_exec(exec, None))?;
                    all.extend(page.into_iter().filter(|exec| filter.fits(exec)));
                }
                other => return Err(CallError::UnexpectedReply(Box::new(other))),
            }
        }
    }

    /// Everything that runs inside, by pid.
    pub async fn processes(&mut self, mut bounded: Bounded) -> Result<Vec<ProcessInfo>, CallError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.call(&Request::Processes(ListProcesses { after })).await? {
                Reply::Processes(page) if page.is_empty() => return Ok(all),
                Reply::Processes(page) => {
                    after = bounded.page(&page, after, |process| process.pid)?;
                    all.extend(page);
                }
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
        frame::put_json(&mut bytes, Kind::Request, request).map_err(CallError::Unsendable)?;
        self.settled = false;
        self.patience = request.patience().reply;
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

    /// Reads the reply to a request, which must come in time. A refusal settles the connection.
    pub(super) async fn reply(&mut self) -> Result<Reply, CallError> {
        in_time(self.patience, self.early_reply()).await
    }

    /// Reads the reply to a request, however late it comes.
    pub(super) async fn early_reply(&mut self) -> Result<Reply, CallError> {
        let (frame, _turn) = self.reader.next().await?;
        match frame {
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

/// Ends a wait for the guest when its time is up.
pub(super) async fn in_time<T>(
    most: Option<Duration>,
    wait: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match most {
        Some(most) => tokio::time::timeout(most, wait).await.unwrap_or(Err(CallError::Slow(most))),
        None => wait.await,
    }
}

/// The exec of a reply, which must be the one that was asked for.
pub(super) fn exec_of(reply: Reply, asked: Option<&str>) -> Result<ExecInfo, CallError> {
    match reply {
        Reply::Exec(info) => check_exec(&info, asked).map(|()| info),
        other => Err(CallError::UnexpectedReply(Box::new(other))),
    }
}

/// Checks that an exec is the one that was asked for and can be true.
pub(super) fn check_exec(info: &ExecInfo, asked: Option<&str>) -> Result<(), CallError> {
    if asked.is_some_and(|asked| asked != info.id) {
        return Err(CallError::Contradiction("the id of the process"));
    }
    if info.is_sound() { Ok(()) } else { Err(CallError::Contradiction("itself")) }
}
