//! Processes of a sandbox.

use roost_model::{ExecId, ExecOutput, ExecState, ExecView, SignalExec, StartExec, TerminalSize};
use roost_wire::client::{ExecFrame, ExecStream};
use roost_wire::{
    Attach, ExecResize, ExecSignal, ExecStart, Program, Reply, Request, SignalTarget, StartAt, Stream, WindowSize,
    parse_signal,
};
use tokio::net::TcpStream;

use crate::convert::{exec_state, exec_view};
use crate::guest::Guest;
use crate::handle::{Handle, unexpected};
use crate::{CreateKey, HostError};

/// Most bytes of each stream that a waiting start returns.
const ANSWER_LIMIT: usize = 8 << 20;

/// From where on output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputStart {
    /// Absolute offset in standard output, or nothing to leave it out.
    pub stdout: Option<u64>,
    /// Absolute offset in standard error, or nothing to leave it out.
    pub stderr: Option<u64>,
    /// Go on until the process ends.
    pub follow: bool,
    /// Hold the process back rather than lose output.
    pub lossless: bool,
}

impl OutputStart {
    /// Everything, from the first byte to the end.
    pub const WHOLE: Self = Self { stdout: Some(0), stderr: Some(0), follow: true, lossless: true };
}

/// An attachment to a process: its output, and the way to its input.
#[derive(Debug)]
pub struct ExecAttachment {
    /// The process when the attachment began.
    pub exec: ExecView,
    /// Frames of both directions.
    pub stream: ExecStream<TcpStream>,
    /// Whose guest it is.
    pub guest: Guest,
}

impl Handle {
    /// Starts a process and leaves it to itself; the same key starts it once.
    pub async fn start_exec(&self, wanted: StartExec, key: Option<&CreateKey>) -> Result<ExecView, HostError> {
        let start = exec_start(&wanted, self.exec_id(key))?;
        let since = self.state_since();
        match self.try_start(start.clone()).await {
            Err(error) if self.died_under(&error, since).await => self.try_start(start).await,
            other => other,
        }
    }

    async fn try_start(&self, start: ExecStart) -> Result<ExecView, HostError> {
        let (guest, mut connection) = self.try_connection().await?;
        let info = connection.exec_start(start).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        exec_view(&info)
    }

    /// Starts a process and attaches to it in one round trip.
    pub async fn start_attached(
        &self,
        wanted: StartExec,
        key: Option<&CreateKey>,
    ) -> Result<ExecAttachment, HostError> {
        let start = exec_start(&wanted, self.exec_id(key))?;
        let since = self.state_since();
        match self.try_start_attached(start.clone()).await {
            Err(error) if self.died_under(&error, since).await => self.try_start_attached(start).await,
            other => other,
        }
    }

    async fn try_start_attached(&self, start: ExecStart) -> Result<ExecAttachment, HostError> {
        let (guest, connection) = self.try_connection().await?;
        let following = connection.start_and_follow(start, attach(OutputStart::WHOLE)).await;
        let stream = following.map_err(|error| guest.failed(error))?;
        Ok(ExecAttachment { exec: exec_view(stream.info())?, stream, guest })
    }

    /// Starts a process, waits for its end and returns its output.
    pub async fn run_exec(&self, wanted: StartExec, key: Option<&CreateKey>) -> Result<ExecOutput, HostError> {
        self.start_attached(wanted, key).await?.collect().await
    }

    /// Attaches to a process that was started before.
    pub async fn attach(&self, id: &ExecId, start: OutputStart) -> Result<ExecAttachment, HostError> {
        let (guest, connection) = self.connection().await?;
        let stream = connection.attach(id.as_str(), attach(start)).await.map_err(|error| guest.failed(error))?;
        Ok(ExecAttachment { exec: exec_view(stream.info())?, stream, guest })
    }

    /// All processes the guest remembers, oldest first.
    pub async fn execs(&self) -> Result<Vec<ExecView>, HostError> {
        let (guest, mut connection) = self.connection().await?;
        let infos = connection.exec_list().await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        infos.iter().map(exec_view).collect()
    }

    /// One process; waits for its end if asked.
    pub async fn exec(&self, id: &ExecId, wait: bool) -> Result<ExecView, HostError> {
        let named = roost_wire::ExecId { id: id.to_string() };
        let request = if wait { Request::ExecWait(named) } else { Request::ExecGet(named) };
        self.exec_call(&request).await
    }

    /// Sends a signal to a process's group.
    pub async fn signal_exec(&self, id: &ExecId, signal: &SignalExec) -> Result<ExecView, HostError> {
        let number = parse_signal(&signal.signal)
            .ok_or_else(|| HostError::BadRequest(format!("`{}` is not a signal", signal.signal)))?;
        let request = ExecSignal { id: id.to_string(), signal: number, target: SignalTarget::Group };
        // Not through a kept connection: a signal must not be sent twice.
        let (guest, mut connection) = self.connection().await?;
        let info = connection.call_exec(&Request::ExecSignal(request)).await.map_err(|error| guest.failed(error))?;
        exec_view(&info)
    }

    /// Writes to a process's standard input, and closes it if asked.
    pub async fn write_stdin(&self, id: &ExecId, data: bytes::Bytes, close: bool) -> Result<ExecView, HostError> {
        let (guest, mut connection) = self.connection().await?;
        let info = connection.exec_stdin(id.as_str(), data, close).await.map_err(|error| guest.failed(error))?;
        exec_view(&info)
    }

    /// Changes the size of a process's terminal.
    pub async fn resize_exec(&self, id: &ExecId, size: TerminalSize) -> Result<ExecView, HostError> {
        let size = WindowSize { cols: size.cols, rows: size.rows };
        self.exec_call(&Request::ExecResize(ExecResize { id: id.to_string(), size })).await
    }

    async fn exec_call(&self, request: &Request) -> Result<ExecView, HostError> {
        match self.call(request).await? {
            Reply::Exec(info) => exec_view(&info),
            other => Err(unexpected(&other)),
        }
    }

    /// The id of a new process: the same for the same key, so that the guest starts it once.
    fn exec_id(&self, key: Option<&CreateKey>) -> ExecId {
        match key {
            None => ExecId::generate(),
            Some(key) => {
                let digest = blake3::hash(format!("{}\n{}", self.id, key.as_str()).as_bytes());
                let mut bits = [0u8; 16];
                bits.copy_from_slice(&digest.as_bytes()[..16]);
                let birth = u64::try_from(self.record().created_at.as_millisecond()).unwrap_or(0);
                ExecId::from_parts(birth, u128::from_le_bytes(bits))
            }
        }
    }
}

impl ExecAttachment {
    /// Reads everything to the end.
    pub async fn collect(mut self) -> Result<ExecOutput, HostError> {
        let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
        while let Some(frame) = self.stream.next().await {
            match frame.map_err(|error| self.guest.failed(error))? {
                ExecFrame::Output { stream, bytes, .. } => {
                    let into = if stream == Stream::Stdout { &mut stdout } else { &mut stderr };
                    let room = ANSWER_LIMIT.saturating_sub(into.len());
                    truncated |= bytes.len() > room;
                    into.extend_from_slice(&bytes[..bytes.len().min(room)]);
                }
                ExecFrame::Gap(_) => truncated = true,
                ExecFrame::End(info) => {
                    let exec = exec_view(&info)?;
                    let exit_code = match exec_state(&info.state) {
                        ExecState::Exited { exit_code, .. } => exit_code,
                        ExecState::Running => return Err(HostError::Internal("it had not ended".to_owned())),
                    };
                    if let Some(connection) = self.stream.into_connection() {
                        self.guest.give_back(connection);
                    }
                    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                    return Ok(ExecOutput { exec, exit_code, stdout: text(stdout), stderr: text(stderr), truncated });
                }
            }
        }
        Err(HostError::Internal("the output ended before the process did".to_owned()))
    }
}

fn attach(start: OutputStart) -> Attach {
    let at = |offset: Option<u64>| offset.map_or(StartAt::Nothing, StartAt::Offset);
    Attach { stdout: at(start.stdout), stderr: at(start.stderr), follow: start.follow, lossless: start.lossless }
}

fn exec_start(wanted: &StartExec, id: ExecId) -> Result<ExecStart, HostError> {
    let program = match (&wanted.shell, wanted.argv.is_empty()) {
        (Some(line), true) => Program::Shell(line.clone()),
        (None, false) => Program::Argv(wanted.argv.clone()),
        (Some(_), false) => return Err(HostError::BadRequest("give either `argv` or `shell`, not both".to_owned())),
        (None, true) => {
            return Err(HostError::BadRequest("give `argv` or `shell`: there is nothing to run".to_owned()));
        }
    };
    let mut start = ExecStart::new(id.to_string(), program);
    start.env.clone_from(&wanted.env);
    start.cwd.clone_from(&wanted.cwd);
    start.user.clone_from(&wanted.user);
    start.stdin = wanted.stdin;
    start.pty = wanted.pty.map(|size| WindowSize { cols: size.cols, rows: size.rows });
    start.timeout_ms =
        wanted.timeout.and_then(roost_model::Span::get).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Ok(start)
}
