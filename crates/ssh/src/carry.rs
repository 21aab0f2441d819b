//! A process at one end, a channel at the other.
//!
//! ```text
//!            start, attach                    exit
//! (session) ---------------> carried -------------------> exit code to the client
//!                             |    ^
//!         the sandbox sleeps  |    | awake again: attached where it was
//!                             v    |
//!                           waiting ---- input wakes it
//! ```
//! A client that leaves lets a terminal go on; a process on pipes hears the end of its input and goes on, too.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use roost_host::{
    ExecAttachment, ExecFrame, ExecInput, Exit, GuestSocket, Handle, HostError, OutputStart, SendSignal, Stream,
    WindowSize,
};
use roost_model::{ExecId, Streams};
use russh::{ChannelMsg, ChannelReadHalf};

use crate::channel::{Out, number};
use crate::place::Visit;
use crate::session::size;
use crate::words;

/// What is between a client and a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Terminal,
    Pipes,
}

/// Something that a client has for a process.
#[derive(Debug)]
pub(crate) enum Given {
    Data(Bytes),
    End,
    Resize(WindowSize),
    Signal(i32),
}

impl Given {
    /// What a message means; nothing if it is of no concern, an error if the client has left.
    fn of(message: Option<ChannelMsg>) -> Result<Option<Self>, Left> {
        match message {
            Some(ChannelMsg::Data { data }) => Ok(Some(Self::Data(data))),
            Some(ChannelMsg::Eof) => Ok(Some(Self::End)),
            Some(ChannelMsg::WindowChange { col_width, row_height, .. }) => {
                let size = size(col_width, row_height);
                Ok(Some(Self::Resize(WindowSize { cols: size.cols, rows: size.rows })))
            }
            Some(ChannelMsg::Signal { signal }) => Ok(number(&signal).map(Self::Signal)),
            Some(ChannelMsg::Close) | None => Err(Left),
            Some(_) => Ok(None),
        }
    }

    async fn pass_on(&self, input: &mut ExecInput<GuestSocket>) -> Result<(), roost_host::CallError> {
        match self {
            Self::Data(data) => input.stdin(data).await,
            Self::End => input.close_stdin().await,
            Self::Resize(size) => input.resize(*size).await,
            Self::Signal(signal) => input.signal(SendSignal { signal: *signal, target: Default::default() }).await,
        }
    }
}

/// The client has left.
#[derive(Debug, PartialEq, Eq)]
struct Left;

/// How one attachment came to its end.
enum Ending {
    Exited(Exit),
    Left,
    Lost(HostError),
    Closing,
}

/// Where an attachment is in the output, so that another can go on there.
#[derive(Debug, Clone, Copy)]
struct Reached {
    stdout: u64,
    stderr: u64,
}

impl Reached {
    /// The beginning of what is kept.
    fn at(kept: &Streams) -> Self {
        Self { stdout: kept.stdout_start, stderr: kept.stderr_start }
    }
}

/// Carries a process until it ends or its client leaves.
pub(crate) async fn carry(
    visit: &Arc<Visit>,
    handle: &Handle,
    attachment: ExecAttachment,
    kind: Kind,
    mut read: ChannelReadHalf,
    out: Out,
) {
    let id = attachment.exec.id.clone();
    let _attached = (kind == Kind::Terminal).then(|| visit.door.attach(&id));
    let mut reached = Reached::at(&attachment.exec.output);
    let mut waiting = VecDeque::new();
    let mut attachment = attachment;
    loop {
        let ending = tokio::select! {
            ending = attached(handle, attachment, &mut waiting, &mut reached, &mut read, &out) => ending,
            () = visit.gone.cancelled() => Ending::Left,
            () = visit.door.closing.cancelled() => Ending::Closing,
        };
        let lost = match ending {
            Ending::Exited(exit) => return out.end_as(exit).await,
            Ending::Closing => return,
            Ending::Left => return leave(handle, &id, kind).await,
            Ending::Lost(lost) => lost,
        };
        if let Err(gone) = handle.living() {
            return out.fail(&words::of(&gone)).await;
        }
        // A guest that breaks the protocol would do so again on the next attachment.
        if matches!(lost, HostError::GuestReply { .. }) {
            return out.fail(&format!("the session is over: {}", words::of(&lost))).await;
        }
        tracing::debug!(sandbox = %handle.id(), error = %lost, "lost a process under an SSH session");
        let again = tokio::select! {
            again = asleep(handle, &id, &mut waiting, reached, &mut read) => again,
            () = visit.gone.cancelled() => return,
            () = visit.door.closing.cancelled() => return,
        };
        attachment = match again {
            Ok(Some(attachment)) => attachment,
            Ok(None) => return leave(handle, &id, kind).await,
            Err(error) => return out.fail(&format!("the session is over: {}", words::of(&error))).await,
        };
    }
}

/// A process on pipes reads until its input ends; one on a terminal waits for somebody to come back.
async fn leave(handle: &Handle, id: &ExecId, kind: Kind) {
    if kind == Kind::Pipes
        && let Err(error) = handle.write_stdin(id, Bytes::new(), true).await
    {
        // It has ended, or takes no input.
        tracing::debug!(%error, "could not close the input of a process whose client has left");
    }
}

/// Carries one attachment.
async fn attached(
    handle: &Handle,
    attachment: ExecAttachment,
    waiting: &mut VecDeque<Given>,
    reached: &mut Reached,
    read: &mut ChannelReadHalf,
    out: &Out,
) -> Ending {
    let ExecAttachment { stream, guest, exec, busy: _busy, .. } = attachment;
    let (mut output, mut input) = stream.split();
    let outgoing = async {
        loop {
            let told = match output.next().await {
                Some(Ok(ExecFrame::Output { stream: Stream::Stdout, offset, bytes })) => {
                    reached.stdout = offset + bytes.len() as u64;
                    out.stdout(bytes).await
                }
                Some(Ok(ExecFrame::Output { stream: Stream::Stderr, offset, bytes })) => {
                    reached.stderr = offset + bytes.len() as u64;
                    out.stderr(bytes).await
                }
                Some(Ok(ExecFrame::Gap(_))) => Ok(()),
                Some(Ok(ExecFrame::End(info))) => return Ending::Exited(info.exit().unwrap_or_default()),
                Some(Err(error)) => return Ending::Lost(guest.failed(error)),
                None => return Ending::Lost(HostError::Internal("the output broke off".to_owned())),
            };
            if told.is_err() {
                return Ending::Left;
            }
        }
    };
    let incoming = async {
        loop {
            if let Some(given) = waiting.front() {
                // Somebody may have put it to sleep under the client; its input then wakes it as any other request does.
                let busy = handle.request(format!("input of exec {}", exec.id));
                if let Err(error) = handle.awake(&busy).await {
                    tracing::debug!(sandbox = %handle.id(), %error, "input found it asleep");
                }
                if given.pass_on(&mut input).await.is_err() {
                    // Its output says why.
                    return std::future::pending().await;
                }
                waiting.pop_front();
                continue;
            }
            match Given::of(read.wait().await) {
                Ok(given) => waiting.extend(given),
                Err(Left) => return Ending::Left,
            }
        }
    };
    tokio::select! {
        biased;
        ending = outgoing => ending,
        ending = incoming => ending,
    }
}

/// Waits until a sandbox that sleeps is awake again, or has something to do: then it is woken. Nothing if the client leaves.
async fn asleep(
    handle: &Handle,
    id: &ExecId,
    waiting: &mut VecDeque<Given>,
    reached: Reached,
    read: &mut ChannelReadHalf,
) -> Result<Option<ExecAttachment>, HostError> {
    let start =
        OutputStart { stdout: Some(reached.stdout), stderr: Some(reached.stderr), follow: true, lossless: true };
    let listening = handle.attach_again(id, start);
    let hearing = async {
        while waiting.is_empty() {
            match Given::of(read.wait().await) {
                Ok(given) => waiting.extend(given),
                Err(Left) => return Ok(None),
            }
        }
        handle.attach(id, start).await.map(Some)
    };
    tokio::select! {
        again = listening => again.map(Some),
        again = hearing => again,
    }
}
