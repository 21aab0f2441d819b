//! Processes that the host asked for, from their start until they are forgotten.
//!
//! ```text
//!            fork + exec               reaped             drained
//! (start) ----------------> running ----------> ended ---------------> exited ----> forgotten
//!                              |  pump: pipes -> spools    |   late output still goes to the spools
//! ```
//! The pump thread of an exec is the only writer of its spools; connections read them under the same lock and are rung
//! when there is more. The reaper tells the pump that the process ended; the pump takes in what the pipes still hold and
//! only then publishes the exit, so that whoever sees it finds all output before it.

pub(crate) mod attach;
pub(crate) mod awake;
pub(crate) mod feed;
mod input;
mod kept;
pub(crate) mod log;
pub(crate) mod pump;
pub(crate) mod signal;
mod spool;
pub(crate) mod start;
pub(crate) mod table;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use roost_sys::spawn::Ended;
use roost_wire::{ExecInfo, ExecState, Exit, Failure, WindowSize};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::failure::{bad_request, failed};
use crate::wake::{Wake, lock};
use input::Input;
use kept::Kept;
use log::Log;
use spool::Spool;

/// One process and its output.
#[derive(Debug)]
pub(crate) struct Exec {
    id: String,
    argv: Vec<String>,
    user: String,
    cwd: String,
    tag: Option<String>,
    /// What its caller added to its environment, as far as it is shown.
    env: BTreeMap<String, String>,
    pty: bool,
    started_at_ms: u64,
    pid: AtomicI32,
    /// Rings the pump.
    pump: Wake,
    /// Takes its output in its place: the log of the service that it is a run of.
    sink: Option<Arc<Exec>>,
    state: Mutex<State>,
}

/// The part of an exec that changes.
#[derive(Debug)]
struct State {
    /// Standard output and standard error.
    spools: [Kept; 2],
    /// What the reaper said.
    ended: Option<(Ended, u64)>,
    timed_out: bool,
    /// Set once the output before the end is in the spools, with their ends at that moment.
    exit: Option<(Exit, [u64; 2])>,
    input: Input,
    /// The pump's time awake when it last looked.
    awake: Duration,
    listeners: Vec<Listener>,
    next_listener: u64,
    /// The pump stands still for the sake of a reader.
    held: bool,
}

/// A connection that wants to hear of changes.
#[derive(Debug)]
struct Listener {
    id: u64,
    wake: Arc<Wake>,
    /// What it has not read yet and must not lose.
    hold: Option<Hold>,
}

/// A reader that holds the process back.
#[derive(Debug, Clone, Copy)]
struct Hold {
    /// Where it is in each stream it reads.
    at: [Option<u64>; 2],
    /// When it last read something, as the pump counts time.
    progress: Duration,
}

impl Hold {
    /// Whether there is something that it has not read.
    fn is_behind(&self, ends: [u64; 2]) -> bool {
        self.at.into_iter().zip(ends).any(|(at, end)| at.is_some_and(|at| at < end))
    }
}

impl State {
    fn new(spools: [Kept; 2], input: Input) -> Self {
        Self {
            spools,
            ended: None,
            timed_out: false,
            exit: None,
            input,
            awake: Duration::ZERO,
            listeners: Vec::new(),
            next_listener: 0,
            held: false,
        }
    }

    fn ring_listeners(&self) {
        for listener in &self.listeners {
            listener.wake.ring();
        }
    }

    /// All bytes that each stream has had.
    fn ends(&self) -> [u64; 2] {
        self.spools.each_ref().map(|spool| spool.range().end)
    }

    /// The lowest offset of a stream that a holding reader still needs.
    fn keep_from(&self, stream: usize) -> Option<u64> {
        let holds = self.listeners.iter().filter_map(|listener| listener.hold);
        holds.filter_map(|hold| hold.at.get(stream).copied().flatten()).min()
    }
}

impl Exec {
    /// The log of a service: an exec without a process, which those of the service write to and readers attach to.
    pub(crate) fn log(id: &str, log: Log) -> io::Result<Arc<Self>> {
        let nothing = Kept::Spool(Spool::new(PathBuf::new(), 0, 0));
        Ok(Arc::new(Self {
            id: id.to_owned(),
            argv: Vec::new(),
            user: String::new(),
            cwd: String::new(),
            tag: None,
            env: BTreeMap::new(),
            pty: false,
            started_at_ms: now_ms(),
            pid: AtomicI32::new(0),
            pump: Wake::new()?,
            sink: None,
            state: Mutex::new(State::new([Kept::Log(log), nothing], Input::default())),
        }))
    }

    /// Ends a log: whoever follows it hears so, and its files go.
    pub(crate) fn end_log(&self) {
        let mut state = self.lock();
        let ends = [state.spools[0].range().end, 0];
        if let Kept::Log(log) = &mut state.spools[0] {
            log.remove();
        }
        state.exit = Some((Exit { at_ms: now_ms(), ..Exit::default() }, ends));
        state.ring_listeners();
    }

    /// Whose spools its output goes to.
    fn sink(&self) -> &Exec {
        self.sink.as_deref().unwrap_or(self)
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.load(Ordering::Acquire)
    }

    pub(crate) fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    pub(crate) fn is_running(&self) -> bool {
        self.lock().exit.is_none()
    }

    /// Bytes that its spools keep.
    pub(crate) fn kept(&self) -> u64 {
        self.lock().spools.iter().map(|spool| spool.range().end - spool.range().start).sum()
    }

    /// The last bytes of both streams, one after the other, at most `limit` of each.
    pub(crate) fn last_output(&self, limit: usize) -> Vec<u8> {
        let state = self.lock();
        state.spools.iter().flat_map(|spool| spool.tail(limit)).collect()
    }

    /// Takes the reaper's word.
    pub(crate) fn reaped(&self, ended: Ended) {
        self.lock().ended = Some((ended, now_ms()));
        self.pump.ring();
    }

    /// Tells everybody how it ended; all its output is in the spools.
    fn publish_end(&self, ended: Ended, at_ms: u64) {
        let mut state = self.lock();
        let (code, signal) = match ended {
            Ended::Exited(code) => (Some(code), None),
            Ended::Signaled(signal) => (None, Some(signal)),
        };
        let ends = state.ends();
        let timed_out = state.timed_out && signal.is_some();
        state.exit = Some((Exit { code, signal, timed_out, at_ms }, ends));
        state.input = Input::default();
        state.ring_listeners();
    }

    pub(crate) fn info(&self) -> ExecInfo {
        let state = self.lock();
        let [stdout, stderr] = [&state.spools[0], &state.spools[1]].map(Kept::range);
        ExecInfo {
            id: self.id.clone(),
            pid: self.pid(),
            argv: self.argv.clone(),
            started_at_ms: self.started_at_ms,
            state: state.exit.map_or(ExecState::Running, |(exit, _)| ExecState::Exited(exit)),
            stdout,
            stderr,
            pty: self.pty,
            user: self.user.clone(),
            cwd: self.cwd.clone(),
            stdin_open: state.input.is_open(),
            tag: self.tag.clone(),
            env: self.env.clone(),
        }
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, size: WindowSize) -> Result<(), Failure> {
        let terminal = self.lock().input.target().filter(|_| self.pty);
        let terminal = terminal.ok_or_else(|| bad_request(format!("exec `{}` has no terminal", self.id)))?;
        set_window_size(&terminal, size).map_err(|error| failed("resize the terminal", &error.into()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn set_window_size(terminal: &OwnedFd, size: WindowSize) -> rustix::io::Result<()> {
    tcsetwinsize(terminal, Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 })
}

/// Wall-clock time for people to read.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
