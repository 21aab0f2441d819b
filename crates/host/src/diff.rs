//! What lies between two checkpoints.

use roost_disk::DiffSide;
use roost_model::{CheckpointDiff, SavedProcess, chain};
use roost_store::CheckpointRecord;

use crate::host::Host;
use crate::{HostError, blocking};

/// Most paths that a diff lists.
const MOST: usize = 10_000;

impl Host {
    /// What differs between two checkpoints: files, and processes where both kept them.
    pub async fn diff_checkpoints(&self, a: &str, b: &str) -> Result<CheckpointDiff, HostError> {
        let (from, to) = (self.checkpoint_record(a)?, self.checkpoint_record(b)?);
        let templates = &self.shared.templates;
        let lower = async |record: &CheckpointRecord| {
            templates.mounted(&record.origin.template, &record.origin.template_digest).await
        };
        let (from_lower, to_lower) = (lower(&from).await?, lower(&to).await?);
        let (pool, from_id, to_id) = (self.shared.pool.clone(), from.id.clone(), to.id.clone());
        let files = blocking(move || {
            let from = DiffSide { checkpoint: Some(from_id.as_str()), lower: &from_lower };
            let to = DiffSide { checkpoint: Some(to_id.as_str()), lower: &to_lower };
            pool.diff(from, to, MOST)
        })
        .await
        .map_err(|error| HostError::Internal(chain(&error)))?;
        let without = |all: &[SavedProcess], others: &[SavedProcess]| {
            all.iter().filter(|process| !others.contains(process)).cloned().collect()
        };
        let both = from.memory && to.memory;
        let (before, after) = if both { (from.processes, to.processes) } else { (Vec::new(), Vec::new()) };
        Ok(CheckpointDiff {
            from: from.id,
            to: to.id,
            files: files.files,
            processes_started: without(&after, &before),
            processes_ended: without(&before, &after),
            truncated: files.truncated,
        })
    }
}
