//! Following a process, and talking to it meanwhile.

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};

use crate::frame::{self, FrameError, Kind, MAX_DATA};
use crate::{
    Attach, ExecAttach, ExecId, ExecInfo, ExecStart, ExecStdin, Failure, Gap, Request, ResizeTo, SendSignal,
    ServiceLog, Stream, StreamEnd, WindowSize,
};

use super::codec::{FrameReader, FrameWriter};
use super::connection::{check_exec, exec_of};
use super::forward::Forward;
use super::{CallError, Connection};

/// What an attachment delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecFrame {
    /// Bytes of one stream, without gap or repeat after those before.
    Output {
        /// Which stream.
        stream: Stream,
        /// Absolute offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Bytes that are no longer kept.
    Gap(Gap),
    /// The last frame: the exec as it is now, ended if the attachment followed it.
    End(ExecInfo),
}

/// The reading half of an attachment.
#[derive(Debug)]
pub struct ExecOutput<S> {
    reader: FrameReader<ReadHalf<S>>,
    /// The exec whose output comes, where the request named one.
    id: Option<String>,
    forward: Forward,
    ended: bool,
}

/// The writing half of an attachment.
#[derive(Debug)]
pub struct ExecInput<S> {
    writer: FrameWriter<WriteHalf<S>>,
}

/// An attachment to an exec.
#[derive(Debug)]
pub struct ExecStream<S> {
    info: ExecInfo,
    output: ExecOutput<S>,
    input: ExecInput<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Starts a process and follows it on the same connection, in one round trip.
    pub async fn start_and_follow(self, mut start: ExecStart, attach: Attach) -> Result<ExecStream<S>, CallError> {
        start.attach = Some(attach);
        self.open_exec(&Request::ExecStart(start)).await
    }

    /// Attaches to an exec that was started before.
    pub async fn attach(self, id: impl Into<String>, attach: Attach) -> Result<ExecStream<S>, CallError> {
        self.open_exec(&Request::ExecAttach(ExecAttach { id: id.into(), attach })).await
    }

    /// Attaches to a service's log.
    pub async fn service_log(self, log: ServiceLog) -> Result<ExecStream<S>, CallError> {
        self.open_exec(&Request::ServiceLog(log)).await
    }

    async fn open_exec(mut self, request: &Request) -> Result<ExecStream<S>, CallError> {
        self.begin(request).await?;
        let id = request.exec_id().map(str::to_owned);
        let info = exec_of(self.reply().await?, id.as_deref())?;
        let output = ExecOutput { reader: self.reader, id, forward: Forward::default(), ended: false };
        Ok(ExecStream { info, output, input: ExecInput { writer: self.writer } })
    }

    /// Starts a process and leaves it to itself.
    pub async fn exec_start(&mut self, mut start: ExecStart) -> Result<ExecInfo, CallError> {
        start.attach = None;
        self.call_exec(&Request::ExecStart(start)).await
    }

    /// Waits until an exec has ended.
    pub async fn exec_wait(&mut self, id: impl Into<String>) -> Result<ExecInfo, CallError> {
        self.call_exec(&Request::ExecWait(ExecId { id: id.into() })).await
    }

    /// Writes to an exec's standard input and waits until the process's pipe has taken it.
    pub async fn exec_stdin(
        &mut self,
        id: impl Into<String>,
        mut data: Bytes,
        close: bool,
    ) -> Result<ExecInfo, CallError> {
        let request = Request::ExecStdin(ExecStdin { id: id.into(), close });
        self.begin(&request).await?;
        let count = data.len() as u64;
        while data.has_remaining() {
            let piece = data.split_to(data.len().min(MAX_DATA));
            self.writer.send_data(Kind::Stdin, piece).await?;
        }
        let mut end = Vec::new();
        frame::put_json(&mut end, Kind::End, &StreamEnd { count, abort: false })?;
        self.writer.queue(&end);
        self.writer.flush().await?;
        let info = exec_of(self.reply().await?, request.exec_id())?;
        self.settled = true;
        Ok(info)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ExecOutput<S> {
    /// The next frame; `None` after [`ExecFrame::End`] or an error. Safe to cancel.
    pub async fn next(&mut self) -> Option<Result<ExecFrame, CallError>> {
        if self.ended {
            return None;
        }
        let frame = match self.reader.next().await {
            Ok(((kind, body), _turn)) => decode(kind, body).and_then(|frame| self.checked(frame)),
            Err(error) => Err(error),
        };
        self.ended = matches!(frame, Err(_) | Ok(ExecFrame::End(_)));
        Some(frame)
    }

    /// A frame whose place readers may rely on.
    fn checked(&mut self, frame: ExecFrame) -> Result<ExecFrame, CallError> {
        match frame {
            ExecFrame::End(info) => check_exec(&info, self.id.as_deref()).map(|()| ExecFrame::End(info)),
            other => self.forward.pass(other),
        }
    }
}

fn decode(kind: Kind, mut body: Bytes) -> Result<ExecFrame, CallError> {
    let stream = match kind {
        Kind::Stdout => Stream::Stdout,
        Kind::Stderr => Stream::Stderr,
        Kind::Gap => return Ok(ExecFrame::Gap(frame::json_body(kind, &body)?)),
        Kind::ExecEnd => return Ok(ExecFrame::End(frame::json_body(kind, &body)?)),
        Kind::Failure => {
            return Err(CallError::Refused(frame::json_body::<Failure>(kind, &body)?));
        }
        other => return Err(CallError::UnexpectedFrame(other)),
    };
    let offset = body.try_get_u64_le().map_err(|_| FrameError::NoOffset)?;
    Ok(ExecFrame::Output { stream, offset, bytes: body })
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ExecInput<S> {
    /// Writes to standard input. If cancelled, what was queued is sent by the next call.
    pub async fn stdin(&mut self, data: &[u8]) -> Result<(), CallError> {
        for piece in data.chunks(MAX_DATA) {
            self.writer.queue_data(Kind::Stdin, piece)?;
            self.writer.flush().await?;
        }
        Ok(())
    }

    /// Ends standard input; on a terminal this types the end-of-file character.
    pub async fn close_stdin(&mut self) -> Result<(), CallError> {
        self.writer.queue_data(Kind::StdinClose, &[])?;
        Ok(self.writer.flush().await?)
    }

    /// Changes the size of the terminal.
    pub async fn resize(&mut self, size: WindowSize) -> Result<(), CallError> {
        self.send(Kind::Resize, &ResizeTo { size }).await
    }

    /// Sends a signal.
    pub async fn signal(&mut self, signal: SendSignal) -> Result<(), CallError> {
        self.send(Kind::Signal, &signal).await
    }

    /// Hangs up in a way that loses no input: the guest takes in all that was sent before and closes the connection, which
    /// ends the other half with [`CallError::Closed`].
    pub async fn hang_up(&mut self) -> Result<(), CallError> {
        Ok(self.writer.finish().await?)
    }

    async fn send<T: serde::Serialize>(&mut self, kind: Kind, body: &T) -> Result<(), CallError> {
        let mut bytes = Vec::new();
        frame::put_json(&mut bytes, kind, body)?;
        self.writer.queue(&bytes);
        Ok(self.writer.flush().await?)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ExecStream<S> {
    /// The exec as it was when the attachment began.
    pub fn info(&self) -> &ExecInfo {
        &self.info
    }

    /// The next frame; `None` after [`ExecFrame::End`] or an error. Safe to cancel.
    pub async fn next(&mut self) -> Option<Result<ExecFrame, CallError>> {
        self.output.next().await
    }

    /// The half that writes.
    pub fn input(&mut self) -> &mut ExecInput<S> {
        &mut self.input
    }

    /// Takes the two directions apart, so that two tasks can use them.
    pub fn split(self) -> (ExecOutput<S>, ExecInput<S>) {
        (self.output, self.input)
    }

    /// The connection, for another call, if this one has delivered its last frame.
    pub fn into_connection(self) -> Option<Connection<S>> {
        let (reader, writer) = (self.output.reader, self.input.writer);
        (self.output.ended && reader.is_drained()).then_some(Connection {
            reader,
            writer,
            settled: true,
            patience: None,
        })
    }
}
