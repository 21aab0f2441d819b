//! Everything that is remembered of a checkpoint.

use jiff::Timestamp;
use roost_model::{CheckpointBytes, CheckpointId, CheckpointView, NotKept, Origin, SavedProcess};
use serde::{Deserialize, Serialize};

use crate::SandboxRecord;

/// Everything that is remembered of a checkpoint; it outlives its sandbox and needs nothing of what is remembered of that.
///
/// Stored as JSON: fields it does not know are ignored, so a field that is added later must have a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Its id; its folder in the pool is named after it.
    pub id: CheckpointId,
    /// When it was made.
    pub created_at: Timestamp,
    /// What its maker said about it.
    pub comment: Option<String>,
    /// Whether a restore made it, to keep what it replaced.
    #[serde(default)]
    pub automatic: bool,
    /// Who asked for it.
    #[serde(default)]
    pub from: Origin,
    /// Whether it is there for the children of a fork only, and goes once they are born.
    #[serde(default)]
    pub transient: bool,
    /// Whether it holds memory and processes.
    pub memory: bool,
    /// The checkpoint the sandbox stood on; it may be gone.
    pub parent: Option<CheckpointId>,
    /// How much room it took when it was made.
    #[serde(default)]
    pub bytes: CheckpointBytes,
    /// What must read its memory image, as the engine that wrote it says.
    #[serde(default)]
    pub image_version: Option<String>,
    /// What ran.
    #[serde(default)]
    pub processes: Vec<SavedProcess>,
    /// What could not be kept.
    #[serde(default)]
    pub not_kept: Vec<NotKept>,
    /// The sandbox as it was: what starts from here starts with its template, limits and environment, and its guest asks
    /// for the key of that moment first.
    pub origin: SandboxRecord,
}

impl CheckpointRecord {
    /// The checkpoint as the API shows it, with the sizes of its birth.
    pub fn view(&self) -> CheckpointView {
        CheckpointView {
            id: self.id.clone(),
            sandbox: self.origin.id.clone(),
            sandbox_name: self.origin.name.clone(),
            created_at: self.created_at,
            comment: self.comment.clone(),
            automatic: self.automatic,
            from: self.from,
            memory: self.memory,
            parent: self.parent.clone(),
            bytes: self.bytes,
            generation: self.origin.generation,
            template: self.origin.template.clone(),
            processes: self.processes.clone(),
            not_kept: self.not_kept.clone(),
        }
    }
}
