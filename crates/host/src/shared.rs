//! What all actors of a host share.

use std::sync::Arc;

use roost_disk::Pool;
use roost_engine::Engine;
use roost_model::EngineKind;
use roost_net::Network;
use roost_store::{CheckpointRecord, Source, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::batches::Batches;
use crate::builds::Builds;
use crate::engines::Proofs;
use crate::events::EventLog;
use crate::guest::Guests;
use crate::history::History;
use crate::leases::Leases;
use crate::links::LinkKey;
use crate::memory::{Greetings, Sealer};
use crate::overview::Overview;
use crate::room::Room;
use crate::sessions::Logins;
use crate::templates::TemplateShelf;
use crate::{HostConfig, HostError, blocking};

/// The parts of the house, opened.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: HostConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) events: EventLog,
    pub(crate) pool: Arc<Pool>,
    pub(crate) templates: TemplateShelf,
    pub(crate) network: Network,
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) proofs: Proofs,
    pub(crate) guests: Guests,
    pub(crate) sealer: Sealer,
    pub(crate) greetings: Greetings,
    pub(crate) links: LinkKey,
    /// Links that log a browser in and were not used yet.
    pub(crate) logins: Logins,
    pub(crate) overview: Overview,
    pub(crate) history: History,
    /// Holds and alarms.
    pub(crate) leases: Arc<Leases>,
    pub(crate) batches: Batches,
    pub(crate) builds: Builds,
    /// Who may be awake.
    pub(crate) room: Arc<Room>,
    /// Sandboxes go to disk by themselves one after the other, so that a thousand of them do not stop the host.
    pub(crate) deepening: Semaphore,
    /// Told to all actors when the daemon leaves; sandboxes go on without it.
    pub(crate) leaving: CancellationToken,
    /// The actors, so that a leaving daemon can wait for what they are doing.
    pub(crate) actors: TaskTracker,
}

impl Shared {
    /// What is remembered of a moment that a sandbox starts from.
    pub(crate) async fn moment(&self, source: &Source) -> Result<CheckpointRecord, HostError> {
        match source {
            Source::Checkpoint(id) => {
                let (store, wanted) = (self.store.clone(), id.clone());
                let found = blocking(move || store.checkpoint(&wanted)).await?;
                found.ok_or_else(|| HostError::CheckpointNotFound(id.to_string()))
            }
            Source::Template(id) => self.templates.moment(id),
        }
    }

    /// The engine of a kind, if sandboxes can be started on it here.
    pub(crate) fn usable_engine(&self, kind: EngineKind) -> Result<Arc<dyn Engine>, HostError> {
        let engine = self.engine(kind)?;
        match engine.unfit() {
            None => Ok(engine),
            Some(why) => Err(HostError::EngineUnfit(format!("engine `{kind}` cannot be used here: {why}"))),
        }
    }

    /// The engine of a kind, if this host has it.
    pub(crate) fn engine(&self, kind: EngineKind) -> Result<Arc<dyn Engine>, HostError> {
        let found = self.engines.iter().find(|engine| engine.kind() == kind);
        found.cloned().ok_or_else(|| HostError::EngineUnfit(format!("engine `{kind}` is not available on this host")))
    }
}
