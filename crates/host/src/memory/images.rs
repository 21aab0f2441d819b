//! The room for memory images and checkpoints: what is free where images lie, and the budget of the sandbox.

use std::collections::HashSet;

use jiff::Timestamp;
use roost_disk::{DiskLimits, Pool, Retaining};
use roost_lifecycle::{HeldImage, ImageUse, admit_image};
use roost_model::{CheckpointId, EventKind, Origin, SandboxId, chain};
use roost_store::{CheckpointRecord, NewEvent, SandboxRecord, Source};

use super::image_error;
use crate::effects::Effects;
use crate::shared::Shared;
use crate::{HostError, blocking};

/// Bytes that an image takes beside the pages: descriptions, and room for others to go on.
const IMAGE_OVERHEAD: u64 = 64 << 20;

impl Effects {
    /// Admits an image of a sandbox while the sandbox still runs, and returns the bytes that it may take.
    ///
    /// Checkpoints from inside that have to give way are removed before this returns, but never `spared`. An image
    /// that does not fit all the same is refused, and nothing is removed for it.
    pub(crate) async fn admit_image(
        &self,
        record: &SandboxRecord,
        purpose: ImageUse,
        spared: Option<&CheckpointId>,
    ) -> Result<u64, HostError> {
        let (pool, store, sandbox) = (self.shared.pool.clone(), self.shared.store.clone(), record.clone());
        let protected = spared.cloned();
        let look = blocking(move || {
            let saved = sandbox.image.as_deref().map(|image| pool.image(image)).transpose().map_err(image_error)?;
            let held = held(&pool, store.checkpoints_of(&sandbox.id)?, &sandbox.id, purpose, protected.as_ref());
            // Where it cannot be read there is nothing to refuse by: a save that does not fit fails and says so.
            let free =
                pool.image_room().inspect_err(|error| tracing::debug!(%error, "the room for images is not known"));
            Ok::<_, HostError>((saved.map(|image| image.bytes()), held, free.unwrap_or(u64::MAX)))
        });
        let (saved, held, free) = look.await?;
        let needed = match saved {
            // The files of the image get another name.
            Some(bytes) => bytes,
            None => {
                let memory = self.memory_of(&record.id).await;
                fits(memory, free)?;
                memory
            }
        };
        let room = self.give_way(record, purpose, needed, &held, spared).await?;
        Ok(room.min(free.saturating_sub(IMAGE_OVERHEAD)))
    }

    /// Admits a checkpoint without memory, as [`Effects::admit_image`] does one with it.
    ///
    /// Only full qgroups need this: with simple quotas the disk pays for what its checkpoints hold.
    pub(crate) async fn admit_files(
        &self,
        record: &SandboxRecord,
        spared: Option<&CheckpointId>,
    ) -> Result<(), HostError> {
        if self.shared.pool.disk_limits() != DiskLimits::Full {
            return Ok(());
        }
        let (pool, store, id) = (self.shared.pool.clone(), self.shared.store.clone(), record.id.clone());
        let protected = spared.cloned();
        let look = blocking(move || {
            let checkpoints = store.checkpoints_of(&id)?;
            Ok::<_, HostError>(held(&pool, checkpoints, &id, ImageUse::Checkpoint, protected.as_ref()))
        });
        self.give_way(record, ImageUse::Checkpoint, 0, &look.await?, spared).await.map(drop)
    }

    /// Removes the checkpoints that give way for an image of `needed` bytes, and returns the bytes that it may take.
    async fn give_way(
        &self,
        record: &SandboxRecord,
        purpose: ImageUse,
        needed: u64,
        held: &[(CheckpointRecord, u64)],
        spared: Option<&CheckpointId>,
    ) -> Result<u64, HostError> {
        let (budget, memory) = (record.limits.image_budget(), record.limits.memory);
        let admit = |spared: &HashSet<CheckpointId>| {
            let images: Vec<HeldImage> =
                held.iter().map(|(checkpoint, bytes)| counted(checkpoint, *bytes, spared)).collect();
            admit_image(purpose, budget, memory, &images, needed).map_err(HostError::ImageBudget)
        };
        let mut spared: HashSet<CheckpointId> = spared.cloned().into_iter().collect();
        let mut admitted = admit(&spared)?;
        if !admitted.give_way.is_empty() {
            let store = self.shared.store.clone();
            spared.extend(blocking(move || Ok::<_, HostError>(sources(&store.living()?))).await?);
            admitted = admit(&spared)?;
        }
        for place in admitted.give_way {
            let Some((checkpoint, _)) = held.get(place) else { continue };
            tracing::info!(sandbox = %record.id, checkpoint = %checkpoint.id, "a checkpoint from inside gives way");
            self.remove_checkpoint(record, checkpoint.id.clone()).await?;
        }
        Ok(admitted.room)
    }

    /// The bytes of memory that a save writes; 0 where they cannot be read.
    async fn memory_of(&self, id: &SandboxId) -> u64 {
        match self.engine.usage(id).await {
            Ok(usage) => usage.memory_anon,
            Err(error) => {
                tracing::debug!(sandbox = %id, error = %chain(&error), "its memory is not known");
                0
            }
        }
    }

    /// Removes a checkpoint that gives way, and says so in the events of its sandbox.
    async fn remove_checkpoint(&self, record: &SandboxRecord, id: CheckpointId) -> Result<(), HostError> {
        let (pool, store, sandbox) = (self.shared.pool.clone(), self.shared.store.clone(), record.clone());
        let reason = Some(format!("checkpoint {id} from inside gave way to another image"));
        let event = NewEvent { at: Timestamp::now(), kind: EventKind::Changed, reason, receipt: None };
        let told = blocking(move || {
            let told = store.delete_checkpoint(&id, Some((&sandbox, event)))?;
            // Forgotten first, as everywhere: files without a record are swept.
            pool.delete_checkpoint(id.as_str()).map_err(image_error)?;
            Ok::<_, HostError>(told)
        });
        self.announce(told.await?);
        Ok(())
    }

    /// Removes the checkpoints that a sandbox which ends made of itself. Those of clients stay.
    ///
    /// A sandbox that starts from such a checkpoint at this moment keeps it.
    pub(crate) async fn release_own_checkpoints(&self, record: &SandboxRecord) {
        let (pool, store, id) = (self.shared.pool.clone(), self.shared.store.clone(), record.id.clone());
        let removed = blocking(move || {
            let mut own = store.checkpoints_of(&id)?;
            own.retain(|checkpoint| checkpoint.from == Origin::Inside);
            if own.is_empty() {
                return Ok(());
            }
            let needed = sources(&store.living()?);
            for checkpoint in own.iter().filter(|checkpoint| !needed.contains(&checkpoint.id)) {
                store.delete_checkpoint(&checkpoint.id, None)?;
                pool.delete_checkpoint(checkpoint.id.as_str()).map_err(image_error)?;
            }
            Ok::<_, HostError>(())
        });
        if let Err(error) = removed.await {
            tracing::warn!(sandbox = %record.id, error = %chain(&error), "failed to remove its own checkpoints");
        }
    }
}

/// Returns the bytes of all memory images of a sandbox: those of its checkpoints, and the image that it sleeps in.
pub(crate) async fn images_of(shared: &Shared, record: &SandboxRecord) -> Result<u64, HostError> {
    let (pool, store, id, image) = (shared.pool.clone(), shared.store.clone(), record.id.clone(), record.image.clone());
    blocking(move || {
        // An image that is being removed takes no room any more.
        let sleeps_in = image.and_then(|image| pool.image(&image).ok()).map_or(0, |image| image.bytes());
        let held = with_memory(&pool, store.checkpoints_of(&id)?);
        Ok::<_, HostError>(held.fold(sleeps_in, |sum, (_, bytes)| sum.saturating_add(bytes)))
    })
    .await
}

/// The checkpoints of a sandbox that count against its budget and the bytes of each, oldest first.
///
/// Under full qgroups content that only checkpoints hold is on no limit of a disk, so it counts here. An image to sleep in
/// is not refused for it: that content grows while the sandbox writes, and the sandbox must still be able to sleep.
fn held(
    pool: &Pool,
    checkpoints: Vec<CheckpointRecord>,
    sandbox: &SandboxId,
    purpose: ImageUse,
    spared: Option<&CheckpointId>,
) -> Vec<(CheckpointRecord, u64)> {
    if purpose != ImageUse::Checkpoint || pool.disk_limits() != DiskLimits::Full {
        return with_memory(pool, checkpoints).collect();
    }
    let asked = |checkpoint: &CheckpointRecord| checkpoint.from != Origin::Inside || spared == Some(&checkpoint.id);
    let disks: Vec<Retaining<'_>> = checkpoints
        .iter()
        .map(|checkpoint| Retaining { id: checkpoint.id.as_str(), stays: asked(checkpoint) })
        .collect();
    let retained = pool.retained(sandbox.as_str(), &disks).unwrap_or_else(|error| {
        tracing::warn!(%sandbox, error = %chain(&error), "failed to measure what its checkpoints retain");
        vec![0; disks.len()]
    });
    let counted = checkpoints.into_iter().zip(retained).map(|(checkpoint, disk)| {
        let image = if checkpoint.memory { image_bytes(pool, &checkpoint) } else { 0 };
        (checkpoint, disk.saturating_add(image))
    });
    counted.collect()
}

/// The checkpoints with memory and the size of each, oldest first.
fn with_memory(pool: &Pool, checkpoints: Vec<CheckpointRecord>) -> impl Iterator<Item = (CheckpointRecord, u64)> {
    checkpoints.into_iter().filter(|checkpoint| checkpoint.memory).map(|checkpoint| {
        let bytes = image_bytes(pool, &checkpoint);
        (checkpoint, bytes)
    })
}

/// The bytes of the memory image of a checkpoint that has one.
fn image_bytes(pool: &Pool, checkpoint: &CheckpointRecord) -> u64 {
    match checkpoint.bytes.memory {
        // Earlier versions did not note the size of an image that a checkpoint shares with a sleeping sandbox.
        0 => pool.image(checkpoint.id.as_str()).map_or(0, |image| image.bytes()),
        noted => noted,
    }
}

/// A checkpoint as the budget counts it.
fn counted(checkpoint: &CheckpointRecord, bytes: u64, spared: &HashSet<CheckpointId>) -> HeldImage {
    HeldImage { bytes, gives_way: checkpoint.from == Origin::Inside && !spared.contains(&checkpoint.id) }
}

/// The checkpoints that sandboxes start from at this moment.
fn sources(living: &[SandboxRecord]) -> HashSet<CheckpointId> {
    let source = |record: &SandboxRecord| match &record.source {
        Some(Source::Checkpoint(id)) if !record.phase.is_ending() => Some(id.clone()),
        _ => None,
    };
    living.iter().filter_map(source).collect()
}

/// Whether so much memory can be saved where so much is free.
fn fits(memory: u64, free: u64) -> Result<(), HostError> {
    let needed = memory.saturating_add(IMAGE_OVERHEAD);
    if needed <= free {
        return Ok(());
    }
    let text = format!("saving its memory needs {} MiB, {} MiB are free in the data folder", needed >> 20, free >> 20);
    Err(HostError::HostFull(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_does_not_fit_is_refused_with_figures() {
        assert!(fits(100 << 20, 164 << 20).is_ok());
        let Err(HostError::HostFull(text)) = fits(100 << 20, (164 << 20) - 1) else { panic!("it does not fit") };
        assert_eq!(text, "saving its memory needs 164 MiB, 163 MiB are free in the data folder");
        assert!(fits(u64::MAX, u64::MAX - 1).is_err());
    }
}
