//! The daemon and its host: lists, statistics, tokens, doctor.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CreateSandbox, EngineKind, StartExec, TokenId};

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// What was asked for, oldest first.
    pub items: Vec<T>,
    /// Where the next page starts, if there is one.
    pub next_cursor: Option<String>,
}

/// What a sandbox uses now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Microseconds of CPU since its start.
    pub cpu_us: u64,
    /// Bytes of memory, page cache included.
    pub memory: u64,
    /// Bytes of memory that are not page cache.
    pub memory_anon: u64,
    /// Bytes of memory it may use.
    pub memory_limit: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes on disk that are its own.
    pub disk_exclusive: u64,
    /// Bytes on disk it may use.
    pub disk_limit: u64,
    /// Processes killed for want of memory.
    pub oom_kills: u64,
}

/// One ephemeral command: a sandbox to make and what to run in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The sandbox.
    #[serde(default)]
    pub sandbox: CreateSandbox,
    /// The command.
    pub exec: StartExec,
}

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MintToken {
    /// What it is for.
    pub name: String,
}

/// A token as it is remembered: never with its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its id.
    pub id: TokenId,
    /// What it is for.
    pub name: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// A new token with its secret, shown this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewToken {
    /// The token.
    pub token: TokenView,
    /// What to send as `Authorization: Bearer …`.
    pub secret: String,
}

/// One thing the doctor looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorCheck {
    /// What.
    pub what: String,
    /// Whether it is well.
    pub ok: bool,
    /// Whether Roost cannot do without it.
    pub required: bool,
    /// What was found, or what to do about it.
    pub detail: String,
}

/// What the doctor says of one engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EngineDoctor {
    /// Which.
    pub engine: EngineKind,
    /// Whether this host can run it.
    pub fit: bool,
    /// Milliseconds from nothing to the first output of a command in a sandbox that was really run, or nothing.
    pub proven_ms: Option<f64>,
    /// What failed, if the proof did.
    pub problem: Option<String>,
    /// What was checked.
    pub checks: Vec<DoctorCheck>,
}

/// What this host can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// Version of the daemon.
    pub version: String,
    /// The host's kernel.
    pub kernel: String,
    /// Each engine.
    pub engines: Vec<EngineDoctor>,
    /// Disk, network and the rest.
    pub checks: Vec<DoctorCheck>,
}
