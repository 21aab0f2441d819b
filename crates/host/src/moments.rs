//! Keeping moments of a sandbox and going back to them; the actor's part.
//!
//! A checkpoint stops its sandbox for the dump and the snapshot only. It counts when its record is stored, after its files
//! are in place; until then it is nothing but a folder that the next start of the daemon sweeps.

use std::time::Instant;

use jiff::Timestamp;
use roost_disk::{DiskOf, Image, ImageError, Staged};
use roost_lifecycle::{Event as Happening, ImageUse, Phase};
use roost_model::{
    CheckpointBytes, CheckpointId, CheckpointView, CreateCheckpoint, EventKind, Level, NotKept, Operation, Origin,
    Receipt, Restore, SandboxId, chain,
};
use roost_store::{CheckpointRecord, Durability, NewEvent, ServiceRecords, Source};

use crate::actor::{Actor, Message};
use crate::effects::{Effects, disk_error};
use crate::failpoint::fail_point;
use crate::handle::Handle;
use crate::host::Host;
use crate::memory::image_error;
use crate::shared::Shared;
use crate::view::view;
use crate::{HostError, blocking};

const LONGEST_COMMENT: usize = 1000;

/// Why a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client asked for it.
    Asked,
    /// A process inside asked for it.
    Inside,
    /// To keep what a restore is about to replace.
    BeforeRestore,
    /// For the children of a fork, for as long as they need it.
    Fork,
}

impl Handle {
    /// Keeps this moment of it; one that runs goes on.
    pub async fn checkpoint(&self, wanted: CreateCheckpoint) -> Result<(CheckpointView, Receipt), HostError> {
        self.checkpoint_for(wanted, Purpose::Asked).await
    }

    pub(crate) async fn checkpoint_for(
        &self,
        wanted: CreateCheckpoint,
        purpose: Purpose,
    ) -> Result<(CheckpointView, Receipt), HostError> {
        if wanted.comment.as_ref().is_some_and(|comment| comment.len() > LONGEST_COMMENT) {
            return Err(HostError::BadRequest(format!("a comment has at most {LONGEST_COMMENT} bytes")));
        }
        let (record, receipt) = self.take_checkpoint(wanted, purpose).await?;
        Ok((record.view(), receipt))
    }

    pub(crate) async fn take_checkpoint(
        &self,
        wanted: CreateCheckpoint,
        purpose: Purpose,
    ) -> Result<(CheckpointRecord, Receipt), HostError> {
        self.living()?;
        self.ask(|reply| Message::Checkpoint(wanted, purpose, reply)).await
    }

    /// Its checkpoints, oldest first.
    pub async fn checkpoints(&self) -> Result<Vec<CheckpointView>, HostError> {
        checkpoints_of(&self.shared, self.id().clone()).await
    }

    /// The number of its checkpoints, which takes no look at their disks.
    pub(crate) async fn count_checkpoints(&self) -> Result<usize, HostError> {
        let (store, id) = (self.shared.store.clone(), self.id().clone());
        blocking(move || Ok(store.checkpoints_of(&id)?.len())).await
    }

    /// Lets it go back to a checkpoint of its own; what that replaces is kept as an automatic checkpoint.
    pub async fn restore(&self, wanted: Restore) -> Result<Receipt, HostError> {
        self.living()?;
        self.may_destroy("take a sandbox back to a checkpoint")?;
        let (store, id) = (self.shared.store.clone(), wanted.checkpoint.clone());
        let found = blocking(move || store.checkpoint(&id)).await?;
        let found = found.ok_or_else(|| HostError::CheckpointNotFound(wanted.checkpoint.to_string()))?;
        if found.origin.id != *self.id() {
            return Err(HostError::BadRequest(format!(
                "checkpoint {} is of sandbox `{}`: make a new sandbox from it, or fork from it",
                found.id, found.origin.name
            )));
        }
        self.ask(|reply| Message::Restore(Box::new(found), reply)).await
    }
}

impl Host {
    /// One checkpoint, by id or the beginning of one.
    pub fn checkpoint(&self, id: &str) -> Result<CheckpointView, HostError> {
        Ok(self.checkpoint_record(id)?.view())
    }

    /// Every checkpoint there is, whatever it is of.
    pub async fn all_checkpoints(&self) -> Result<Vec<CheckpointView>, HostError> {
        self.checkpoints_where(|_| true).await
    }

    /// The same of those that fit.
    pub(crate) async fn checkpoints_where(
        &self,
        fits: impl Fn(&CheckpointRecord) -> bool,
    ) -> Result<Vec<CheckpointView>, HostError> {
        let store = self.store();
        let records = blocking(move || store.all_checkpoints()).await?;
        let shown = records.iter().filter(|record| !record.transient && fits(record));
        Ok(shown.map(CheckpointRecord::view).collect())
    }

    /// The checkpoints of a sandbox, also of one that is gone.
    pub async fn checkpoints_of(&self, sandbox: &str) -> Result<Vec<CheckpointView>, HostError> {
        let id = match self.find(sandbox) {
            Ok(handle) => handle.id().clone(),
            Err(HostError::Terminated(gone)) => gone.id,
            Err(error) => return Err(error),
        };
        checkpoints_of(&self.shared, id).await
    }
}

/// The checkpoints of a sandbox, oldest first, with what each holds that no other of them and no disk of it does.
async fn checkpoints_of(shared: &Shared, id: SandboxId) -> Result<Vec<CheckpointView>, HostError> {
    let (store, pool) = (shared.store.clone(), shared.pool.clone());
    blocking(move || {
        let mut views: Vec<CheckpointView> = store.checkpoints_of(&id)?.iter().map(CheckpointRecord::view).collect();
        let mut disks: Vec<DiskOf<'_>> = views.iter().map(|view| DiskOf::Checkpoint(view.id.as_str())).collect();
        if pool.disk(id.as_str()).is_some() {
            disks.push(DiskOf::Sandbox(id.as_str()));
        }
        match pool.sizes(&disks) {
            Ok(sizes) => {
                for (view, size) in views.iter_mut().zip(sizes) {
                    view.bytes.disk_exclusive = size.exclusive;
                    view.bytes.disk_referenced = size.referenced;
                }
            }
            // One that is being deleted meanwhile; the sizes of its birth will do.
            Err(error) => tracing::debug!(sandbox = %id, error = %chain(&error), "could not measure checkpoints"),
        }
        Ok(views)
    })
    .await
}

impl Actor {
    pub(crate) async fn checkpoint(
        &mut self,
        wanted: CreateCheckpoint,
        purpose: Purpose,
    ) -> Result<(CheckpointRecord, Receipt), HostError> {
        self.checkpoint_beside(wanted, purpose, None).await
    }

    /// Makes a checkpoint. Others may give way for it, but never `spared`.
    async fn checkpoint_beside(
        &mut self,
        wanted: CreateCheckpoint,
        purpose: Purpose,
        spared: Option<&CheckpointId>,
    ) -> Result<(CheckpointRecord, Receipt), HostError> {
        let phase = self.record.phase;
        if phase.is_ending() {
            return Err(HostError::Terminated(Box::new(view(&self.record))));
        }
        let id = CheckpointId::generate();
        let memory = !wanted.files_only && matches!(phase, Phase::Active | Phase::Suspended(Level::Ram | Level::Disk));
        let room = match (memory, purpose) {
            (false, Purpose::Asked | Purpose::Inside) => {
                self.effects.admit_files(&self.record, spared).await?;
                None
            }
            // What a restore or a fork needs is kept in any case.
            (false, Purpose::BeforeRestore | Purpose::Fork) => None,
            (true, Purpose::Fork) => Some(self.effects.admit_image(&self.record, ImageUse::Passing, spared).await?),
            (true, _) => Some(self.effects.admit_image(&self.record, ImageUse::Checkpoint, spared).await?),
        };
        let bytes = self.take(&id, room, purpose).await?;
        self.account.kept = if memory { vec!["files", "memory", "processes"] } else { vec!["files"] };
        let record = CheckpointRecord {
            id: id.clone(),
            created_at: Timestamp::now(),
            comment: wanted.comment,
            automatic: matches!(purpose, Purpose::BeforeRestore | Purpose::Fork),
            from: if purpose == Purpose::Inside { Origin::Inside } else { Origin::Outside },
            transient: purpose == Purpose::Fork,
            memory,
            parent: self.record.checkpoint.clone(),
            bytes,
            image_version: memory.then(|| self.effects.maker().version),
            processes: std::mem::take(&mut self.account.processes),
            not_kept: self.account.not_kept.clone(),
            origin: self.record.clone(),
        };
        let mut receipt = self.account.receipt(Operation::Checkpoint, None, self.record.generation);
        receipt.checkpoint = Some(id);
        self.remember(&record, purpose, &receipt).await?;
        Ok((record, receipt))
    }

    /// Saves the moment into the pool, with its memory if there is `room` for that; a sandbox that ran runs again when this
    /// returns.
    async fn take(
        &mut self,
        id: &CheckpointId,
        room: Option<u64>,
        purpose: Purpose,
    ) -> Result<CheckpointBytes, HostError> {
        let runs = self.record.phase == Phase::Active;
        let memory = room.is_some();
        let _quiet = self.effects.shared.sealer.quiet();
        self.effects.greeted(&self.record.id).await;
        if runs {
            let since = Instant::now();
            self.effects.flush_ahead(&self.record.id).await;
            if memory {
                self.effects.engine.prepare_dump(&self.record.id).await?;
            }
            self.account.part("flush", since);
        }
        let pool = self.effects.shared.pool.clone();
        let staged = blocking(move || match purpose {
            // Gone as soon as the children live: if the machine dies before, so do they.
            Purpose::Fork => pool.stage_transient(),
            Purpose::Asked | Purpose::Inside | Purpose::BeforeRestore => pool.stage(),
        });
        let staged = staged.await.map_err(image_error)?;
        fail_point("checkpoint-staged");
        let whole = if memory { self.effects.no_half_made_connections(&self.record).await } else { None };
        let saved = self.save_into(staged, runs, room).await;
        fail_point("checkpoint-saved");
        if runs {
            let since = Instant::now();
            // Whatever came of it, the sandbox goes on; one that cannot was ended by the dump, and is found gone.
            if let Err(error) = self.effects.engine.thaw(&self.record.id).await {
                tracing::error!(sandbox = %self.record.id, error = %chain(&error), "could not let it go on");
            }
            self.account.part("thaw", since);
            self.account.resume();
        }
        drop(whole);
        fail_point("checkpoint-thawed");
        let mut staged = saved?;
        let (maker, name, dumped) = (self.effects.maker(), id.clone(), memory && self.record.image.is_none());
        let since = Instant::now();
        let committed = blocking(move || {
            if dumped {
                staged.finish_image(&maker)?;
            }
            fail_point("checkpoint-described");
            staged.commit_checkpoint(name.as_str())
        })
        .await;
        self.account.part("commit", since);
        let committed = committed.map_err(image_error)?;
        let image = committed.image().map_err(image_error)?;
        let bytes = CheckpointBytes { memory: image.as_ref().map_or(0, Image::bytes), ..CheckpointBytes::default() };
        if let Some(image) = image {
            self.effects.shared.sealer.later(image);
        }
        fail_point("checkpoint-committed");
        Ok(bytes)
    }

    async fn save_into(&mut self, mut staged: Staged, runs: bool, room: Option<u64>) -> Result<Staged, HostError> {
        if runs {
            self.account.pause();
            let since = Instant::now();
            self.effects.engine.freeze(&self.record.id).await?;
            self.account.part("freeze", since);
            fail_point("checkpoint-frozen");
        }
        let pool = self.effects.shared.pool.clone();
        let image = self.record.image.clone().filter(|_| room.is_some());
        let fresh = room.is_some() && image.is_none();
        let (staged, into) = blocking(move || {
            let into = match image {
                Some(image) => {
                    staged.copy_image(&pool.image(&image)?)?;
                    None
                }
                None if fresh => Some(staged.memory()?),
                None => None,
            };
            Ok::<_, ImageError>((staged, into))
        })
        .await
        .map_err(image_error)?;
        if let (Some(into), Some(room)) = (into, room) {
            self.effects.dump(&self.record.id, &into, room, &mut self.account).await?;
        }
        fail_point("checkpoint-dumped");
        let since = Instant::now();
        let (pool, id) = (self.effects.shared.pool.clone(), self.record.id.clone());
        let staged = blocking(move || staged.snapshot_disk(&pool, id.as_str()).map(|()| staged)).await;
        self.account.part("snapshot", since);
        staged.map_err(disk_error)
    }

    /// Stores the checkpoint: from here on it counts.
    async fn remember(
        &mut self,
        checkpoint: &CheckpointRecord,
        purpose: Purpose,
        receipt: &Receipt,
    ) -> Result<(), HostError> {
        let mut sandbox = self.record.clone();
        if purpose != Purpose::Fork {
            sandbox.checkpoint = Some(checkpoint.id.clone());
        }
        let event = NewEvent {
            at: Timestamp::now(),
            kind: if purpose == Purpose::Fork { EventKind::Forked } else { EventKind::Checkpointed },
            reason: checkpoint.comment.clone(),
            receipt: Some(Box::new(receipt.clone())),
        };
        let (store, record, stored) = (self.effects.shared.store.clone(), checkpoint.clone(), sandbox.clone());
        match blocking(move || store.insert_checkpoint(&record, &stored, event)).await {
            Ok(event) => {
                fail_point("checkpoint-stored");
                self.publish(sandbox);
                self.effects.announce(Some(event));
                Ok(())
            }
            Err(error) => {
                let (pool, id) = (self.effects.shared.pool.clone(), checkpoint.id.clone());
                if let Err(error) = blocking(move || pool.delete_checkpoint(id.as_str())).await {
                    tracing::warn!(checkpoint = %checkpoint.id, error = %chain(&error), "left for the next sweep");
                }
                Err(error.into())
            }
        }
    }

    /// Keeps what is there, then lets another moment take its place.
    pub(crate) async fn restore(&mut self, checkpoint: CheckpointRecord) -> Result<Receipt, HostError> {
        let began = Instant::now();
        // Looked at before anything is given up: what cannot be started, or an image that cannot be read here, is refused now.
        self.effects.check_start_room(&self.record)?;
        let mut next = self.record.clone();
        next.source = Some(Source::Checkpoint(checkpoint.id.clone()));
        // Memory belongs to the engine that saved it: the sandbox goes back to that one, too.
        let engine = if checkpoint.memory { checkpoint.origin.engine } else { self.record.engine };
        let engine = self.effects.shared.usable_engine(engine)?;
        Effects::new(self.effects.shared.clone(), engine).image_of(&next).await?;
        self.take_place()?;
        let (kept, lost) = self.keep_present(&checkpoint).await?;
        fail_point("restore-kept");
        let before = self.record.clone();
        self.record.source = Some(Source::Checkpoint(checkpoint.id.clone()));
        self.record.checkpoint = Some(checkpoint.id.clone());
        self.record.generation += 1;
        // Its services are those of that moment, by which its guest goes; a later number makes sure of it.
        let revision = self.record.services.revision.max(checkpoint.origin.services.revision) + 1;
        self.record.services = ServiceRecords { revision, ..checkpoint.origin.services.clone() };
        if checkpoint.memory {
            // The processes in its image have what they had at that moment.
            self.record.capabilities.clone_from(&checkpoint.origin.capabilities);
        }
        self.record.asleep_since = Some(checkpoint.created_at);
        self.account = crate::account::Account::open();
        // Stored together with the phase: one that is still active must not wake from a moment it never went back to.
        let reason = Some(format!("going back to checkpoint {}", checkpoint.id));
        if let Err(error) = self.happen(Happening::RestoreRequested, reason).await {
            self.record = before;
            return Err(error);
        }
        self.awake_or_why()?;
        self.account.kept = if checkpoint.memory { vec!["files", "memory", "processes"] } else { vec!["files"] };
        self.account.not_kept.extend(lost);
        let mut receipt = self.account.receipt(Operation::Restore, None, self.record.generation);
        add_keeping(&mut receipt, kept);
        receipt.total_ms = began.elapsed().as_secs_f64() * 1000.0;
        let event = NewEvent {
            at: Timestamp::now(),
            kind: EventKind::Restored,
            reason: Some(format!("went back to checkpoint {}", checkpoint.id)),
            receipt: Some(Box::new(receipt.clone())),
        };
        self.store(self.record.clone(), Some(event), Durability::Process).await?;
        Ok(receipt)
    }

    /// The automatic checkpoint before a restore; what cannot be saved with its memory is saved as files, and said.
    async fn keep_present(&mut self, target: &CheckpointRecord) -> Result<(Receipt, Vec<NotKept>), HostError> {
        let wanted =
            |files_only| CreateCheckpoint { comment: Some(format!("before going back to {}", target.id)), files_only };
        match self.checkpoint_beside(wanted(false), Purpose::BeforeRestore, Some(&target.id)).await {
            Ok((_, receipt)) => Ok((receipt, Vec::new())),
            Err(error @ (HostError::MemoryNotSaved(_) | HostError::EngineUnfit(_) | HostError::ImageBudget(_))) => {
                let why = match error {
                    HostError::MemoryNotSaved(why) | HostError::EngineUnfit(why) => why,
                    other => other.to_string(),
                };
                let (_, receipt) = self.checkpoint(wanted(true), Purpose::BeforeRestore).await?;
                let lost = NotKept { what: "memory of the replaced moment".to_owned(), why };
                Ok((receipt, vec![lost]))
            }
            Err(error) => Err(error),
        }
    }
}

/// Adds what keeping the replaced moment cost to the receipt of a restore.
fn add_keeping(receipt: &mut Receipt, kept: Receipt) {
    receipt.parts_ms.extend(kept.parts_ms.into_iter().map(|(part, time)| (format!("keep {part}"), time)));
    receipt.bytes.extend(kept.bytes.into_iter().map(|(kind, bytes)| (format!("keep_{kind}"), bytes)));
    receipt.paused_ms = match (receipt.paused_ms, kept.paused_ms) {
        (None, None) => None,
        (here, before) => Some(here.unwrap_or_default() + before.unwrap_or_default()),
    };
    receipt.checkpoint = kept.checkpoint;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipt_of_a_restore_tells_what_keeping_the_present_cost() {
        let mut kept = Receipt::new(Operation::Checkpoint, 3);
        kept.parts_ms = [("dump".to_owned(), 40.0), ("disk".to_owned(), 1.0)].into();
        kept.bytes = [("memory".to_owned(), 64 << 20)].into();
        kept.paused_ms = Some(41.5);
        kept.checkpoint = Some(CheckpointId::generate());
        let mut receipt = Receipt::new(Operation::Restore, 4);
        receipt.parts_ms = [("disk".to_owned(), 2.0)].into();
        let checkpoint = kept.checkpoint.clone();
        add_keeping(&mut receipt, kept);
        let parts: Vec<_> = receipt.parts_ms.iter().map(|(part, time)| (part.as_str(), *time)).collect();
        assert_eq!(parts, [("disk", 2.0), ("keep disk", 1.0), ("keep dump", 40.0)]);
        assert_eq!(receipt.bytes, [("keep_memory".to_owned(), 64 << 20)].into());
        assert_eq!((receipt.paused_ms, receipt.checkpoint), (Some(41.5), checkpoint));
    }
}
