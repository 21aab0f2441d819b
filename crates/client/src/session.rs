//! A process at the other end of a WebSocket: its output as it comes, its input as it is sent.

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use roost_model::{ErrorDetail, ExecState, ExecView, SandboxView, TerminalSize};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::ClientError;
use crate::answer::parse;
use crate::connector::Socket;

/// Longest piece of input in one frame.
const PIECE: usize = 64 * 1024;

/// One of a process's two output streams; a terminal has only the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How many bytes of each stream have been seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
}

impl Offsets {
    /// The offset of one stream.
    pub fn of(&mut self, stream: OutputStream) -> &mut u64 {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }
}

/// Something that happened at the other end.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecEvent {
    /// The sandbox of a `run` was made.
    Created(Box<SandboxView>),
    /// The process was started.
    Started(Box<ExecView>),
    /// It wrote something.
    Output {
        /// To which stream.
        stream: OutputStream,
        /// Absolute offset of the first byte.
        offset: u64,
        /// What.
        bytes: Bytes,
    },
    /// Output that is gone for ever.
    Gap {
        /// Of which stream.
        stream: OutputStream,
        /// First byte that is gone.
        from: u64,
        /// First byte that is there again.
        to: u64,
    },
    /// It ended, and all its output was told before.
    Exit(ExecState),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told {
    Created { sandbox: Box<SandboxView> },
    Started { exec: Box<ExecView> },
    Gap { stream: OutputStream, from: u64, to: u64 },
    Exit { status: ExecState },
    Error { error: ErrorDetail },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Asked<'a> {
    CloseStdin,
    Resize { cols: u16, rows: u16 },
    Signal { signal: &'a str },
}

/// A process at the other end of a WebSocket.
pub struct ExecSession {
    incoming: SplitStream<Socket>,
    input: ExecInput,
    exited: bool,
}

impl ExecSession {
    pub(crate) async fn begin(
        socket: Socket,
        what: &'static str,
        first: Option<&impl Serialize>,
    ) -> Result<Self, ClientError> {
        let (sink, incoming) = socket.split();
        let input = ExecInput { what, sink: Arc::new(Mutex::new(sink)) };
        if let Some(first) = first {
            input.tell(first).await?;
        }
        Ok(Self { incoming, input, exited: false })
    }

    /// The next event; nothing after the process's end or once the daemon has hung up. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, ClientError> {
        loop {
            if self.exited {
                return Ok(None);
            }
            let message = match self.incoming.next().await {
                None | Some(Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed)) => {
                    return Ok(None);
                }
                Some(Err(error)) => return Err(self.input.broken(error)),
                Some(Ok(message)) => message,
            };
            match message {
                Message::Binary(frame) => return output(self.input.what, frame).map(Some),
                Message::Text(text) => {
                    let event = told(self.input.what, text.as_bytes())?;
                    self.exited = matches!(event, ExecEvent::Exit(_));
                    return Ok(Some(event));
                }
                Message::Close(_) => return Ok(None),
                // Pings are answered below us.
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// A handle to the process's input that works while somebody waits for events.
    pub fn input(&self) -> ExecInput {
        self.input.clone()
    }

    /// Sends bytes to standard input; see [`ExecInput::send_stdin`].
    pub async fn send_stdin(&self, bytes: &[u8]) -> Result<(), ClientError> {
        self.input.send_stdin(bytes).await
    }

    /// Closes standard input.
    pub async fn close_stdin(&self) -> Result<(), ClientError> {
        self.input.close_stdin().await
    }

    /// Tells the terminal its size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ClientError> {
        self.input.resize(size).await
    }

    /// Sends a signal, by name or number.
    pub async fn signal(&self, signal: &str) -> Result<(), ClientError> {
        self.input.signal(signal).await
    }

    /// Hangs up in good order; a process started by `open_exec` goes on.
    pub async fn close(self) -> Result<(), ClientError> {
        let mut sink = self.input.sink.lock().await;
        sink.close().await.map_err(|error| self.input.broken(error))
    }
}

/// The input side of a session; clones share it.
#[derive(Clone)]
pub struct ExecInput {
    what: &'static str,
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
}

impl ExecInput {
    /// Sends bytes to standard input; waits while the process does not read.
    ///
    /// Output must be read meanwhile, or a process that answers its input stands still with both sides full.
    pub async fn send_stdin(&self, bytes: &[u8]) -> Result<(), ClientError> {
        for piece in bytes.chunks(PIECE) {
            let mut frame = BytesMut::with_capacity(1 + piece.len());
            frame.put_u8(0);
            frame.put_slice(piece);
            self.send(Message::Binary(frame.freeze())).await?;
        }
        Ok(())
    }

    /// Closes standard input.
    pub async fn close_stdin(&self) -> Result<(), ClientError> {
        self.tell(&Asked::CloseStdin).await
    }

    /// Tells the terminal its size.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ClientError> {
        self.tell(&Asked::Resize { cols: size.cols, rows: size.rows }).await
    }

    /// Sends a signal, by name or number.
    pub async fn signal(&self, signal: &str) -> Result<(), ClientError> {
        self.tell(&Asked::Signal { signal }).await
    }

    async fn tell(&self, message: &impl Serialize) -> Result<(), ClientError> {
        let text = serde_json::to_string(message)
            .map_err(|error| ClientError::Answer { attempt: self.what.to_owned(), problem: error.to_string() })?;
        self.send(Message::Text(text.into())).await
    }

    async fn send(&self, message: Message) -> Result<(), ClientError> {
        self.sink.lock().await.send(message).await.map_err(|error| self.broken(error))
    }

    fn broken(&self, error: tungstenite::Error) -> ClientError {
        ClientError::Broken { attempt: self.what.to_owned(), source: error.into() }
    }
}

fn output(what: &str, mut frame: Bytes) -> Result<ExecEvent, ClientError> {
    let odd = |problem: &str| ClientError::Answer { attempt: what.to_owned(), problem: problem.to_owned() };
    let Some((head, _)) = frame.split_first_chunk::<9>() else {
        return Err(odd("a frame is too short"));
    };
    let [stream, offset @ ..] = *head;
    let stream = match stream {
        1 => OutputStream::Stdout,
        2 => OutputStream::Stderr,
        _ => return Err(odd("a frame belongs to no stream")),
    };
    Ok(ExecEvent::Output { stream, offset: u64::from_le_bytes(offset), bytes: frame.split_off(9) })
}

fn told(what: &str, text: &[u8]) -> Result<ExecEvent, ClientError> {
    Ok(match parse(what, text)? {
        Told::Created { sandbox } => ExecEvent::Created(sandbox),
        Told::Started { exec } => ExecEvent::Started(exec),
        Told::Gap { stream, from, to } => ExecEvent::Gap { stream, from, to },
        Told::Exit { status } => ExecEvent::Exit(status),
        Told::Error { error } => {
            return Err(ClientError::Api { status: 101, detail: error, sandbox: None });
        }
    })
}

impl fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecSession").field("what", &self.input.what).finish_non_exhaustive()
    }
}

impl fmt::Debug for ExecInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecInput").field("what", &self.what).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_and_odd_ones_refused() {
        let mut frame = vec![2];
        frame.extend(7u64.to_le_bytes());
        frame.extend(b"hey");
        let expected = ExecEvent::Output { stream: OutputStream::Stderr, offset: 7, bytes: Bytes::from_static(b"hey") };
        assert_eq!(output("exec", frame.into()).unwrap(), expected);
        assert!(output("exec", Bytes::from_static(&[1, 0, 0])).is_err());
        assert!(output("exec", Bytes::from_static(&[9; 20])).is_err());
        let gap = told("exec", br#"{"type":"gap","stream":"stdout","from":1,"to":5}"#).unwrap();
        assert_eq!(gap, ExecEvent::Gap { stream: OutputStream::Stdout, from: 1, to: 5 });
    }
}
