//! Processes: starting them, their output, their end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A program, looked up in the `PATH` of its own environment, and its arguments.
    Argv(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// Starts a process; an id that exists already returns that exec as it is, so a start can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStart {
    /// Chosen by the host: letters, digits, `_` and `-`, at most 64 of them.
    pub id: String,
    /// What to execute.
    pub program: Program,
    /// A line of the shell goes to the user's own, as at a login, in place of `sh`.
    #[serde(default)]
    pub login: bool,
    /// Added to the environment last.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Start from an empty environment: only `env`, nothing of the template's or the guest's.
    #[serde(default)]
    pub clear_env: bool,
    /// Working folder; the sandbox's own or the user's home when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// User name or `uid[:gid]`; the sandbox's default user when absent.
    #[serde(default)]
    pub user: Option<String>,
    /// Keep standard input open as a pipe; `/dev/null` otherwise. A terminal always has its input.
    #[serde(default)]
    pub stdin: bool,
    /// Run on a terminal of this size.
    #[serde(default)]
    pub pty: Option<WindowSize>,
    /// Kill its whole session after this many milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// A name of the caller's, by which it can be found; need not be the only one of its kind.
    #[serde(default)]
    pub tag: Option<String>,
    /// Attach on the same connection at once, before the first byte of output.
    #[serde(default)]
    pub attach: Option<Attach>,
}

impl ExecStart {
    /// A start with everything else left at its default.
    pub fn new(id: impl Into<String>, program: Program) -> Self {
        Self {
            id: id.into(),
            program,
            login: false,
            env: BTreeMap::new(),
            clear_env: false,
            cwd: None,
            user: None,
            stdin: false,
            pty: None,
            timeout_ms: None,
            tag: None,
            attach: None,
        }
    }
}

/// From where on a stream is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartAt {
    /// Not at all.
    Nothing,
    /// Only what comes from now on.
    Now,
    /// From this absolute offset on; if it is no longer kept, a gap is reported first.
    Offset(u64),
}

/// How to attach to an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Standard output, or the terminal.
    pub stdout: StartAt,
    /// Standard error.
    pub stderr: StartAt,
    /// Go on until the exec ends; otherwise stop at what is there now.
    pub follow: bool,
    /// Hold the process back rather than drop output that this reader has not had yet, as long as the reader goes on reading.
    pub lossless: bool,
}

impl Attach {
    /// Everything from the first byte to the end, nothing dropped.
    pub fn whole() -> Self {
        Self { stdout: StartAt::Offset(0), stderr: StartAt::Offset(0), follow: true, lossless: true }
    }
}

/// Attaches to an exec that was started before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAttach {
    /// Which exec.
    pub id: String,
    /// How.
    pub attach: Attach,
}

/// Names an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecId {
    /// Which exec.
    pub id: String,
}

/// Which execs are meant; all of them unless something is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecFilter {
    /// Only those that have not ended.
    #[serde(default)]
    pub running: bool,
    /// Only those whose process has, or had, this pid.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Only those with this tag.
    #[serde(default)]
    pub tag: Option<String>,
}

impl ExecFilter {
    /// Whether an exec is meant.
    pub fn fits(&self, exec: &ExecInfo) -> bool {
        (!self.running || exec.exit().is_none())
            && self.pid.is_none_or(|pid| pid == exec.pid)
            && (self.tag.is_none() || self.tag == exec.tag)
    }
}

/// Asks for a page of the execs, ordered by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecList {
    /// Only ids after this one.
    #[serde(default)]
    pub after: Option<String>,
    /// Only these; a guest that does not know filters yet tells of all.
    #[serde(default)]
    pub filter: ExecFilter,
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalTarget {
    /// The process alone.
    Process,
    /// Its process group.
    #[default]
    Group,
    /// Every process of its session, also after the process itself has ended.
    Session,
}

/// A signal sent while attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSignal {
    /// Number of the signal; see [`crate::parse_signal`].
    pub signal: i32,
    /// Whom it is for.
    #[serde(default)]
    pub target: SignalTarget,
}

/// Sends a signal to an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecSignal {
    /// Which exec.
    pub id: String,
    /// Number of the signal; see [`crate::parse_signal`].
    pub signal: i32,
    /// Whom it is for.
    #[serde(default)]
    pub target: SignalTarget,
}

/// Writes to an exec's standard input; `Stdin` frames and an `End` follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStdin {
    /// Which exec.
    pub id: String,
    /// Close standard input afterwards.
    #[serde(default)]
    pub close: bool,
}

/// A new terminal size sent while attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeTo {
    /// The new size.
    pub size: WindowSize,
}

/// Changes the size of an exec's terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResize {
    /// Which exec.
    pub id: String,
    /// The new size.
    pub size: WindowSize,
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which part of a stream is kept: absolute offsets, `end` excluded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRange {
    /// First byte that can still be read.
    pub start: u64,
    /// All bytes the process has written so far.
    pub end: u64,
}

/// Bytes that a reader asked for and that are no longer kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Of which stream.
    pub stream: Stream,
    /// First byte that is missing.
    pub from: u64,
    /// First byte that follows.
    pub to: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    #[serde(default)]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// The guest killed it because its time was up.
    #[serde(default)]
    pub timed_out: bool,
    /// When, in milliseconds since the epoch.
    #[serde(default)]
    pub at_ms: u64,
}

impl Exit {
    /// The code a shell would show: its own, or 128 and the signal.
    pub fn shell_code(&self) -> i32 {
        self.code.or(self.signal.map(|signal| signal.saturating_add(128))).unwrap_or(-1)
    }
}

/// Whether an exec still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// Its process has not ended.
    Running,
    /// Its process has ended and what it wrote before is in the spool.
    Exited(Exit),
}

/// What is known about an exec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecInfo {
    /// Its id.
    pub id: String,
    /// Process id inside the sandbox.
    pub pid: i32,
    /// What was executed; very long command lines are cut.
    pub argv: Vec<String>,
    /// Start in milliseconds since the epoch.
    pub started_at_ms: u64,
    /// Running, or how it ended.
    pub state: ExecState,
    /// Standard output, or the terminal.
    pub stdout: StreamRange,
    /// Standard error.
    pub stderr: StreamRange,
    /// Whether it runs on a terminal.
    #[serde(default)]
    pub pty: bool,
    /// Name of its user, or the uid as text.
    #[serde(default)]
    pub user: String,
    /// Its first working folder.
    #[serde(default)]
    pub cwd: String,
    /// Whether standard input can still be written.
    #[serde(default)]
    pub stdin_open: bool,
    /// The name its caller gave it.
    #[serde(default)]
    pub tag: Option<String>,
    /// What its caller added to its environment, as far as that is short.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl StreamRange {
    /// Whether readers can calculate with it.
    fn is_sound(self) -> bool {
        self.start <= self.end && self.end <= 1 << 62
    }
}

impl ExecInfo {
    /// Whether it can be true: no stream begins behind its end, or ends where no process gets to.
    pub fn is_sound(&self) -> bool {
        self.stdout.is_sound() && self.stderr.is_sound()
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        match self.state {
            ExecState::Running => None,
            ExecState::Exited(exit) => Some(exit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a guest tells that knows neither tags nor filters.
    const FIRST: &str = r#"{"id":"exe_1","pid":7,"argv":["ls"],"started_at_ms":1,"state":"running",
        "stdout":{"start":0,"end":0},"stderr":{"start":0,"end":0}}"#;

    #[test]
    fn guests_of_the_first_version_are_understood() {
        let exec: ExecInfo = serde_json::from_str(FIRST).unwrap();
        assert_eq!((exec.tag.as_deref(), exec.env.len()), (None, 0));
        let list: ExecList = serde_json::from_str(r#"{"after":null}"#).unwrap();
        assert_eq!(list, ExecList::default());
    }

    #[test]
    fn impossible_ranges_and_signals_are_noticed() {
        let exec: ExecInfo = serde_json::from_str(FIRST).unwrap();
        assert!(exec.is_sound());
        for (start, end) in [(1, 0), (0, u64::MAX)] {
            assert!(!ExecInfo { stderr: StreamRange { start, end }, ..exec.clone() }.is_sound());
        }
        assert_eq!(Exit { signal: Some(i32::MAX), ..Exit::default() }.shell_code(), i32::MAX);
    }

    #[test]
    fn a_filter_means_all_that_it_says() {
        let running: ExecInfo = serde_json::from_str(FIRST).unwrap();
        let ended = ExecInfo { state: ExecState::Exited(Exit::default()), ..running.clone() };
        let tagged = ExecInfo { tag: Some("job".to_owned()), ..running.clone() };
        let fits = |filter: &ExecFilter| [&running, &ended, &tagged].map(|exec| filter.fits(exec));
        let all = ExecFilter::default();
        assert_eq!(fits(&all), [true; 3]);
        assert_eq!(fits(&ExecFilter { running: true, ..all.clone() }), [true, false, true]);
        assert_eq!(fits(&ExecFilter { pid: Some(7), running: true, ..all.clone() }), [true, false, true]);
        assert_eq!(fits(&ExecFilter { pid: Some(8), ..all.clone() }), [false; 3]);
        assert_eq!(fits(&ExecFilter { tag: Some("job".to_owned()), ..all }), [false, false, true]);
    }
}
