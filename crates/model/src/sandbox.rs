//! A sandbox as the API shows it, and what can be asked of one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Capability, CheckpointId, IdlePolicy, IdleRequest, Limits, LimitsRequest, Name, PortAccess, PortView, SandboxId,
    ServiceSpec, Span,
};

/// The public states of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Being made; not yet usable.
    Creating,
    /// Awake.
    Active,
    /// Falling asleep.
    Suspending,
    /// Asleep at a level.
    Suspended,
    /// Waking.
    Resuming,
    /// Gone; a tombstone says when and why.
    Terminated,
}

impl State {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Active => "active",
            Self::Suspending => "suspending",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Terminated => "terminated",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How deep a suspended sandbox sleeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Frozen, memory in RAM.
    #[default]
    Ram,
    /// Memory in an image on disk.
    Disk,
    /// Files only; processes ended.
    Files,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ram => "ram",
            Self::Disk => "disk",
            Self::Files => "files",
        })
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ram" => Ok(Self::Ram),
            "disk" => Ok(Self::Disk),
            "files" => Ok(Self::Files),
            other => Err(format!("no level named `{other}`: it is `ram`, `disk` or `files`")),
        }
    }
}

/// What happens to a sandbox when its time to live ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTtl {
    /// It ends.
    #[default]
    Delete,
    /// It is suspended to disk and stays asleep until somebody wakes it expressly.
    Disk,
    /// Its processes end, and it stays asleep as files until somebody wakes it expressly.
    Files,
}

impl fmt::Display for OnTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete => "delete",
            Self::Disk => "disk",
            Self::Files => "files",
        })
    }
}

impl FromStr for OnTtl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "delete" => Ok(Self::Delete),
            "disk" => Ok(Self::Disk),
            "files" => Ok(Self::Files),
            other => Err(format!("`{other}` is nothing to do at the end: it is `delete`, `disk` or `files`")),
        }
    }
}

/// What isolates a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineKind {
    /// Namespaces, cgroups and seccomp on the host's kernel.
    Native,
    /// gVisor's kernel, a process of the host's, by runsc.
    Gvisor,
    /// The in-memory engine of tests.
    Fake,
}

impl EngineKind {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Gvisor => "gvisor",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "native" => Ok(Self::Native),
            "gvisor" => Ok(Self::Gvisor),
            "fake" => Ok(Self::Fake),
            other => Err(format!("no engine named `{other}`: there are `native`, `gvisor` and `auto`")),
        }
    }
}

/// Which engine is wanted for a sandbox; written as `auto` or the engine's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EngineChoice {
    /// The strongest that this host has.
    #[default]
    Auto,
    /// This one.
    Named(EngineKind),
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(kind) => f.write_str(kind.as_str()),
        }
    }
}

impl From<EngineChoice> for String {
    fn from(choice: EngineChoice) -> Self {
        choice.to_string()
    }
}

impl TryFrom<String> for EngineChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            name => name.parse().map(Self::Named),
        }
    }
}

/// What a sandbox may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Whether it reaches the outside at all.
    pub enabled: bool,
}

impl Default for NetworkPolicy {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// Where a sandbox came from, if from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Parent {
    /// The sandbox it was forked from.
    pub sandbox: SandboxId,
    /// The moment it started from.
    pub checkpoint: Option<CheckpointId>,
}

/// What is left of a sandbox that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tombstone {
    /// Why it ended, in a word: `deleted`, `ttl`, `run_finished`, `create_failed`, `exited`.
    pub cause: String,
    /// The same for people.
    pub message: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// A sandbox as everybody sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SandboxView {
    /// For ever its own.
    pub id: SandboxId,
    /// What people call it.
    pub name: Name,
    /// What it does now.
    pub state: State,
    /// How deep it sleeps, while it sleeps.
    pub level: Option<Level>,
    /// What isolates it.
    pub engine: EngineKind,
    /// The template it started from.
    pub template: String,
    /// Whether it goes away when its work is done.
    pub ephemeral: bool,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Since when it is in its state.
    #[schema(value_type = String, format = DateTime)]
    pub state_since: Timestamp,
    /// Counts its births: 1, and one more with every fork or restore.
    pub generation: u64,
    /// Where it came from.
    pub parent: Option<Parent>,
    /// Limits in force.
    pub limits: Limits,
    /// When it sleeps by itself.
    pub idle: IdlePolicy,
    /// Since when nothing has kept it awake; absent while something does.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub quiet_since: Option<Timestamp>,
    /// Time it may live.
    pub ttl: Option<Span>,
    /// When the time to live ends; absent while it stays asleep.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// What happens then.
    #[serde(default)]
    pub on_ttl: OnTtl,
    /// Whether it sleeps until somebody wakes it expressly; what needs it awake is refused meanwhile.
    #[serde(default)]
    pub stays: bool,
    /// Whether what needs it awake wakes it from such a sleep, too, as long as its memory was kept.
    #[serde(default)]
    pub auto_resume: bool,
    /// Who may reach those of its ports about which nothing was decided.
    #[serde(default)]
    pub port_access: PortAccess,
    /// Labels of the user's.
    pub labels: BTreeMap<String, String>,
    /// Environment of everything started in it.
    pub env: BTreeMap<String, String>,
    /// What it may reach.
    pub network: NetworkPolicy,
    /// Capabilities that root inside has beyond the usual ones.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// Ports that listen inside, and those that were opened to the outside.
    pub ports: Vec<PortView>,
    /// Why it is in its state, where that needs saying.
    pub reason: Option<String>,
    /// When and why it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<Tombstone>,
    /// What a request asked for and this host does not keep, in the answer to that request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What to make; everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    /// Its name; a friendly one is made up if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The template to start from; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The checkpoint to start from, in the place of a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_checkpoint: Option<CheckpointId>,
    /// What isolates it: `native`, `gvisor` or `auto`; the template's default if absent, then the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Whether it goes away when its work is done.
    #[serde(default)]
    pub ephemeral: bool,
    /// Limits that differ from the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// When it sleeps by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleRequest>,
    /// Time it may live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// What happens then; it ends if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_ttl: Option<OnTtl>,
    /// Whether what needs it awake wakes it from a sleep that stays, as long as its memory was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<bool>,
    /// Who may reach those of its ports about which nothing is decided; only holders of a token or a link if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_access: Option<PortAccess>,
    /// Environment of everything started in it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Labels of the user's.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What its guest supervises, by name; starts with it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<Name, ServiceSpec>,
    /// What it may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    /// Capabilities that root inside gets beyond the usual ones, for the sandbox's whole life; the template's default if
    /// absent, then the daemon's. They change nothing on `gvisor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeSet<Capability>>,
}

/// How deep a sandbox shall sleep.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Suspend {
    /// The level; `ram` if absent.
    #[serde(default)]
    pub to: Level,
    /// Whether it stays asleep until somebody wakes it expressly. Its time to live stands still meanwhile, and starts anew
    /// when it wakes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stay: bool,
}

impl From<Level> for Suspend {
    fn from(to: Level) -> Self {
        Self { to, stay: false }
    }
}

/// The engine that a sandbox shall go on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveSandbox {
    /// `native`, `gvisor` or `auto`, the strongest that works here.
    pub engine: String,
}

/// What to change; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchSandbox {
    /// Labels to set; `null` removes one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, Option<String>>>,
    /// Limits to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// When it sleeps by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleRequest>,
    /// A new time to live, counted from now; `never` removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Span>,
    /// What happens when the time to live ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_ttl: Option<OnTtl>,
    /// Whether what needs it awake wakes it from a sleep that stays, as long as its memory was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_resume: Option<bool>,
    /// What it may reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn levels_read_as_they_are_written() {
        for level in [Level::Ram, Level::Disk, Level::Files] {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.to_string());
        }
        assert!("deep".parse::<Level>().is_err());
    }

    #[test]
    fn a_choice_of_engine_reads_as_it_is_written() {
        for (choice, word) in [(EngineChoice::Auto, "auto"), (EngineChoice::Named(EngineKind::Gvisor), "gvisor")] {
            assert_eq!(serde_json::to_value(choice).unwrap(), word);
            assert_eq!(serde_json::from_value::<EngineChoice>(json!(word)).unwrap(), choice);
        }
        let refused = serde_json::from_value::<EngineChoice>(json!("hyper")).unwrap_err();
        assert!(refused.to_string().contains("no engine named `hyper`"), "{refused}");
    }

    #[test]
    fn sleep_is_light_unless_told() {
        assert_eq!(serde_json::from_value::<Suspend>(json!({})).unwrap(), Suspend { to: Level::Ram, stay: false });
        assert_eq!(serde_json::from_value::<Suspend>(json!({"to": "files"})).unwrap().to, Level::Files);
        assert!(serde_json::from_value::<Suspend>(json!({"level": "disk"})).is_err());
    }

    #[test]
    fn a_checkpoint_to_start_from_is_optional() {
        let checkpoint = CheckpointId::from_parts(1, 1);
        let wanted: CreateSandbox = serde_json::from_value(json!({"from_checkpoint": checkpoint})).unwrap();
        assert_eq!(wanted.from_checkpoint, Some(checkpoint));
        assert_eq!(serde_json::to_value(CreateSandbox::default()).unwrap().get("from_checkpoint"), None);
    }
}
