//! Processes of a sandbox.

mod attached;

use std::time::Duration;

use bytes::Bytes;
use roost_model::{ExecId, ExecOutput, ExecView, Signal, SignalExec, StartExec, TerminalSize};
use roost_wire::client::Limits;
use roost_wire::{
    Attach, ExecFilter, ExecInfo, ExecResize, ExecSignal, ExecStart, Program, Reply, Request, SignalTarget, StartAt,
    WindowSize, parse_signal,
};
use tokio_util::sync::CancellationToken;

use crate::convert::exec_view;
use crate::guards::Busy;
use crate::guest::{Guest, GuestConnection};
use crate::handle::Handle;
use crate::{CreateKey, HostError};

pub use attached::{ExecAttachment, OutputStart};

/// A guest that hangs up on each attachment costs the daemon one connection in so much time.
const AGAIN: Duration = Duration::from_millis(10);

/// A way to a process's standard input.
#[derive(Debug)]
pub struct StdinLine {
    id: ExecId,
    guest: Guest,
    connection: GuestConnection,
    _busy: Busy,
}

impl StdinLine {
    /// Writes, and closes it if asked; returns when the process's pipe has taken it.
    pub async fn write(&mut self, data: Bytes, close: bool) -> Result<ExecView, HostError> {
        let written = self.connection.exec_stdin(self.id.as_str(), data, close).await;
        exec_view(&written.map_err(|error| self.guest.failed(error))?)
    }
}

impl Handle {
    /// Starts a process and leaves it to itself; the same key starts it once.
    pub async fn start_exec(&self, wanted: StartExec, key: Option<&CreateKey>) -> Result<ExecView, HostError> {
        let start = exec_start(&wanted, self.exec_id(key))?;
        let busy = self.request(format!("exec {}", command(&wanted)));
        let life = self.life();
        match self.try_start(start.clone(), &busy).await {
            Err(error) if self.died_under(&error, &life).await => self.try_start(start, &busy).await,
            other => other,
        }
    }

    async fn try_start(&self, start: ExecStart, busy: &Busy) -> Result<ExecView, HostError> {
        let (guest, mut connection) = self.try_connection(busy).await?;
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
        let what = format!("{} {} attached", word(wanted.pty.is_some()), command(&wanted));
        self.start_and_follow(wanted, key, Signal::Connections, &what).await
    }

    /// Starts a process, waits for its end and returns its output.
    pub async fn run_exec(&self, wanted: StartExec, key: Option<&CreateKey>) -> Result<ExecOutput, HostError> {
        let what = format!("exec {} waited for", command(&wanted));
        self.start_and_follow(wanted, key, Signal::Execs, &what).await?.collect().await
    }

    async fn start_and_follow(
        &self,
        wanted: StartExec,
        key: Option<&CreateKey>,
        signal: Signal,
        what: &str,
    ) -> Result<ExecAttachment, HostError> {
        let start = exec_start(&wanted, self.exec_id(key))?;
        let starting = self.request(format!("exec {}", command(&wanted)));
        let life = self.life();
        let attempt = async || {
            let life = self.life();
            let guest = self.guest(&starting).await?;
            let follow = async |connection: GuestConnection| {
                connection.start_and_follow(start.clone(), attach(OutputStart::WHOLE)).await
            };
            let kept = match guest.ready() {
                Some(kept) => Some(follow(kept).await),
                None => None,
            };
            let following = match kept {
                // Of one that had gone stale nobody knows what became; by its id what was started is found, not started twice.
                Some(Err(error)) if error.is_lost() => follow(guest.connect().await?).await,
                Some(following) => following,
                None => follow(guest.connect().await?).await,
            };
            let stream = following.map_err(|error| guest.failed(error))?;
            let exec = exec_view(stream.info())?;
            Ok(ExecAttachment { exec, stream, guest, busy: self.busy(signal, what), handle: self.clone(), life })
        };
        match attempt().await {
            Err(error) if self.died_under(&error, &life).await => attempt().await,
            other => other,
        }
    }

    /// Attaches to a process that was started before.
    pub async fn attach(&self, id: &ExecId, start: OutputStart) -> Result<ExecAttachment, HostError> {
        let request = self.request(format!("exec {id}"));
        let life = self.life();
        let (guest, connection) = self.connection(&request).await?;
        self.attached(guest, connection, id, start, life).await
    }

    /// Attaches again where the way to the guest has broken. It waits until the sandbox is awake for the sake of others:
    /// whoever only listens neither wakes it nor calls off its sleep.
    pub async fn attach_again(&self, id: &ExecId, start: OutputStart) -> Result<ExecAttachment, HostError> {
        loop {
            self.awake_for_others().await?;
            tokio::time::sleep(AGAIN).await;
            let life = self.life();
            let _glance = self.glance("exec followed");
            let attempt = async {
                let guest = Guest::of(self.shared.clone(), &self.record())?;
                let connection = guest.connect().await?;
                self.attached(guest, connection, id, start, life.clone()).await
            };
            match attempt.await {
                Err(error) if self.died_under(&error, &life).await => {}
                other => return other,
            }
        }
    }

    async fn attached(
        &self,
        guest: Guest,
        connection: GuestConnection,
        id: &ExecId,
        start: OutputStart,
        life: CancellationToken,
    ) -> Result<ExecAttachment, HostError> {
        let stream = connection.attach(id.as_str(), attach(start)).await.map_err(|error| guest.failed(error))?;
        let exec = exec_view(stream.info())?;
        let what = format!("{} {} attached", word(exec.pty), quoted(&exec.argv.join(" ")));
        Ok(ExecAttachment {
            exec,
            stream,
            guest,
            busy: self.busy(Signal::Connections, what),
            handle: self.clone(),
            life,
        })
    }

    /// All processes the guest remembers, oldest first.
    pub async fn execs(&self) -> Result<Vec<ExecView>, HostError> {
        self.find_execs(ExecFilter::default()).await?.iter().map(exec_view).collect()
    }

    /// Those processes the guest remembers that are meant, oldest first.
    pub async fn find_execs(&self, filter: ExecFilter) -> Result<Vec<ExecInfo>, HostError> {
        let busy = self.request("list of execs");
        let guest = self.guest(&busy).await?;
        if let Some(mut kept) = guest.ready() {
            match kept.exec_list(filter.clone(), guest.bounded(Limits::EXECS)).await {
                Ok(infos) => {
                    guest.give_back(kept);
                    return Ok(infos);
                }
                // It had gone stale; a fresh one decides.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(guest.failed(error)),
            }
        }
        let (guest, mut connection) = self.connection(&busy).await?;
        let infos = connection.exec_list(filter, guest.bounded(Limits::EXECS)).await;
        let infos = infos.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok(infos)
    }

    /// One process; waits for its end if asked.
    pub async fn exec(&self, id: &ExecId, wait: bool) -> Result<ExecView, HostError> {
        let named = roost_wire::ExecId { id: id.to_string() };
        let request = self.request(format!("exec {id}"));
        if !wait {
            return self.exec_call(&Request::ExecGet(named), &request).await;
        }
        let busy = self.busy(Signal::Execs, format!("exec {id} waited for"));
        self.awake(&request).await?;
        drop(request);
        let life = self.life();
        match self.exec_call(&Request::ExecWait(named), &busy).await {
            Err(lost @ HostError::GuestLost { .. }) => {
                let attached = self.attach_on(id, OutputStart::NOTHING, &life, lost).await?;
                Ok(attached.gather(0, OutputStart::NOTHING).await?.exec)
            }
            other => other,
        }
    }

    /// Sends a signal to a process's group.
    pub async fn signal_exec(&self, id: &ExecId, signal: &SignalExec) -> Result<ExecView, HostError> {
        let number = parse_signal(&signal.signal)
            .ok_or_else(|| HostError::BadRequest(format!("`{}` is not a signal", signal.signal)))?;
        self.send_signal(id, number, SignalTarget::Group).await
    }

    /// Sends a signal to a process, its group or its session.
    pub async fn send_signal(&self, id: &ExecId, signal: i32, target: SignalTarget) -> Result<ExecView, HostError> {
        let request = ExecSignal { id: id.to_string(), signal, target };
        let busy = self.request(format!("signal to exec {id}"));
        // Not through a kept connection: a signal must not be sent twice.
        let (guest, mut connection) = self.connection(&busy).await?;
        let info = connection.call_exec(&Request::ExecSignal(request)).await.map_err(|error| guest.failed(error))?;
        exec_view(&info)
    }

    /// Writes to a process's standard input, and closes it if asked.
    pub async fn write_stdin(&self, id: &ExecId, data: Bytes, close: bool) -> Result<ExecView, HostError> {
        self.stdin_line(id).await?.write(data, close).await
    }

    /// A way to a process's standard input that can be used again and again.
    pub async fn stdin_line(&self, id: &ExecId) -> Result<StdinLine, HostError> {
        let busy = self.request(format!("input of exec {id}"));
        let (guest, connection) = self.connection(&busy).await?;
        Ok(StdinLine { id: id.clone(), guest, connection, _busy: busy })
    }

    /// Changes the size of a process's terminal.
    pub async fn resize_exec(&self, id: &ExecId, size: TerminalSize) -> Result<ExecView, HostError> {
        let size = WindowSize { cols: size.cols, rows: size.rows };
        let busy = self.request(format!("terminal of exec {id}"));
        self.exec_call(&Request::ExecResize(ExecResize { id: id.to_string(), size }), &busy).await
    }

    async fn exec_call(&self, request: &Request, busy: &Busy) -> Result<ExecView, HostError> {
        match self.call(request, busy).await? {
            Reply::Exec(info) => exec_view(&info),
            other => Err(self.unexpected(other)),
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

/// What a person calls a process with a terminal, and one without.
const fn word(pty: bool) -> &'static str {
    if pty { "terminal" } else { "exec" }
}

/// The command of a process, as short as a line of a table needs it.
fn command(wanted: &StartExec) -> String {
    match &wanted.shell {
        Some(line) => quoted(line),
        None => quoted(&wanted.argv.join(" ")),
    }
}

fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let short: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let more = if text.chars().count() > LONGEST { "…" } else { "" };
    format!("\"{}{more}\"", short.trim())
}

pub(crate) fn attach(start: OutputStart) -> Attach {
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
    start.login = wanted.login;
    start.env.clone_from(&wanted.env);
    start.cwd.clone_from(&wanted.cwd);
    start.user.clone_from(&wanted.user);
    start.stdin = wanted.stdin;
    start.tag.clone_from(&wanted.tag);
    start.pty = wanted.pty.map(|size| WindowSize { cols: size.cols, rows: size.rows });
    start.timeout_ms =
        wanted.timeout.and_then(roost_model::Span::get).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Ok(start)
}
