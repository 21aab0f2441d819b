//! What an actor does to the world: engine, disk, network and store.
//!
//! Each effect is idempotent and none of them decides anything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use roost_engine::{DiskSource, Engine, EngineError, Exited, NetworkPlug, Presence, StartSpec, Usage};
use roost_lifecycle::{Seen, stop_time};
use roost_model::{Event, Limits, SandboxId, chain};
use roost_net::{Access, Network, NoSlot, Slot};
use roost_store::{Durability, NewEvent, SandboxRecord, Source};
use roost_wire::{GuestConfig, Key, Request, Shutdown};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::account::Account;
use crate::convert::service_set;
use crate::failpoint::fail_point;
use crate::guest::Guest;
use crate::memory::Origin;
use crate::services::service_limits;
use crate::shared::Shared;
use crate::{HostError, blocking};

/// How long processes may take to end in good order.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between attempts at something that must succeed before the sandbox can go on.
const RETRY: Duration = Duration::from_secs(1);

/// The hands of one actor.
#[derive(Debug, Clone)]
pub(crate) struct Effects {
    pub(crate) shared: Arc<Shared>,
    pub(crate) engine: Arc<dyn Engine>,
}

/// Plugs the slot that a sandbox was given.
#[derive(Debug)]
struct SlotPlug {
    network: Network,
    slot: Slot,
    access: Access,
    id: SandboxId,
}

#[async_trait]
impl NetworkPlug for SlotPlug {
    async fn plug(&self, netns: std::os::fd::OwnedFd) -> Result<(), EngineError> {
        self.network.plug(self.slot, netns, self.access).await.map_err(|error| EngineError::Failed {
            step: "plug the network in",
            id: self.id.clone(),
            detail: chain(&error),
        })
    }
}

impl Effects {
    pub(crate) fn new(shared: Arc<Shared>, engine: Arc<dyn Engine>) -> Self {
        Self { shared, engine }
    }

    pub(crate) fn actors(&self) -> &TaskTracker {
        &self.shared.actors
    }

    pub(crate) fn leaving(&self) -> &CancellationToken {
        &self.shared.leaving
    }

    pub(crate) fn host_limits(&self) -> &Limits {
        &self.shared.config.host_limits
    }

    /// Stores the record and its event; the event is to be announced once the record is published.
    pub(crate) async fn save_record(
        &self,
        record: &SandboxRecord,
        event: Option<NewEvent>,
        durability: Durability,
    ) -> Result<Option<Event>, HostError> {
        let (store, record) = (self.shared.store.clone(), record.clone());
        Ok(blocking(move || store.save_sandbox(&record, event, durability)).await?)
    }

    pub(crate) fn announce(&self, event: Option<Event>) {
        if let Some(event) = event {
            self.shared.events.announce(event.id);
        }
    }

    /// Makes its disk, empty or as it was at the checkpoint it comes from.
    pub(crate) async fn make_disk(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let (pool, id, limit) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        let source = record.source.clone();
        blocking(move || {
            match (pool.disk(id.as_str()).is_some(), &source) {
                (false, _) => {}
                (true, None) => return Ok(()),
                // What came out of the image may have run already, and its memory fits no other files than those.
                (true, Some(_)) => pool.delete_disk(id.as_str())?,
            }
            match source {
                Some(Source::Checkpoint(from)) => pool.disk_from_checkpoint(from.as_str(), id.as_str(), limit)?,
                Some(Source::Template(from)) => pool.disk_from_seed(from.as_str(), id.as_str(), limit)?,
                None => pool.create_disk(id.as_str(), limit)?,
            };
            fail_point("disk-made");
            Ok::<_, roost_disk::DiskError>(())
        })
        .await
        .map_err(disk_error)
    }

    /// Puts the disk of the checkpoint it goes back to in the place of its own.
    pub(crate) async fn replace_disk(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let Some(Source::Checkpoint(checkpoint)) = record.source.clone() else {
            return Err(HostError::Internal("a restore without a checkpoint".to_owned()));
        };
        let (pool, id, limit) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        blocking(move || {
            // One that an earlier daemon did not finish; what it replaced is in an automatic checkpoint.
            if pool.replacement(id.as_str())?.is_some() {
                pool.undo_replace(id.as_str())?;
            }
            pool.replace_disk(id.as_str(), checkpoint.as_str(), limit)?;
            fail_point("disk-replaced");
            pool.discard_replaced(id.as_str())?;
            fail_point("disk-discarded");
            Ok(())
        })
        .await
        .map_err(disk_error)
    }

    /// Starts the sandbox, with its memory where it has an image; on success the record holds its network slot.
    pub(crate) async fn start(&self, record: &mut SandboxRecord, account: &mut Account) -> Result<(), HostError> {
        self.check_start_room(record)?;
        let origin = self.image_of(record).await?;
        let slot = self.shared.network.allocate().map_err(slots_taken)?;
        record.slot = Some(slot.0);
        let started = self.start_in(record, slot, origin.as_ref(), account).await;
        if started.is_err() {
            record.slot = None;
            self.unplug(slot).await;
        }
        started
    }

    async fn start_in(
        &self,
        record: &mut SandboxRecord,
        slot: Slot,
        origin: Option<&Origin>,
        account: &mut Account,
    ) -> Result<(), HostError> {
        if origin.is_none() {
            // A version that gave every sandbox all of them left no set in the record.
            record.capabilities.get_or_insert_default();
        }
        // Before anything runs in it: a daemon that finds it half woken must be able to reach its guest.
        self.save_record(record, None, Durability::Process).await?;
        fail_point("start-stored");
        let spec = self.start_spec(record, slot).await?;
        let lifted = self.lift_limit(record).await?;
        let running = match origin {
            Some(origin) => self.engine.restore(spec, &origin.image).await,
            None => self.engine.start(spec).await,
        };
        if lifted && let Err(error) = self.set_disk_limit(record).await {
            tracing::warn!(sandbox = %record.id, error = %chain(&error), "its disk may hold a little more than its limit");
        }
        let running = running.map_err(HostError::from)?;
        fail_point("start-running");
        for (part, time) in running.parts_us {
            account.timed(part, time);
        }
        match origin {
            Some(origin) => {
                if let Err(error) = self.introduce(record, Some(origin)).await {
                    // Its guest is there and does not answer: nothing can be done with it.
                    self.kill(record).await;
                    return Err(error);
                }
            }
            None => {
                record.boot += 1;
                record.booted_at = Some(Timestamp::now());
            }
        }
        fail_point("start-introduced");
        record.source = None;
        record.asleep_since = None;
        Ok(())
    }

    /// Makes room on a full disk for what a start does to it.
    async fn lift_limit(&self, record: &SandboxRecord) -> Result<bool, HostError> {
        let (pool, id, limit) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        blocking(move || pool.lift_limit(id.as_str(), limit)).await.map_err(disk_error)
    }

    /// Refuses a start for which the pool has no room, or for which no network is left.
    pub(crate) fn check_start_room(&self, record: &SandboxRecord) -> Result<(), HostError> {
        self.shared.pool.check_start_room().map_err(|error| HostError::HostFull(error.to_string()))?;
        // One that has a network now gives it back before it starts again.
        if record.slot.is_none() { self.shared.network.check_slot().map_err(slots_taken) } else { Ok(()) }
    }

    async fn start_spec(&self, record: &SandboxRecord, slot: Slot) -> Result<StartSpec, HostError> {
        let shared = &self.shared;
        let (pool, id) = (shared.pool.clone(), record.id.clone());
        let disk = pool
            .disk(id.as_str())
            .ok_or_else(|| HostError::Internal(format!("the disk of sandbox {id} is not in the pool")))?;
        let lower = shared.templates.mounted(&record.template, &record.template_digest).await?;
        let access = if record.network.enabled { Access::Internet } else { Access::DaemonOnly };
        let network = SlotPlug { network: shared.network.clone(), slot, access, id: id.clone() };
        Ok(StartSpec {
            id,
            hostname: record.name.to_string(),
            disk: DiskSource::Layers { lower, subvolume: disk.subvolume },
            lasting: !record.bound_to_run,
            limits: record.limits.clone(),
            capabilities: record.capabilities.clone().unwrap_or_default(),
            uid_range: record.uid_range,
            guest_config: self.guest_config(record)?,
            network: Arc::new(network),
        })
    }

    fn guest_config(&self, record: &SandboxRecord) -> Result<Vec<u8>, HostError> {
        let key = Key::from_hex(&record.key).map_err(|error| HostError::Internal(error.to_string()))?;
        let mut config = GuestConfig::new(record.id.as_str(), record.name.as_str(), key);
        config.waits = record.pool.is_some();
        // Saved from below its kernel, so that it does not matter who shares what.
        config.lends_memory = self.engine.capabilities().own_kernel;
        config.generation = record.generation;
        config.default_user.clone_from(&record.user);
        config.workdir.clone_from(&record.workdir);
        config.env.clone_from(&record.env);
        config.services = service_set(&record.services);
        config.service_limits = service_limits();
        config.encode().map_err(|error| HostError::Internal(chain(&error)))
    }

    /// What the world says of its processes.
    pub(crate) async fn seen(&self, record: &SandboxRecord) -> Seen {
        loop {
            match self.engine.inspect(&record.id).await {
                // Without its slot nobody can reach it.
                Ok(Presence::Running) if record.slot.is_some() => return Seen::Running,
                Ok(Presence::Frozen) if record.slot.is_some() => return Seen::Frozen,
                Ok(_) => return Seen::Absent,
                Err(error) => {
                    tracing::error!(sandbox = %record.id, error = %chain(&error), "could not look at it; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    pub(crate) async fn exited(&self, record: &SandboxRecord) -> Option<Exited> {
        match self.engine.exited(&record.id).await {
            Ok(exited) => Some(exited),
            Err(error) => {
                tracing::error!(sandbox = %record.id, error = %chain(&error), "cannot watch for its end");
                None
            }
        }
    }

    /// The limit that ended all of a sandbox that has ended, if it was one, for people.
    pub(crate) async fn limit_that_ended(&self, record: &SandboxRecord) -> Option<String> {
        let usage = self.engine.usage(&record.id).await.ok().filter(|_| self.engine.capabilities().limits_end_all)?;
        let limit = match usage {
            Usage { oom_kills: 1.., .. } => format!("its memory limit of {} MiB", record.limits.memory >> 20),
            Usage { pids_refused: 1.., .. } => format!("its limit of {} processes", record.limits.pids),
            _ => return None,
        };
        Some(format!("{limit} was reached, and all of its processes ended"))
    }

    /// Asks the guest to end everything; whatever comes of it, a kill follows.
    pub(crate) async fn shutdown(&self, record: &SandboxRecord) {
        self.greeted(&record.id).await;
        let ask = async {
            let mut connection = Guest::of(self.shared.clone(), record)?.connect().await?;
            let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(0);
            connection
                .call(&Request::Shutdown(Shutdown { grace_ms }))
                .await
                .map_err(|error| HostError::GuestLost { sandbox: record.name.to_string(), detail: chain(&error) })
        };
        let limit = GRACE * 2 + stop_time(&record.services.specs());
        if let Ok(Err(error)) = tokio::time::timeout(limit, ask).await {
            tracing::debug!(sandbox = %record.id, %error, "no orderly end");
        }
    }

    /// Ends every process; returns only when none is left, because what follows relies on it.
    pub(crate) async fn kill(&self, record: &mut SandboxRecord) {
        self.shared.guests.forget(&record.id);
        self.shared.greetings.forget(&record.id);
        while let Err(error) = self.engine.kill(&record.id).await {
            tracing::error!(sandbox = %record.id, error = %chain(&error), "could not kill it; trying again");
            tokio::time::sleep(RETRY).await;
        }
        self.shared.guests.ended(&record.id);
        fail_point("kill-ended");
        if let Some(slot) = record.slot.take() {
            self.unplug(Slot(slot)).await;
        }
        fail_point("kill-unplugged");
    }

    /// Ends every process. The actor then sees their end as if they had ended by themselves.
    pub(crate) async fn end_processes(&self, record: &SandboxRecord) -> Result<(), HostError> {
        Ok(self.engine.kill(&record.id).await?)
    }

    async fn unplug(&self, slot: Slot) {
        if let Err(error) = self.shared.network.unplug(slot).await {
            tracing::warn!(slot = slot.0, error = %chain(&error), "could not unplug; the slot stays reserved");
            return;
        }
        self.shared.network.release(slot);
    }

    pub(crate) async fn release(&self, record: &SandboxRecord) {
        if let Some(image) = record.image.clone() {
            self.delete_image(&record.id, image).await;
        }
        fail_point("release-image");
        self.release_own_checkpoints(record).await;
        loop {
            let (pool, id) = (self.shared.pool.clone(), record.id.clone());
            match blocking(move || pool.delete_disk(id.as_str())).await {
                Ok(()) => {
                    fail_point("release-disk");
                    self.shared.leases.forget(&record.id).await;
                    return;
                }
                Err(error) => {
                    tracing::error!(sandbox = %record.id, error = %chain(&error), "could not delete its disk; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    pub(crate) async fn set_disk_limit(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let (pool, id, disk) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        blocking(move || pool.set_limit(id.as_str(), disk)).await.map_err(disk_error)
    }

    pub(crate) async fn set_limits(&self, record: &SandboxRecord) -> Result<(), HostError> {
        self.set_disk_limit(record).await?;
        if record.phase == roost_lifecycle::Phase::Active {
            self.engine.set_limits(&record.id, &record.limits).await?;
        }
        Ok(())
    }
}

fn slots_taken(error: NoSlot) -> HostError {
    HostError::SlotsTaken(error.to_string())
}

pub(crate) fn disk_error(error: roost_disk::DiskError) -> HostError {
    if error.is_full() { HostError::HostFull(chain(&error)) } else { HostError::Internal(chain(&error)) }
}
