//! `roost serve --supervise`: keeps a daemon running where no service manager does.
//!
//! The supervisor starts `roost serve` as its child and plays the part of systemd: it waits for `READY=1`, expects
//! `WATCHDOG=1` while the daemon is alive, and passes signals on. A daemon that dies, or that stops answering itself, is
//! started again after a pause that grows with each failure. Sandboxes go on meanwhile; the next daemon adopts them and
//! logs the event `daemon_restarted`.
//!
//! A daemon that fails before its first `READY=1` is not started again: its error is for the person who typed the command.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixDatagram;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::Instant;

/// The first pause before a restart; it doubles with each failure that follows soon.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A daemon that ran for this long has recovered: its next failure is a first one.
const RECOVERED: Duration = Duration::from_secs(60);
/// A daemon that has not reported to be alive for this long is killed, unless `WATCHDOG_USEC` says otherwise. The packaged
/// systemd unit has the same number.
const WATCHDOG: Duration = Duration::from_secs(60);
/// The variables of a service manager: its socket, and the longest silence in microseconds.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
const WATCHDOG_USEC: &str = "WATCHDOG_USEC";

/// Returns the pause before the next start, given how long the daemon ran and the pause before that.
fn next_pause(ran: Duration, last: Option<Duration>) -> Duration {
    match last {
        Some(last) if ran < RECOVERED => (last * 2).min(LONGEST_PAUSE),
        _ => FIRST_PAUSE,
    }
}

/// How one life of the daemon ended.
#[derive(Debug)]
enum End {
    /// The daemon was asked to stop, and ended in order.
    Stopped(ExitStatus),
    /// The daemon died or was killed because it hung.
    Died { status: ExitStatus, was_ready: bool },
}

/// Keeps a daemon with these arguments running until it is stopped; returns its exit code.
pub(crate) async fn supervise(data_dir: &Path, arguments: Vec<OsString>) -> anyhow::Result<u8> {
    if std::env::var_os(NOTIFY_SOCKET).is_some() {
        bail!("a service manager supervises this process already: use `roost serve` without --supervise");
    }
    let program = std::env::current_exe().context("failed to find the program of this process")?;
    let manager = Manager::listen(data_dir)?;
    let mut signals = Signals::listen()?;
    let (mut pause, mut ever_ready) = (None, false);
    loop {
        let began = Instant::now();
        let mut daemon = manager.start(&program, &arguments)?;
        let (status, was_ready) = match manager.watch(&mut daemon, &mut signals).await? {
            End::Stopped(status) => return Ok(code_of(status)),
            End::Died { status, was_ready } => (status, was_ready),
        };
        ever_ready |= was_ready;
        if !ever_ready {
            return Ok(code_of(status).max(1));
        }
        let wait = next_pause(began.elapsed(), pause);
        pause = Some(wait);
        tracing::error!(%status, "the daemon ended; starting it again in {} s", wait.as_secs());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = signals.stop() => return Ok(0),
        }
    }
}

/// The exit code to pass on; a daemon that a signal ended counts as failed.
fn code_of(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The signals that a supervisor passes on.
#[derive(Debug)]
struct Signals {
    terminate: SignalStream,
    interrupt: SignalStream,
    hangup: SignalStream,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal and returns what the daemon gets: every request to stop is a `SIGTERM` there.
    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.interrupt.recv() => Signal::TERM,
            _ = self.hangup.recv() => Signal::HUP,
        }
    }

    /// Waits for a request to stop.
    async fn stop(&mut self) {
        while self.next().await != Signal::TERM {}
    }
}

/// The socket at which the daemon reports to its supervisor.
#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    watchdog: Duration,
}

impl Manager {
    fn listen(data_dir: &Path) -> anyhow::Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
        made.with_context(|| format!("failed to make the folder `{}`", data_dir.display()))?;
        let path = data_dir.join("supervisor.sock");
        // A socket that a killed supervisor left.
        drop(fs::remove_file(&path));
        let socket = UnixDatagram::bind(&path).with_context(|| format!("failed to listen on `{}`", path.display()))?;
        let wanted = std::env::var(WATCHDOG_USEC).ok().and_then(|text| text.parse().ok());
        let watchdog = wanted.filter(|time| *time > 0).map_or(WATCHDOG, Duration::from_micros);
        Ok(Self { socket, path, watchdog })
    }

    fn start(&self, program: &Path, arguments: &[OsString]) -> anyhow::Result<Child> {
        // A report of the last daemon says nothing about the next.
        let mut stale = [0; 16];
        while self.socket.try_recv(&mut stale).is_ok() {}
        Command::new(program)
            .args(arguments)
            .env(NOTIFY_SOCKET, &self.path)
            .env(WATCHDOG_USEC, self.watchdog.as_micros().to_string())
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("failed to start `{}`", program.display()))
    }

    /// Waits for the end of a daemon; kills it if it is silent for too long, and passes signals on to it.
    async fn watch(&self, daemon: &mut Child, signals: &mut Signals) -> anyhow::Result<End> {
        let (mut ready, mut stopping) = (false, false);
        let mut alive_at = Instant::now();
        let mut report = [0; 256];
        loop {
            let silent = async {
                // A start may take minutes (a pool that is grown, many sandboxes); only a daemon that serves must report.
                if ready && !stopping {
                    tokio::time::sleep_until(alive_at + self.watchdog).await
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                status = daemon.wait() => {
                    let status = status.context("failed to wait for the daemon")?;
                    let ordered = status.success() || stopping;
                    return Ok(if ordered { End::Stopped(status) } else { End::Died { status, was_ready: ready } });
                }
                received = self.socket.recv(&mut report) => {
                    let length = received.context("failed to hear the daemon")?;
                    ready |= report[..length].starts_with(b"READY=1");
                    alive_at = Instant::now();
                }
                asked = signals.next() => {
                    stopping |= asked == Signal::TERM;
                    pass_on(daemon, asked);
                }
                () = silent => {
                    tracing::error!("the daemon has not reported for {} s; killing it", self.watchdog.as_secs());
                    pass_on(daemon, Signal::KILL);
                    alive_at = Instant::now();
                }
            }
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Sends a signal to the daemon. The child was not waited for yet, so its pid is its own.
fn pass_on(daemon: &Child, signal: Signal) {
    let Some(pid) = daemon.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
    if let Err(error) = kill_process(pid, signal) {
        tracing::warn!(%error, "failed to signal the daemon");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_until_the_daemon_has_recovered() {
        let soon = Duration::from_secs(3);
        let mut pause = None;
        let pauses: Vec<u64> = (0..7)
            .map(|_| {
                let next = next_pause(soon, pause);
                pause = Some(next);
                next.as_secs()
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(next_pause(RECOVERED, pause), FIRST_PAUSE);
    }
}
