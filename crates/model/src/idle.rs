//! When a sandbox falls asleep by itself, what keeps it awake, and what it has cost so far.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Level, Name, SandboxId, Span, State};

/// Something that keeps a sandbox awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A client that is connected through us: an attached exec, a terminal, a port, a file transfer.
    Connections,
    /// An exec whose starter waits for it.
    Execs,
    /// Processor time used by anything inside.
    Cpu,
    /// Bytes read from and written to disk.
    Disk,
    /// Bytes received and sent.
    Network,
    /// A connection to the outside that waits for its answer.
    Outbound,
    /// A lease that somebody took.
    Holds,
    /// An alarm that is about to ring.
    Timer,
}

impl Signal {
    /// Every signal there is.
    pub const ALL: [Self; 8] = [
        Self::Connections,
        Self::Execs,
        Self::Cpu,
        Self::Disk,
        Self::Network,
        Self::Outbound,
        Self::Holds,
        Self::Timer,
    ];

    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Execs => "execs",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Outbound => "outbound",
            Self::Holds => "holds",
            Self::Timer => "timer",
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|signal| signal.as_str()).collect();
            format!("no signal named `{text}`: there are {}", known.join(", "))
        })
    }
}

/// When a sandbox falls asleep by itself, and how deep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdlePolicy {
    /// Quiet time before it sleeps; `never` keeps it awake.
    pub after: Span,
    /// The level it first sleeps at.
    pub to: Level,
    /// Time asleep in RAM before its memory goes to disk.
    pub deepen_after: Span,
    /// Signals that do not keep it awake.
    #[serde(default)]
    pub ignore: Vec<Signal>,
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self { after: Span::seconds(15), to: Level::Ram, deepen_after: Span::seconds(600), ignore: Vec::new() }
    }
}

impl IdlePolicy {
    /// This policy with what a request changes.
    #[must_use]
    pub fn with(&self, wanted: &IdleRequest) -> Self {
        let mut ignore = wanted.ignore.clone().unwrap_or_else(|| self.ignore.clone());
        ignore.sort_unstable();
        ignore.dedup();
        Self {
            after: wanted.after.unwrap_or(self.after),
            to: wanted.to.unwrap_or(self.to),
            deepen_after: wanted.deepen_after.unwrap_or(self.deepen_after),
            ignore,
        }
    }
}

/// What to change of an idle policy; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdleRequest {
    /// Quiet time before it sleeps; `never` keeps it awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Span>,
    /// The level it first sleeps at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Level>,
    /// Time asleep in RAM before its memory goes to disk; `never` leaves it there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deepen_after: Option<Span>,
    /// Signals that do not keep it awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<Vec<Signal>>,
}

impl From<IdlePolicy> for IdleRequest {
    fn from(policy: IdlePolicy) -> Self {
        let IdlePolicy { after, to, deepen_after, ignore } = policy;
        Self { after: Some(after), to: Some(to), deepen_after: Some(deepen_after), ignore: Some(ignore) }
    }
}

/// One thing that keeps a sandbox awake now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Keeper {
    /// What kind of thing.
    pub signal: Signal,
    /// The thing itself, for people: `exec "npm test" attached`.
    pub what: String,
    /// Since when, where that is known.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
}

/// What a sandbox's ledger tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerKind {
    /// It was made.
    Created,
    /// It fell asleep, or deeper asleep.
    Slept,
    /// It woke.
    Woke,
    /// It went back to a checkpoint.
    Restored,
    /// Its processes ended by themselves.
    Crashed,
}

impl LedgerKind {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Slept => "slept",
            Self::Woke => "woke",
            Self::Restored => "restored",
            Self::Crashed => "crashed",
        }
    }
}

/// One line of a sandbox's ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LedgerEntry {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened.
    pub kind: LedgerKind,
    /// How deep it slept from then on.
    pub level: Option<Level>,
    /// Why.
    pub cause: Option<String>,
    /// Milliseconds that it took.
    pub took_ms: Option<f64>,
    /// Milliseconds until the next entry, or until now.
    pub lasted_ms: u64,
}

/// Why a sandbox is awake or asleep, and what comes next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// Which sandbox.
    pub id: SandboxId,
    /// What people call it.
    pub name: Name,
    /// What it does now.
    pub state: State,
    /// How deep it sleeps, while it sleeps.
    pub level: Option<Level>,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub state_since: Timestamp,
    /// Why it is in its state, where that needs saying: what woke it, or why it slept.
    pub reason: Option<String>,
    /// Whether it sleeps until somebody wakes it expressly.
    #[serde(default)]
    pub stays: bool,
    /// The policy in force.
    pub idle: IdlePolicy,
    /// What keeps it awake now.
    pub keeps_awake: Vec<Keeper>,
    /// Why it does not sleep by itself at all, if it does not.
    pub never: Option<String>,
    /// Since when nothing has kept it awake.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub quiet_since: Option<Timestamp>,
    /// When it will sleep, if all stays quiet.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub sleeps_at: Option<Timestamp>,
    /// When its memory will go to disk, if nobody reaches for it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub deepens_at: Option<Timestamp>,
    /// Why its memory could not be saved when that was tried last.
    pub not_saved: Option<String>,
    /// When it will wake by itself.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub wakes_at: Option<Timestamp>,
    /// Its last sleeps and wakes, oldest first.
    pub ledger: Vec<LedgerEntry>,
}

/// Time that was spent awake and asleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Spent {
    /// Milliseconds awake.
    #[serde(default)]
    pub active_ms: u64,
    /// Milliseconds asleep in RAM.
    #[serde(default)]
    pub ram_ms: u64,
    /// Milliseconds asleep on disk.
    #[serde(default)]
    pub disk_ms: u64,
    /// Milliseconds asleep as files.
    #[serde(default)]
    pub files_ms: u64,
    /// How often it woke.
    #[serde(default)]
    pub wakes: u64,
    /// How often it fell asleep.
    #[serde(default)]
    pub sleeps: u64,
}

impl Spent {
    /// Milliseconds asleep at any level.
    pub const fn asleep_ms(&self) -> u64 {
        self.ram_ms + self.disk_ms + self.files_ms
    }

    /// Adds what another has spent.
    pub const fn add(&mut self, other: &Self) {
        self.active_ms += other.active_ms;
        self.ram_ms += other.ram_ms;
        self.disk_ms += other.disk_ms;
        self.files_ms += other.files_ms;
        self.wakes += other.wakes;
        self.sleeps += other.sleeps;
    }
}

/// What one sandbox has cost so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Which sandbox.
    pub id: SandboxId,
    /// What people call it.
    pub name: Name,
    /// What it does now.
    pub state: State,
    /// How deep it sleeps, while it sleeps.
    pub level: Option<Level>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Time awake and asleep, and how often it changed.
    pub spent: Spent,
    /// Bytes on disk that are its own.
    pub disk_exclusive: u64,
    /// Bytes of its memory images: the one it sleeps in and those of its checkpoints.
    pub images: u64,
    /// Bytes that those may take at most.
    pub image_budget: u64,
}

/// What all living sandboxes have cost so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// Each of them, oldest first.
    pub sandboxes: Vec<UsageView>,
    /// Time of all of them together.
    pub spent: Spent,
    /// Bytes on disk of all of them together.
    pub disk_exclusive: u64,
    /// Bytes of memory images of all of them together.
    pub images: u64,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_a_signal_is_its_json() {
        for signal in Signal::ALL {
            assert_eq!(serde_json::to_value(signal).unwrap(), signal.as_str());
            assert_eq!(signal.as_str().parse(), Ok(signal));
        }
        assert!("noise".parse::<Signal>().unwrap_err().contains("outbound"));
    }

    #[test]
    fn a_request_changes_what_it_names() {
        let wanted: IdleRequest =
            serde_json::from_value(json!({"after": "never", "ignore": ["network", "cpu"]})).unwrap();
        let policy = IdlePolicy::default().with(&wanted);
        assert_eq!(policy.after, Span::NEVER);
        assert_eq!((policy.to, policy.deepen_after), (Level::Ram, Span::seconds(600)));
        assert_eq!(policy.ignore, [Signal::Cpu, Signal::Network]);
        assert_eq!(policy.with(&IdleRequest::default()), policy);
        assert!(serde_json::from_value::<IdleRequest>(json!({"ignore": ["noise"]})).is_err());
    }

    #[test]
    fn a_policy_of_an_older_client_is_read() {
        let old = json!({"after": "15s", "to": "ram", "deepen_after": "10m"});
        assert_eq!(serde_json::from_value::<IdlePolicy>(old).unwrap(), IdlePolicy::default());
    }
}
