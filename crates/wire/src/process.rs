//! Everything that runs inside, whoever started it.

use serde::{Deserialize, Serialize};

/// Asks for a page of the processes, ordered by pid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListProcesses {
    /// Only those with a higher pid.
    #[serde(default)]
    pub after: Option<i32>,
}

/// A process as the kernel inside shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Its pid.
    pub pid: i32,
    /// The pid of its parent; 0 if that is outside.
    pub parent: i32,
    /// What the kernel calls it.
    pub name: String,
    /// Program and arguments, cut if long; none of one that has ended and was not waited for.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Who it runs as: a name, or a number that has none.
    pub user: String,
    /// The kernel's letter for what it does: `R`, `S`, `D`, `T`, `Z` …
    pub state: String,
    /// Its threads.
    pub threads: u32,
    /// Its CPU time in microseconds.
    pub cpu_us: u64,
    /// Its memory that is in RAM, in bytes, what it shares with others included.
    pub resident: u64,
    /// When it started, in milliseconds since the epoch.
    pub started_at_ms: u64,
    /// The exec that it belongs to.
    #[serde(default)]
    pub exec: Option<String>,
    /// The service that it belongs to.
    #[serde(default)]
    pub service: Option<String>,
}

/// Sends a signal to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSignal {
    /// Its pid.
    pub pid: i32,
    /// The number of the signal.
    pub signal: i32,
}
