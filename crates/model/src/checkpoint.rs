//! Checkpoints: immutable moments of a sandbox, and what can be asked of them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CheckpointId, Name, NotKept, Origin, SandboxId};

/// A process whose memory was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SavedProcess {
    /// Its pid inside; it keeps it.
    pub pid: u32,
    /// Its name, as `ps` shows it.
    pub name: String,
}

/// How much room a checkpoint takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointBytes {
    /// Its memory image.
    pub memory: u64,
    /// What of its disk nothing else uses: what deleting it gives back.
    pub disk_exclusive: u64,
    /// All of its disk, what it shares with others included, its template not.
    pub disk_referenced: u64,
}

/// A checkpoint as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointView {
    /// Its id.
    pub id: CheckpointId,
    /// The sandbox it is a moment of; it may be gone.
    pub sandbox: SandboxId,
    /// What that was called then.
    pub sandbox_name: Name,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// What its maker said about it.
    pub comment: Option<String>,
    /// Whether Roost made it by itself, to keep what a restore replaced.
    pub automatic: bool,
    /// Who asked for it; one from inside gives way when the image budget is reached, and goes with its sandbox.
    /// An older daemon does not send it.
    #[serde(default)]
    pub from: Origin,
    /// Whether it holds memory and processes; otherwise files only.
    pub memory: bool,
    /// The checkpoint the sandbox stood on when this one was made; it may be gone.
    pub parent: Option<CheckpointId>,
    /// How much room it takes.
    pub bytes: CheckpointBytes,
    /// The sandbox's generation then.
    pub generation: u64,
    /// The template below its files.
    pub template: String,
    /// What ran and goes on when it is restored.
    pub processes: Vec<SavedProcess>,
    /// What could not be kept.
    pub not_kept: Vec<NotKept>,
}

/// A checkpoint to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCheckpoint {
    /// What to remember about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Leave memory and processes out.
    #[serde(default)]
    pub files_only: bool,
}

/// The checkpoint a sandbox shall go back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// Which.
    pub checkpoint: CheckpointId,
}

/// How a path differs between two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Only the later one has it.
    Added,
    /// Both have it, with another content, owner or mode.
    Changed,
    /// Only the earlier one has it.
    Removed,
}

impl ChangeKind {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileChange {
    /// Which, from the sandbox's root; bytes that are not UTF-8 replaced.
    pub path: String,
    /// How.
    pub kind: ChangeKind,
    /// Bytes it has afterwards; 0 if it was removed.
    pub size: u64,
}

/// What changed from one checkpoint to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointDiff {
    /// The one taken as the earlier.
    pub from: CheckpointId,
    /// The one taken as the later.
    pub to: CheckpointId,
    /// Paths that differ, by path.
    pub files: Vec<FileChange>,
    /// Processes that only the later one has.
    pub processes_started: Vec<SavedProcess>,
    /// Processes that only the earlier one has.
    pub processes_ended: Vec<SavedProcess>,
    /// Whether more paths differ than are listed.
    pub truncated: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_request_keeps_memory() {
        let wanted: CreateCheckpoint = serde_json::from_value(json!({})).unwrap();
        assert_eq!(wanted, CreateCheckpoint { comment: None, files_only: false });
    }

    #[test]
    fn misspelt_requests_are_refused() {
        assert!(serde_json::from_value::<CreateCheckpoint>(json!({"file_only": true})).is_err());
        assert!(serde_json::from_value::<Restore>(json!({})).is_err());
        assert!(serde_json::from_value::<Restore>(json!({"checkpoint": "sbx_01"})).is_err());
    }

    #[test]
    fn the_text_of_a_change_is_its_json() {
        for kind in [ChangeKind::Added, ChangeKind::Changed, ChangeKind::Removed] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn a_view_reads_as_it_was_written() {
        let view = CheckpointView {
            id: CheckpointId::from_parts(2, 2),
            sandbox: SandboxId::from_parts(1, 1),
            sandbox_name: "web".parse().unwrap(),
            created_at: "2027-01-15T08:00:00Z".parse().unwrap(),
            comment: None,
            automatic: true,
            from: crate::Origin::Outside,
            memory: true,
            parent: Some(CheckpointId::from_parts(1, 1)),
            bytes: CheckpointBytes { memory: 1, disk_exclusive: 2, disk_referenced: 3 },
            generation: 4,
            template: "base".to_owned(),
            processes: vec![SavedProcess { pid: 7, name: "python3".to_owned() }],
            not_kept: vec![NotKept { what: "tcp".to_owned(), why: "external connection".to_owned() }],
        };
        let written = serde_json::to_value(&view).unwrap();
        assert_eq!(written["bytes"], json!({"memory": 1, "disk_exclusive": 2, "disk_referenced": 3}));
        assert_eq!(written["processes"], json!([{"pid": 7, "name": "python3"}]));
        assert_eq!(serde_json::from_value::<CheckpointView>(written).unwrap(), view);
    }
}
