//! A process at one end, a WebSocket at the other.
//!
//! Both directions run side by side and neither reads ahead of what the other end takes, so a client that does not read
//! holds only its own output up, and input that the process does not take holds only further input up:
//!
//! ```text
//!   guest --frames--> outgoing --messages--> client      ends with the process, a lost guest, or a client that left
//!   guest <--frames-- incoming <--messages-- client      ends when the client leaves or talks nonsense
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use roost_host::{
    CallError, ExecFrame, ExecInput, ExecOutput, HostError, SendSignal, Stream, WindowSize, exec_view, parse_signal,
};
use roost_model::{ErrorDetail, ExecState, ExecView, SandboxView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;

use crate::errors::ApiError;
use crate::extract::parse_json;

/// Pings while all is quiet: one in this many ticks.
const PING_TICKS: u32 = 15;
const TICK: Duration = Duration::from_secs(1);
/// How long a client may take to say what it wants.
const FIRST_TIME: Duration = Duration::from_secs(30);
/// How long a client may take to hang up after we said goodbye.
const GOODBYE_TIME: Duration = Duration::from_secs(5);

/// What the server tells in words.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Told<'a> {
    Created { sandbox: &'a SandboxView },
    Started { exec: &'a ExecView },
    Gap { stream: Stream, from: u64, to: u64 },
    Exit { status: &'a ExecState, exec: &'a ExecView },
    Error { error: &'a ErrorDetail },
}

/// What a client may ask for in words.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Asked {
    CloseStdin,
    Resize { cols: u16, rows: u16 },
    Signal { signal: String },
}

/// How a conversation came to its end.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The process ended and all its output was told.
    Exited(Box<ExecView>),
    /// The client left.
    Left,
    /// The daemon stops.
    Closing,
    /// Something went wrong that the client should hear of.
    Failed(ApiError),
}

/// A WebSocket, taken apart so that both directions can be used at once.
#[derive(Debug)]
pub(crate) struct Conversation {
    sink: SplitSink<WebSocket, Message>,
    stream: SplitStream<WebSocket>,
}

impl Conversation {
    pub(crate) fn new(socket: WebSocket) -> Self {
        let (sink, stream) = socket.split();
        Self { sink, stream }
    }

    /// The first message: what is wanted.
    pub(crate) async fn first<T: DeserializeOwned>(&mut self) -> Result<T, Ending> {
        let fault = |message: &str| Err(Ending::Failed(ApiError::bad_request(message)));
        let wait = async {
            loop {
                match self.stream.next().await {
                    Some(Ok(Message::Text(text))) => return parse_json(text.as_bytes()).map_err(Ending::Failed),
                    Some(Ok(Message::Binary(_))) => return fault("the first message is JSON text"),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Ending::Left),
                }
            }
        };
        timeout(FIRST_TIME, wait).await.unwrap_or_else(|_| fault("nothing was asked for in 30 seconds"))
    }

    /// Says something; a client that left is noticed by whoever reads next.
    pub(crate) async fn tell(&mut self, told: &Told<'_>) -> Result<(), Ending> {
        self.sink.send(text_of(told)).await.map_err(|_| Ending::Left)
    }

    /// Carries output and input until something ends. `failed` says what a lost guest means; `reach` has the process awake
    /// for input, for as long as what it returns is held.
    pub(crate) async fn carry<S, R>(
        &mut self,
        output: ExecOutput<S>,
        input: ExecInput<S>,
        closing: &CancellationToken,
        failed: impl Fn(CallError) -> HostError,
        reach: impl Fn() -> R,
    ) -> Ending
    where
        R: Future,
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let stalled = AtomicBool::new(false);
        let Self { sink, stream } = self;
        tokio::select! {
            ending = outgoing(sink, output, &stalled, failed) => ending,
            ending = incoming(stream, input, &stalled, reach) => ending,
            () = closing.cancelled() => Ending::Closing,
        }
    }

    /// Tells how it ended, says goodbye and waits a little for the client to do so too.
    pub(crate) async fn finish(mut self, ending: Ending) {
        let (told, code) = match &ending {
            Ending::Left => return,
            Ending::Closing => (None, close_code::AWAY),
            Ending::Exited(exec) => (Some(Told::Exit { status: &exec.status, exec }), close_code::NORMAL),
            Ending::Failed(error) => (Some(Told::Error { error: error.detail() }), close_code::NORMAL),
        };
        let goodbye = async {
            if let Some(told) = told
                && self.tell(&told).await.is_err()
            {
                return;
            }
            let close = Message::Close(Some(CloseFrame { code, reason: "".into() }));
            if self.sink.send(close).await.is_ok() {
                // Hanging up with input unread would reset the connection and could take the last words with it.
                while let Some(Ok(_)) = self.stream.next().await {}
            }
        };
        // A client that does not hang up is hung up on.
        drop(timeout(GOODBYE_TIME, goodbye).await);
    }
}

fn text_of(told: &Told<'_>) -> Message {
    // Plain data with text keys always has a JSON form.
    Message::Text(serde_json::to_string(told).unwrap_or_default().into())
}

async fn outgoing<S>(
    sink: &mut SplitSink<WebSocket, Message>,
    mut output: ExecOutput<S>,
    stalled: &AtomicBool,
    failed: impl Fn(CallError) -> HostError,
) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut ticks = interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut quiet = 0;
    loop {
        let message = tokio::select! {
            frame = output.next() => match frame {
                Some(Ok(ExecFrame::Output { stream, offset, bytes })) => binary(stream, offset, &bytes),
                Some(Ok(ExecFrame::Gap(gap))) => text_of(&Told::Gap { stream: gap.stream, from: gap.from, to: gap.to }),
                Some(Ok(ExecFrame::End(info))) => {
                    return exec_view(&info).map_or_else(|error| Ending::Failed(error.into()), |exec| Ending::Exited(Box::new(exec)));
                }
                Some(Err(error)) => return Ending::Failed(failed(error).into()),
                None => return Ending::Failed(HostError::Internal("the output broke off".to_owned()).into()),
            },
            _ = ticks.tick() => {
                quiet += 1;
                // While input waits, nobody reads what the client sends: only a ping finds out that it has left.
                if quiet % PING_TICKS != 0 && !stalled.load(Ordering::Relaxed) {
                    continue;
                }
                Message::Ping(Bytes::new())
            }
        };
        if sink.send(message).await.is_err() {
            return Ending::Left;
        }
    }
}

/// One byte for the stream, eight for the offset, then the bytes.
fn binary(stream: Stream, offset: u64, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(9 + bytes.len());
    message.put_u8(match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    });
    message.put_u64_le(offset);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

async fn incoming<S, R>(
    stream: &mut SplitStream<WebSocket>,
    mut input: ExecInput<S>,
    stalled: &AtomicBool,
    reach: impl Fn() -> R,
) -> Ending
where
    R: Future,
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    // When the guest takes no more, its output says why; until then only the client's leaving matters here.
    let mut deaf = false;
    loop {
        let message = match stream.next().await {
            Some(Ok(message @ (Message::Binary(_) | Message::Text(_)))) => message,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Ending::Left,
        };
        let wish = match Wish::read(&message) {
            Ok(wish) => wish,
            Err(refusal) => return Ending::Failed(refusal),
        };
        if !deaf {
            stalled.store(true, Ordering::Relaxed);
            let _awake = reach().await;
            deaf = wish.pass_on(&mut input).await.is_err();
            stalled.store(false, Ordering::Relaxed);
        }
    }
}

/// A message of a client's, understood.
#[derive(Debug, PartialEq, Eq)]
enum Wish<'a> {
    Stdin(&'a [u8]),
    CloseStdin,
    Resize(WindowSize),
    Signal(i32),
}

impl<'a> Wish<'a> {
    fn read(message: &'a Message) -> Result<Self, ApiError> {
        match message {
            Message::Binary(bytes) => match bytes.split_first() {
                Some((0, data)) => Ok(Self::Stdin(data)),
                _ => Err(ApiError::bad_request("a binary message starts with the byte 0, for input")),
            },
            Message::Text(text) => match parse_json(text.as_bytes())? {
                Asked::CloseStdin => Ok(Self::CloseStdin),
                Asked::Resize { cols, rows } => Ok(Self::Resize(WindowSize { cols, rows })),
                Asked::Signal { signal } => match parse_signal(&signal) {
                    Some(number) => Ok(Self::Signal(number)),
                    None => Err(ApiError::bad_request(format!("`{signal}` is not a signal"))),
                },
            },
            _ => Err(ApiError::bad_request("a message is binary or text")),
        }
    }

    async fn pass_on<S>(&self, input: &mut ExecInput<S>) -> Result<(), CallError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        match *self {
            Self::Stdin(data) => input.stdin(data).await,
            Self::CloseStdin => input.close_stdin().await,
            Self::Resize(size) => input.resize(size).await,
            Self::Signal(signal) => input.signal(SendSignal { signal, target: Default::default() }).await,
        }
    }
}

#[cfg(test)]
mod tests;
