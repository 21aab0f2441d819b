//! The daemon and its host: lists, statistics, tokens, doctor.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Access, CreateSandbox, EngineKind, Level, StartExec, TokenId};

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
    /// What it is good for; everything if absent.
    #[serde(default)]
    pub access: Access,
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
    /// What it is good for.
    pub access: Access,
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

/// How far the doctor goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Doctoring {
    /// Look only; nothing is started.
    Look,
    /// Run a command on every engine that seems fit.
    #[default]
    Prove,
    /// The same, and measure starts and wakes, which takes seconds.
    Measure,
}

/// What an engine can do on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EngineAbilities {
    /// Levels at which its sandboxes can sleep.
    pub levels: Vec<Level>,
    /// Whether what runs inside meets a kernel of its own.
    pub own_kernel: bool,
    /// Whether limits can be changed while a sandbox runs.
    pub live_limits: bool,
    /// Whether sandboxes outlive the daemon.
    pub survives_daemon: bool,
    /// Whether what is written to `/tmp` and `/var/tmp` is on disk; else in memory, and gone without it.
    pub tmp_on_disk: bool,
    /// Whether reaching a limit of memory or processes may end all of a sandbox, not only the process that does; it then goes back to
    /// its last checkpoint with memory.
    pub limits_end_all: bool,
    /// Whether the limit of processes is a number inside, where one more is refused; else it is a bound for what the sandbox has on
    /// the host, and inside there may be more.
    pub counts_processes: bool,
    /// Whether programs with the set-user-id bit become another user, `sudo` among them.
    pub setuid: bool,
}

/// What an engine takes on this host: the middle of several rounds, with the smallest template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EngineFigures {
    /// When this was measured.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Milliseconds from nothing to the first output of a command.
    pub create_ms: f64,
    /// Milliseconds from a request to the answer of one that slept in RAM.
    pub ram_wake_ms: Option<f64>,
    /// Milliseconds from a request to the answer of one that slept on disk.
    pub disk_wake_ms: Option<f64>,
    /// Bytes of memory, page cache aside, of one that has just run a command.
    pub memory: u64,
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
    /// Why it does not work here, if it does not.
    pub problem: Option<String>,
    /// What it can do here.
    pub abilities: EngineAbilities,
    /// The last figures that were measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<EngineFigures>,
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
