//! What an actor does to the world: engine, disk, network and store.
//!
//! Each effect is idempotent and none of them decides anything.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use roost_engine::{DiskSource, Engine, EngineError, Exited, NetworkPlug, Presence, StartSpec};
use roost_lifecycle::Seen;
use roost_model::{Event, Limits, SandboxId, chain};
use roost_net::{Access, Network, Slot};
use roost_store::{Durability, NewEvent, SandboxRecord};
use roost_wire::{GuestConfig, Key, Request, Shutdown};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::guest::Guest;
use crate::shared::Shared;
use crate::{HostError, blocking};

/// How long processes may take to end in good order.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between attempts at something that must succeed before the sandbox can go on.
const RETRY: Duration = Duration::from_secs(1);

/// The hands of one actor.
#[derive(Debug, Clone)]
pub(crate) struct Effects {
    shared: Arc<Shared>,
    engine: Arc<dyn Engine>,
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
    pub(crate) async fn save(
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

    pub(crate) async fn make_disk(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let (pool, id, limit) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        blocking(move || {
            if pool.disk(id.as_str()).is_none() {
                pool.create_disk(id.as_str(), limit)?;
            }
            Ok::<_, roost_disk::DiskError>(())
        })
        .await
        .map_err(|error| HostError::Internal(chain(&error)))
    }

    /// Starts the sandbox; on success the record holds its network slot.
    pub(crate) async fn start(&self, record: &mut SandboxRecord) -> Result<(), HostError> {
        let shared = &self.shared;
        let (pool, id) = (shared.pool.clone(), record.id.clone());
        let disk = pool
            .disk(id.as_str())
            .ok_or_else(|| HostError::Internal(format!("the disk of sandbox {id} is not in the pool")))?;
        let lower = shared.templates.mounted(&record.template, &record.template_digest).await?;
        let slot = shared.network.allocate().map_err(|error| HostError::HostFull(error.to_string()))?;
        let access = if record.network.enabled { Access::Internet } else { Access::DaemonOnly };
        let network = SlotPlug { network: shared.network.clone(), slot, access, id: id.clone() };
        let spec = StartSpec {
            id,
            hostname: record.name.to_string(),
            disk: DiskSource::Layers { lower, subvolume: disk.subvolume },
            limits: record.limits.clone(),
            uid_range: record.uid_range,
            guest_config: guest_config(record)?,
            network: Arc::new(network),
        };
        match self.engine.start(spec).await {
            Ok(running) => {
                tracing::debug!(sandbox = %record.id, parts = ?running.parts_us, "started");
                record.slot = Some(slot.0);
                Ok(())
            }
            Err(error) => {
                self.unplug(slot).await;
                Err(error.into())
            }
        }
    }

    /// What the world says of its processes.
    pub(crate) async fn seen(&self, record: &SandboxRecord) -> Seen {
        loop {
            match self.engine.inspect(&record.id).await {
                Ok(Presence::Absent) => return Seen::Absent,
                // Without its slot nobody can reach it.
                Ok(Presence::Running | Presence::Frozen) if record.slot.is_some() => return Seen::Present,
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

    /// Asks the guest to end everything; whatever comes of it, a kill follows.
    pub(crate) async fn shutdown(&self, record: &SandboxRecord) {
        let ask = async {
            let mut connection = Guest::of(self.shared.clone(), record)?.connect().await?;
            let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(0);
            connection
                .call(&Request::Shutdown(Shutdown { grace_ms }))
                .await
                .map_err(|error| HostError::GuestLost { sandbox: record.name.to_string(), detail: chain(&error) })
        };
        if let Ok(Err(error)) = tokio::time::timeout(GRACE * 2, ask).await {
            tracing::debug!(sandbox = %record.id, %error, "no orderly end");
        }
    }

    /// Ends every process; returns only when none is left, because what follows relies on it.
    pub(crate) async fn kill(&self, record: &mut SandboxRecord) {
        self.shared.guests.forget(&record.id);
        while let Err(error) = self.engine.kill(&record.id).await {
            tracing::error!(sandbox = %record.id, error = %chain(&error), "could not kill it; trying again");
            tokio::time::sleep(RETRY).await;
        }
        if let Some(slot) = record.slot.take() {
            self.unplug(Slot(slot)).await;
        }
    }

    async fn unplug(&self, slot: Slot) {
        if let Err(error) = self.shared.network.unplug(slot).await {
            tracing::warn!(slot = slot.0, error = %chain(&error), "could not unplug; the slot stays reserved");
            return;
        }
        self.shared.network.release(slot);
    }

    pub(crate) async fn release(&self, record: &SandboxRecord) {
        loop {
            let (pool, id) = (self.shared.pool.clone(), record.id.clone());
            match blocking(move || pool.delete_disk(id.as_str())).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(sandbox = %record.id, error = %chain(&error), "could not delete its disk; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    pub(crate) async fn set_limits(&self, record: &SandboxRecord) -> Result<(), HostError> {
        let (pool, id, disk) = (self.shared.pool.clone(), record.id.clone(), record.limits.disk);
        blocking(move || pool.set_limit(id.as_str(), disk))
            .await
            .map_err(|error| HostError::Internal(chain(&error)))?;
        if record.phase == roost_lifecycle::Phase::Active {
            self.engine.set_limits(&record.id, &record.limits).await?;
        }
        Ok(())
    }
}

fn guest_config(record: &SandboxRecord) -> Result<Vec<u8>, HostError> {
    let key = Key::from_hex(&record.key).map_err(|error| HostError::Internal(error.to_string()))?;
    let mut config = GuestConfig::new(record.id.as_str(), record.name.as_str(), key);
    config.generation = record.generation;
    config.default_user.clone_from(&record.user);
    config.workdir.clone_from(&record.workdir);
    config.env.clone_from(&record.env);
    config.encode().map_err(|error| HostError::Internal(chain(&error)))
}
