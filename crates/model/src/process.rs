//! Everything that runs inside a sandbox, whoever started it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ExecId, Level, Name, State};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It runs, or would if a CPU were free.
    Running,
    /// It waits for something to happen.
    Sleeping,
    /// It waits in the kernel and cannot be disturbed, mostly for a disk.
    Blocked,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended, and its parent has not asked how.
    Zombie,
    /// Something else.
    Other,
}

impl ProcessState {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Blocked => "blocked",
            Self::Stopped => "stopped",
            Self::Zombie => "zombie",
            Self::Other => "other",
        }
    }

    /// What the kernel's letter means.
    pub fn of_letter(letter: &str) -> Self {
        match letter {
            "R" => Self::Running,
            "S" | "I" => Self::Sleeping,
            "D" => Self::Blocked,
            "T" | "t" => Self::Stopped,
            "Z" | "X" | "x" => Self::Zombie,
            _ => Self::Other,
        }
    }
}

/// A process, as it is seen inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    /// Its pid inside.
    pub pid: u32,
    /// The pid of its parent; 0 for the first process.
    pub ppid: u32,
    /// What the kernel calls it.
    pub name: String,
    /// Program and arguments, cut if long; empty for one that has ended.
    pub argv: Vec<String>,
    /// Who it runs as.
    pub user: String,
    /// What it does.
    pub state: ProcessState,
    /// Its threads.
    pub threads: u32,
    /// Its CPU time, in microseconds; since the last wake out of an image, if there was one.
    pub cpu_us: u64,
    /// Its memory in RAM, in bytes, what it shares with others included.
    pub rss: u64,
    /// When it started; for what no exec or service has started itself, since the last wake out of an image.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// The exec that it belongs to, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecId>,
    /// The service that it belongs to, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Name>,
}

impl ProcessView {
    /// Its command line for people; the name in brackets if it has none.
    pub fn command(&self) -> String {
        if self.argv.is_empty() { format!("[{}]", self.name) } else { self.argv.join(" ") }
    }
}

/// The processes of a sandbox, if it is awake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessList {
    /// What the sandbox does; only of one that is `active` can be told what runs in it.
    pub state: State,
    /// How deep it sleeps, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// All processes, by pid; none unless it is `active`.
    pub items: Vec<ProcessView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_a_state_is_its_json() {
        for letter in ["R", "S", "I", "D", "T", "t", "Z", "X", "?"] {
            let state = ProcessState::of_letter(letter);
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.as_str()));
        }
        assert_eq!(ProcessState::of_letter("?"), ProcessState::Other);
    }
}
