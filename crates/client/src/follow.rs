//! An attachment that outlives the daemon.
//!
//! When the connection breaks before the process's end was told, the follower connects again and asks for the output
//! from the last bytes it has passed on, so that its caller sees neither a gap nor a repeat. Only a refusal (the sandbox
//! or the exec is gone) or patience at its end makes an error of it.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use roost_model::TerminalSize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::session::{ExecEvent, ExecInput, ExecSession, Offsets, OutputStream};
use crate::{Client, ClientError};

const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

/// A process followed across broken connections.
#[derive(Debug)]
pub struct FollowedExec {
    client: Client,
    sandbox: String,
    exec: String,
    offsets: Offsets,
    session: Option<ExecSession>,
    input: watch::Sender<Option<ExecInput>>,
    /// Events made of one frame that still wait to be told.
    ready: VecDeque<ExecEvent>,
    exited: bool,
    reconnects: u32,
    patience: Duration,
    away: Option<Away>,
}

/// Since when the daemon is away and how long to pause before the next attempt.
#[derive(Debug)]
struct Away {
    until: Instant,
    pause: Duration,
    next_attempt: Instant,
}

impl Client {
    /// Attaches to a process and stays attached, from given offsets, whatever happens to the daemon.
    pub async fn follow_exec(&self, sandbox: &str, exec: &str, from: Offsets) -> Result<FollowedExec, ClientError> {
        let session = self.attach_exec(sandbox, exec, from).await?;
        let mut followed = FollowedExec::new(self, sandbox, exec, session);
        followed.offsets = from;
        Ok(followed)
    }
}

impl FollowedExec {
    /// Follows a process whose session was opened otherwise and has not told any output yet.
    pub fn new(client: &Client, sandbox: &str, exec: &str, session: ExecSession) -> Self {
        Self {
            client: client.clone(),
            sandbox: sandbox.to_owned(),
            exec: exec.to_owned(),
            offsets: Offsets::default(),
            input: watch::Sender::new(Some(session.input())),
            session: Some(session),
            ready: VecDeque::new(),
            exited: false,
            reconnects: 0,
            patience: PATIENCE,
            away: None,
        }
    }

    /// Changes how long the daemon may be away before it is an error.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// How many bytes of each stream were told so far.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// How often the connection was made anew.
    pub fn reconnects(&self) -> u32 {
        self.reconnects
    }

    /// Sends a signal on a connection of its own and waits until it is delivered.
    pub async fn signal(&self, signal: &str) -> Result<(), ClientError> {
        self.client.signal_exec(&self.sandbox, &self.exec, signal).await
    }

    /// A handle to the process's input that follows too.
    pub fn input(&self) -> FollowedInput {
        FollowedInput { current: self.input.subscribe() }
    }

    /// The next event, in one seamless order; nothing after `Exit`. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<ExecEvent>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.exited {
                return Ok(None);
            }
            let Some(session) = &mut self.session else {
                self.reconnect().await?;
                continue;
            };
            let told = session.next().await;
            if matches!(told, Ok(Some(_))) {
                self.away = None;
            }
            match told {
                Ok(Some(ExecEvent::Output { stream, offset, bytes })) => self.take_output(stream, offset, bytes),
                Ok(Some(ExecEvent::Gap { stream, from, to })) => self.take_gap(stream, from, to),
                Ok(Some(event)) => {
                    self.exited = matches!(event, ExecEvent::Exit(_));
                    return Ok(Some(event));
                }
                Ok(None) => self.lose()?,
                Err(error) if error.is_retryable() => self.lose()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes on what is new in a frame, and says so if something before it is missing.
    fn take_output(&mut self, stream: OutputStream, offset: u64, mut bytes: Bytes) {
        let seen = *self.offsets.of(stream);
        self.take_gap(stream, seen, offset);
        let seen = self.offsets.of(stream);
        let repeated = usize::try_from(seen.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let fresh = bytes.split_off(repeated);
        if !fresh.is_empty() {
            let offset = *seen;
            *seen += fresh.len() as u64;
            self.ready.push_back(ExecEvent::Output { stream, offset, bytes: fresh });
        }
    }

    fn take_gap(&mut self, stream: OutputStream, from: u64, to: u64) {
        let seen = self.offsets.of(stream);
        if to > *seen {
            let from = from.max(*seen);
            *seen = to;
            self.ready.push_back(ExecEvent::Gap { stream, from, to });
        }
    }

    fn lose(&mut self) -> Result<(), ClientError> {
        self.session = None;
        self.input.send_replace(None);
        match &mut self.away {
            // A connection that was made anew and told nothing is no better than none.
            Some(away) => {
                away.pause_again();
                self.check_patience(None)
            }
            None => {
                let now = Instant::now();
                self.away = Some(Away { until: now + self.patience, pause: FIRST_PAUSE, next_attempt: now });
                Ok(())
            }
        }
    }

    async fn reconnect(&mut self) -> Result<(), ClientError> {
        let next_attempt = self.away.as_ref().map(|away| away.next_attempt);
        tokio::time::sleep_until(next_attempt.unwrap_or_else(Instant::now)).await;
        match self.client.attach_exec(&self.sandbox, &self.exec, self.offsets).await {
            Ok(session) => {
                self.input.send_replace(Some(session.input()));
                self.session = Some(session);
                self.reconnects += 1;
                Ok(())
            }
            Err(error) if error.is_retryable() => {
                if let Some(away) = &mut self.away {
                    away.pause_again();
                }
                self.check_patience(Some(error))
            }
            Err(error) => Err(error),
        }
    }

    fn check_patience(&self, error: Option<ClientError>) -> Result<(), ClientError> {
        match &self.away {
            Some(away) if Instant::now() >= away.until => Err(error.unwrap_or_else(|| {
                let source = "the daemon hangs up again and again".into();
                ClientError::Broken { attempt: "attach".to_owned(), source }
            })),
            _ => Ok(()),
        }
    }
}

impl Away {
    fn pause_again(&mut self) {
        self.next_attempt = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// The input side of a followed process.
///
/// An error says that the connection broke: whether the process got those bytes cannot be known. The next call waits for
/// the new connection.
#[derive(Debug, Clone)]
pub struct FollowedInput {
    current: watch::Receiver<Option<ExecInput>>,
}

impl FollowedInput {
    /// Whether there is a connection at the moment.
    pub fn is_connected(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Returns when there is a connection, or at once if the follower is gone.
    pub async fn back(&mut self) {
        drop(self.current.wait_for(Option::is_some).await);
    }

    /// Sends bytes to standard input; waits while the process does not read.
    pub async fn send_stdin(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.connected().await?.send_stdin(bytes).await
    }

    /// Closes standard input.
    pub async fn close_stdin(&mut self) -> Result<(), ClientError> {
        self.connected().await?.close_stdin().await
    }

    /// Tells the terminal its size.
    pub async fn resize(&mut self, size: TerminalSize) -> Result<(), ClientError> {
        self.connected().await?.resize(size).await
    }

    /// Sends a signal, by name or number.
    pub async fn signal(&mut self, signal: &str) -> Result<(), ClientError> {
        self.connected().await?.signal(signal).await
    }

    /// Returns when the connection that the last call used is gone; what was sent just before may be gone with it.
    pub async fn lost(&mut self) {
        // An error means that the follower itself is gone.
        self.current.changed().await.unwrap_or_default();
    }

    async fn connected(&mut self) -> Result<ExecInput, ClientError> {
        let over = |source| ClientError::Broken { attempt: "input".to_owned(), source };
        let current = self.current.wait_for(Option::is_some).await.map_err(|error| over(error.into()))?;
        current.clone().ok_or_else(|| over("no connection".into()))
    }
}
