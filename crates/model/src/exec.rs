//! Processes started through Roost.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExecId, Span};

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What to start: either `argv` or `shell`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartExec {
    /// Program and arguments.
    #[serde(default)]
    pub argv: Vec<String>,
    /// A line for `sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Give the line to the user's own shell, as at a login, in place of `sh`.
    #[serde(default)]
    pub login: bool,
    /// Environment over the sandbox's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; the user's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User by name or number; the template's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Keep standard input open for writing.
    #[serde(default)]
    pub stdin: bool,
    /// Give it a terminal of this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<TerminalSize>,
    /// Kill it after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// A name for it, at most 256 bytes; need not be the only one of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Wait for its end and return its output in the same answer.
    #[serde(default)]
    pub wait: bool,
}

/// How far a process has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum ExecState {
    /// It runs.
    Running,
    /// It ended.
    Exited {
        /// Its exit code; 128 + signal if a signal ended it.
        exit_code: i32,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Whether its timeout ended it.
        timed_out: bool,
        /// When.
        #[schema(value_type = String, format = DateTime)]
        at: Timestamp,
    },
}

/// Which bytes of an output stream are still kept, by absolute offset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Streams {
    /// The oldest byte of standard output that is kept.
    pub stdout_start: u64,
    /// How many bytes standard output has had.
    pub stdout_end: u64,
    /// The oldest byte of standard error that is kept.
    pub stderr_start: u64,
    /// How many bytes standard error has had.
    pub stderr_end: u64,
}

/// A process as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecView {
    /// Its id.
    pub id: ExecId,
    /// Its pid inside.
    pub pid: u32,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Who it runs as.
    pub user: String,
    /// Where it started.
    pub cwd: String,
    /// Whether it has a terminal.
    pub pty: bool,
    /// The name it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// When it started.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Whether it runs.
    pub status: ExecState,
    /// Which output is kept.
    pub output: Streams,
}

/// A finished process with its output, as `wait` returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecOutput {
    /// The process.
    pub exec: ExecView,
    /// Its exit code; 128 + signal if a signal ended it.
    pub exit_code: i32,
    /// Standard output, bytes that are not UTF-8 replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Whether output was longer than the answer may be; the rest is at `…/output`.
    pub truncated: bool,
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalExec {
    /// Name or number: `TERM`, `SIGKILL`, `9`.
    pub signal: String,
}
