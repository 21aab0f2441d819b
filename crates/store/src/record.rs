//! Everything that is remembered of a sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{
    Capability, CheckpointId, EngineKind, IdlePolicy, Level, Limits, Name, NetworkPolicy, OnTtl, Parent, PortAccess,
    PortRule, SandboxId, Signal, Span, Spent, TemplateId, Tombstone,
};
use serde::{Deserialize, Serialize};

use crate::ServiceRecords;

/// A moment that a sandbox can start from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A checkpoint.
    Checkpoint(CheckpointId),
    /// What a promoted template starts its sandboxes with.
    Template(TemplateId),
}

/// An attempt to save a sandbox's memory that did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotSaved {
    /// Why.
    pub why: String,
    /// When.
    pub at: Timestamp,
}

/// Everything that is remembered of a sandbox.
///
/// Stored as JSON: fields it does not know are ignored, so a field that is added later must have a default.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// For ever its own.
    pub id: SandboxId,
    /// What people call it.
    pub name: Name,
    /// Where it is in its life.
    #[serde(with = "phase_text")]
    pub phase: Phase,
    /// Since when.
    pub state_since: Timestamp,
    /// When it was made.
    pub created_at: Timestamp,
    /// What isolates it.
    pub engine: EngineKind,
    /// The name of the template it started from.
    pub template: String,
    /// The very template, should the name come to mean another one.
    pub template_digest: String,
    /// Whether it goes away when its work is done.
    #[serde(default)]
    pub ephemeral: bool,
    /// Whether it belongs to one `run` and ends with it.
    #[serde(default)]
    pub bound_to_run: bool,
    /// The template in whose pool it waits for somebody to take it; nobody sees it until then.
    #[serde(default)]
    pub pool: Option<TemplateId>,
    /// The token or key by which it was made, if that was not the owner of the host.
    #[serde(default)]
    pub made_by: Option<String>,
    /// Counts its births.
    pub generation: u64,
    /// Where it came from, if from another.
    pub parent: Option<Parent>,
    /// Limits in force.
    #[serde(with = "StoredLimits")]
    pub limits: Limits,
    /// When it sleeps by itself.
    #[serde(with = "StoredIdle")]
    pub idle: IdlePolicy,
    /// Time it may live.
    pub ttl: Option<Span>,
    /// When that time ends; nothing while it stays asleep.
    pub expires_at: Option<Timestamp>,
    /// What happens then.
    #[serde(default)]
    pub on_ttl: OnTtl,
    /// Whether it stays asleep until somebody wakes it expressly.
    #[serde(default)]
    pub stays: bool,
    /// Whether a touch wakes it from such a sleep, too.
    #[serde(default)]
    pub auto_resume: bool,
    /// Labels of the user's.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Environment of everything started in it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What its guest supervises.
    #[serde(default)]
    pub services: ServiceRecords,
    /// What it may reach.
    #[serde(with = "StoredNetwork")]
    pub network: NetworkPolicy,
    /// Capabilities of root inside beyond the usual ones. Absent in records of versions that gave every sandbox all of them:
    /// its processes keep those until its next start from files, which gives none.
    #[serde(default)]
    pub capabilities: Option<BTreeSet<Capability>>,
    /// The secret its guest asks for, in hex.
    pub key: String,
    /// Its network slot, while it has one.
    pub slot: Option<u32>,
    /// Its range of host uids.
    pub uid_range: u32,
    /// The user that runs what names no other.
    pub user: String,
    /// The folder in which that starts.
    pub workdir: Option<String>,
    /// The memory image it sleeps in, while it has one.
    #[serde(default)]
    pub image: Option<String>,
    /// The checkpoint it stands on: the last one made of it or gone back to; it may be gone.
    #[serde(default)]
    pub checkpoint: Option<CheckpointId>,
    /// The moment its next start comes from, while it is being made from one or goes back to one.
    #[serde(default)]
    pub source: Option<Source>,
    /// Since when nothing has run in it, whatever levels it has gone through; nothing while it is awake.
    #[serde(default)]
    pub asleep_since: Option<Timestamp>,
    /// Since when nothing had kept it awake when it fell asleep.
    #[serde(default)]
    pub quiet_since: Option<Timestamp>,
    /// Why its memory could not be saved, since it was last awake.
    #[serde(default)]
    pub not_saved: Option<NotSaved>,
    /// Time awake and asleep before its present phase.
    #[serde(default)]
    pub spent: Spent,
    /// Counts its starts from files; a wake with its memory is none.
    #[serde(default)]
    pub boot: u64,
    /// When it last started from files; nothing for one that has only ever woken with its memory.
    #[serde(default)]
    pub booted_at: Option<Timestamp>,
    /// What was decided about its ports.
    #[serde(default)]
    pub ports: Vec<PortRule>,
    /// Who may reach the others.
    #[serde(default)]
    pub port_access: PortAccess,
    /// Why it is in its state, where that needs saying.
    pub reason: Option<String>,
    /// When and why it ended, once that is decided.
    pub tombstone: Option<Tombstone>,
}

/// Says which sandbox it is and how it stands; the key and the environment are secrets and stay out of logs.
impl fmt::Debug for SandboxRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxRecord")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("phase", &self.phase)
            .field("state_since", &self.state_since)
            .field("engine", &self.engine)
            .field("template", &self.template)
            .field("generation", &self.generation)
            .field("image", &self.image)
            .field("checkpoint", &self.checkpoint)
            .field("slot", &self.slot)
            .field("uid_range", &self.uid_range)
            .field("reason", &self.reason)
            .field("tombstone", &self.tombstone)
            .finish_non_exhaustive()
    }
}

/// A phase is stored as the text it shows.
mod phase_text {
    use roost_lifecycle::Phase;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(phase)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Phase, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

// The API's own types refuse fields they do not know, which is right for a request and wrong for what an older or newer
// daemon has stored. These mirrors do not; the compiler keeps them in step with the originals.

#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits", default = "Limits::default")]
struct StoredLimits {
    cpus: f64,
    memory: u64,
    disk: u64,
    pids: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "IdlePolicy", default = "IdlePolicy::default")]
struct StoredIdle {
    after: Span,
    to: Level,
    deepen_after: Span,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignore: Vec<Signal>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "NetworkPolicy", default = "NetworkPolicy::default")]
struct StoredNetwork {
    enabled: bool,
}
