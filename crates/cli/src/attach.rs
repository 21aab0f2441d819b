//! A remote process in the place of this one: its output here, our input and signals there.

use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Context;
use roost_client::{ClientError, ExecEvent, ExecInput, ExecSession, FollowedExec, FollowedInput};
use roost_model::{ExecState, TerminalSize};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{BROKEN_PIPE, INTERRUPTED, hinted};
use crate::pipes::{self, Output};
use crate::terminal::{self, Raw};

/// How long a farewell signal may take when we leave.
const FAREWELL: Duration = Duration::from_secs(1);
/// What Ctrl-C is in a raw terminal.
const CTRL_C: u8 = 3;

/// After this time on a healthy connection the last bytes of input have long been handed to the process.
const DELIVERY: Duration = Duration::from_secs(2);

type Pieces = tokio::sync::mpsc::Receiver<io::Result<bytes::Bytes>>;

/// Bytes of standard input may not have arrived.
#[derive(Debug, thiserror::Error)]
#[error("the connection broke while standard input was being sent: a part of it may be lost")]
struct LostInput;

/// Where the process's events come from.
#[derive(Debug)]
pub(crate) enum Remote {
    /// A process that outlives connections.
    Followed(Box<FollowedExec>),
    /// A process that ends with its connection.
    Once(Box<ExecSession>),
}

/// Its input side.
#[derive(Debug, Clone)]
enum Input {
    Followed(FollowedInput),
    Once(ExecInput),
}

impl Remote {
    async fn next(&mut self) -> Result<Option<ExecEvent>, ClientError> {
        match self {
            Self::Followed(exec) => exec.next().await,
            Self::Once(session) => session.next().await,
        }
    }

    fn input(&self) -> Input {
        match self {
            Self::Followed(exec) => Input::Followed(exec.input()),
            Self::Once(session) => Input::Once(session.input()),
        }
    }
}

impl Input {
    fn is_connected(&self) -> bool {
        match self {
            Self::Followed(input) => input.is_connected(),
            Self::Once(_) => true,
        }
    }

    async fn lost(&mut self) {
        match self {
            Self::Followed(input) => input.lost().await,
            // The output side tells.
            Self::Once(_) => pending().await,
        }
    }

    async fn send_stdin(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.send_stdin(bytes).await,
            Self::Once(input) => input.send_stdin(bytes).await,
        }
    }

    async fn close_stdin(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.close_stdin().await,
            Self::Once(input) => input.close_stdin().await,
        }
    }

    async fn resize(&mut self, size: TerminalSize) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.resize(size).await,
            Self::Once(input) => input.resize(size).await,
        }
    }

    async fn signal(&mut self, name: &str) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.signal(name).await,
            Self::Once(input) => input.signal(name).await,
        }
    }

    /// Sends a last signal, and does not wait long for a daemon that may be away.
    async fn farewell(&mut self, name: &str) {
        // We are leaving either way.
        drop(tokio::time::timeout(FAREWELL, self.signal(name)).await);
    }
}

/// What is passed on besides output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// Read our standard input.
    pub(crate) stdin: bool,
    /// The process has a terminal.
    pub(crate) terminal: bool,
}

/// Stands in for the process until it ends, and returns the exit code to end with.
pub(crate) async fn attach(mut remote: Remote, wishes: Wishes) -> anyhow::Result<u8> {
    let mut input = remote.input();
    let interactive = wishes.stdin && wishes.terminal && io::stdin().is_terminal();
    let _raw = if interactive { Some(Raw::enter().context("failed to make the terminal raw")?) } else { None };
    let outcome = tokio::select! {
        code = show_output(&mut remote) => code,
        code = pass_signals(input.clone(), wishes.terminal) => code,
        code = pass_input(input.clone(), wishes, interactive) => code,
    };
    match outcome {
        Err(error) if is_broken_pipe(&error) => {
            input.farewell("PIPE").await;
            Ok(BROKEN_PIPE)
        }
        other => other,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

async fn show_output(remote: &mut Remote) -> anyhow::Result<u8> {
    let mut output = Output::start().context("failed to start the output thread")?;
    while let Some(event) = remote.next().await? {
        match event {
            ExecEvent::Output { stream, bytes, .. } => output.write(stream, bytes).await?,
            ExecEvent::Gap { stream, from, to } => {
                eprintln!("roost: {} bytes of {} are lost: they were not read in time", to - from, stream.as_str());
            }
            ExecEvent::Exit(state) => {
                output.finish().await?;
                return Ok(exit_code(&state));
            }
            ExecEvent::Created(_) | ExecEvent::Started(_) => {}
        }
    }
    Err(hinted("the daemon hung up before the command ended", "was the daemon stopped? see its log"))
}

fn exit_code(state: &ExecState) -> u8 {
    match state {
        ExecState::Running => 0,
        ExecState::Exited { exit_code, timed_out, .. } => {
            if *timed_out {
                eprintln!("roost: the command was ended by its timeout");
            }
            u8::try_from(exit_code & 0xff).unwrap_or(u8::MAX)
        }
    }
}

/// Passes signals on; returns when one of them means that we leave.
async fn pass_signals(mut input: Input, terminal: bool) -> anyhow::Result<u8> {
    let listen = |kind| signal(kind).context("failed to listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut resized = listen(SignalKind::window_change())?;
    let mut interrupts = 0;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {
                interrupts += 1;
                if interrupts > 1 {
                    return Ok(INTERRUPTED);
                }
                // A daemon that is away must not keep the second Ctrl-C from being heard.
                let mut input = input.clone();
                tokio::spawn(async move { input.signal("INT").await });
            }
            _ = terminate.recv() => {
                input.farewell("TERM").await;
                return Ok(128 + 15);
            }
            _ = hangup.recv() => return Ok(128 + 1),
            _ = resized.recv(), if terminal => {
                if let Some(size) = terminal::size() {
                    let mut input = input.clone();
                    tokio::spawn(async move { input.resize(size).await });
                }
            }
        }
    }
}

/// Passes standard input on; returns only if that fails or the person gives up on a daemon that is away.
async fn pass_input(input: Input, wishes: Wishes, interactive: bool) -> anyhow::Result<u8> {
    if !wishes.stdin {
        return pending().await;
    }
    let pieces = pipes::read_stdin().context("failed to start the input thread")?;
    if interactive { pass_keys(input, pieces).await } else { pass_bytes(input, pieces).await }
}

async fn pass_keys(mut input: Input, mut pieces: Pieces) -> anyhow::Result<u8> {
    while let Some(piece) = pieces.recv().await {
        let piece = piece.context("failed to read standard input")?;
        if !input.is_connected() {
            if piece.contains(&CTRL_C) {
                return Ok(INTERRUPTED);
            }
            // Keys typed at a daemon that is away were not meant for later.
            continue;
        }
        match input.send_stdin(&piece).await {
            Err(error) if !error.is_retryable() => return Err(error.into()),
            _ => {}
        }
    }
    pending().await
}

/// Bytes of a pipe or file are data: a connection that breaks while they are under way is a failure, not a pause.
async fn pass_bytes(mut input: Input, mut pieces: Pieces) -> anyhow::Result<u8> {
    let lost = |error: ClientError| anyhow::Error::from(error).context(LostInput);
    let mut sent = false;
    loop {
        let piece = tokio::select! {
            piece = pieces.recv() => piece,
            () = input.lost(), if sent => return Err(LostInput.into()),
        };
        let Some(piece) = piece else { break };
        let piece = piece.context("failed to read standard input")?;
        input.send_stdin(&piece).await.map_err(lost)?;
        sent = true;
    }
    input.close_stdin().await.map_err(lost)?;
    if sent {
        tokio::select! {
            () = input.lost() => return Err(LostInput.into()),
            () = tokio::time::sleep(DELIVERY) => {}
        }
    }
    pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_command() {
        let exited = |exit_code| ExecState::Exited {
            exit_code,
            signal: None,
            timed_out: false,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        assert_eq!(exit_code(&exited(0)), 0);
        assert_eq!(exit_code(&exited(137)), 137);
        assert_eq!(exit_code(&exited(255)), 255);
    }
}
