//! Receipts: what an operation kept, what it did not, and what it cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CheckpointId, Level};

/// What a receipt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A sandbox was put to sleep, or to a deeper sleep.
    Suspend,
    /// A sandbox was woken.
    Wake,
    /// A moment of a sandbox was kept.
    Checkpoint,
    /// A sandbox went back to a checkpoint.
    Restore,
    /// A sandbox was made from a moment of another.
    Fork,
    /// A sandbox went to another engine.
    Move,
}

impl Operation {
    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Wake => "wake",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
            Self::Fork => "fork",
            Self::Move => "move",
        }
    }
}

/// Something that did not outlive an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotKept {
    /// What it was.
    pub what: String,
    /// Why it could not be kept.
    pub why: String,
}

/// The account of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// What was done.
    pub operation: Operation,
    /// How deep the sandbox sleeps afterwards, if it does.
    pub level: Option<Level>,
    /// The checkpoint that was made, gone back to or forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointId>,
    /// What was kept: `files`, `memory`, `processes`, `listening_sockets`, …
    pub kept: Vec<String>,
    /// What was not.
    pub not_kept: Vec<NotKept>,
    /// Bytes of each kind: `memory`, `dirty`, `disk_exclusive`, …
    #[serde(default)]
    pub bytes: BTreeMap<String, u64>,
    /// Milliseconds for which nothing ran in a sandbox that goes on, or until it had ended; absent where nothing was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_ms: Option<f64>,
    /// Milliseconds of each part.
    pub parts_ms: BTreeMap<String, f64>,
    /// Milliseconds in all.
    pub total_ms: f64,
    /// The sandbox's generation afterwards.
    pub generation: u64,
}

impl Receipt {
    /// A receipt with nothing on it yet.
    pub fn new(operation: Operation, generation: u64) -> Self {
        Self {
            operation,
            level: None,
            checkpoint: None,
            kept: Vec::new(),
            not_kept: Vec::new(),
            bytes: BTreeMap::new(),
            paused_ms: None,
            parts_ms: BTreeMap::new(),
            total_ms: 0.0,
            generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_of_an_operation_is_its_json() {
        use Operation::{Checkpoint, Fork, Move, Restore, Suspend, Wake};
        for operation in [Suspend, Wake, Checkpoint, Restore, Fork, Move] {
            assert_eq!(serde_json::to_value(operation).unwrap(), operation.as_str());
        }
    }

    #[test]
    fn a_receipt_reads_as_it_was_written() {
        let receipt = Receipt {
            level: Some(Level::Disk),
            kept: vec!["files".to_owned(), "memory".to_owned()],
            not_kept: vec![NotKept { what: "tcp".to_owned(), why: "external connection".to_owned() }],
            bytes: BTreeMap::from([("memory".to_owned(), 68_157_440)]),
            paused_ms: Some(101.2),
            parts_ms: BTreeMap::from([("dump".to_owned(), 88.0)]),
            total_ms: 105.0,
            ..Receipt::new(Operation::Suspend, 3)
        };
        let written = serde_json::to_value(&receipt).unwrap();
        assert_eq!(written["bytes"], json!({"memory": 68_157_440}));
        assert_eq!((&written["operation"], &written["level"]), (&json!("suspend"), &json!("disk")));
        assert!(written.get("checkpoint").is_none());
        assert_eq!(serde_json::from_value::<Receipt>(written).unwrap(), receipt);
    }

    #[test]
    fn a_receipt_of_an_older_daemon_is_read() {
        let old = json!({"operation": "wake", "level": null, "kept": ["files"], "not_kept": [],
            "parts_ms": {"start": 1.5}, "total_ms": 1.5, "generation": 1});
        let read: Receipt = serde_json::from_value(old).unwrap();
        assert_eq!((read.bytes.len(), read.paused_ms, read.checkpoint), (0, None, None));
    }
}
