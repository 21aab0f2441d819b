//! Opening a host: the reconciler that carries on where an earlier daemon ended.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, RwLock};

use jiff::Timestamp;
use roost_disk::{Pool, Templates};
use roost_engine::Engine;
use roost_lifecycle::Phase;
use roost_model::SandboxId;
use roost_net::{Access, Config as NetConfig, Network, Slot};
use roost_store::{SandboxRecord, Source, Store};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{self, Beginning};
use crate::batches::Batches;
use crate::builds::Builds;
use crate::effects::Effects;
use crate::engines::Proofs;
use crate::events::EventLog;
use crate::guest::Guests;
use crate::handle::Handle;
use crate::history::History;
use crate::host::Host;
use crate::leases::Leases;
use crate::links::LinkKey;
use crate::memory::{Greetings, Sealer};
use crate::overview::Overview;
use crate::pools::Pools;
use crate::sessions::Logins;
use crate::shared::Shared;
use crate::templates::TemplateShelf;
use crate::{HostConfig, HostError};

/// The opened parts from which a host is put together.
#[derive(Debug)]
pub struct Parts {
    /// Settings.
    pub config: HostConfig,
    /// What is remembered.
    pub store: Arc<dyn Store>,
    /// The pool of disks.
    pub pool: Pool,
    /// The templates.
    pub templates: Templates,
    /// How to name and where to pin the network; it is opened here, because which slots are in use stands in the store.
    pub network: NetConfig,
    /// The engines; where none is stronger than another, the first is preferred.
    pub engines: Vec<Arc<dyn Engine>>,
}

/// Why a host could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenHostError {
    /// The store could not be read.
    #[error("failed to read what is remembered")]
    Store(#[from] HostError),
    /// The key of links to ports could not be read or made.
    #[error("failed to read the key of links to ports")]
    Links(#[source] std::io::Error),
    /// The network could not be set up.
    #[error("failed to open the network")]
    Network(#[from] roost_net::OpenError),
}

impl Host {
    /// Puts the parts together, adopts what runs and carries every sandbox to a settled state.
    pub async fn open(parts: Parts) -> Result<Self, OpenHostError> {
        let living = parts.store.living().map_err(HostError::from)?;
        let pools = Pools::new(parts.store.pools().map_err(HostError::from)?);
        let in_use: Vec<(Slot, Access)> = living.iter().filter_map(slot_of).collect();
        let network = Network::open(parts.network, &in_use).await?;
        let links = LinkKey::open(&parts.config.data_dir).map_err(OpenHostError::Links)?;
        let ids: Vec<SandboxId> = living.iter().map(|record| record.id.clone()).collect();
        let leases = Arc::new(Leases::open(parts.store.clone(), &ids, Timestamp::now())?);
        let shared = Arc::new(Shared {
            leases,
            events: EventLog::open(parts.store.clone())?,
            batches: Batches::new(parts.config.data_dir.join("batches")),
            builds: Builds::new(parts.config.data_dir.join("builds")),
            proofs: Proofs::open(&parts.config.data_dir),
            config: parts.config,
            store: parts.store,
            pool: Arc::new(parts.pool),
            templates: TemplateShelf::new(Arc::new(parts.templates)),
            network,
            engines: parts.engines,
            guests: Guests::default(),
            sealer: Sealer::start(),
            greetings: Greetings::default(),
            links,
            logins: Logins::default(),
            overview: Overview::default(),
            history: History::default(),
            room: Arc::default(),
            deepening: Semaphore::new(1),
            leaving: CancellationToken::new(),
            actors: TaskTracker::new(),
        });
        let host = Self {
            shared,
            sandboxes: Arc::new(RwLock::new(HashMap::new())),
            uid_ranges: Arc::default(),
            pools: Arc::new(pools),
            claims: Arc::default(),
            arrivals: Arc::default(),
        };
        host.limit_disks(&living).await;
        host.sweep_engines(&living).await;
        host.sweep_moments(&living).await;
        for record in living {
            host.adopt(record);
        }
        host.report_strange_disks();
        host.find_builds().await;
        host.shared.actors.spawn(host.clone().ring_alarms());
        host.shared.actors.spawn(host.clone().finish_forks());
        host.shared.actors.spawn(host.clone().keep_pools());
        host.shared.actors.spawn(host.clone().keep_history());
        host.shared.actors.spawn(host.clone().watch_tables());
        host.shared.actors.spawn(host.clone().guard_queues());
        host.shared.actors.spawn(host.clone().keep_heap_small());
        Ok(host)
    }

    /// Gives a sandbox of the store its actor, which recovers it while requests already queue up.
    fn adopt(&self, record: SandboxRecord) {
        let id = record.id.clone();
        match self.shared.engine(record.engine) {
            Ok(engine) => {
                let effects = Effects::new(self.shared.clone(), engine);
                let awake = !matches!(record.phase, Phase::Suspended(_) | Phase::Deepening { .. });
                let place = awake.then(|| self.shared.room.take());
                let ends = actor::spawn(record, effects, Beginning::Found, place);
                self.register(Handle::new(self.shared.clone(), id, ends));
            }
            Err(error) => tracing::error!(sandbox = %id, %error, "left alone"),
        }
    }

    /// Limits the disks of a pool that had no quotas so far.
    async fn limit_disks(&self, living: &[SandboxRecord]) {
        if !self.shared.pool.quotas_are_new() {
            return;
        }
        let disks: Vec<_> = living.iter().map(|record| (record.id.clone(), record.limits.disk)).collect();
        let pool = self.shared.pool.clone();
        let limit = move || {
            for (id, limit) in disks.iter().filter(|(id, _)| pool.disk(id.as_str()).is_some()) {
                if let Err(error) = pool.set_limit(id.as_str(), *limit) {
                    tracing::warn!(sandbox = %id, error = %roost_model::chain(&error), "failed to limit its disk");
                }
            }
            Ok::<_, HostError>(())
        };
        // It reports every disk on its own.
        crate::blocking(limit).await.ok();
    }

    async fn sweep_engines(&self, living: &[SandboxRecord]) {
        let known: Vec<SandboxId> = living.iter().map(|record| record.id.clone()).collect();
        for engine in &self.shared.engines {
            match engine.sweep(&known).await {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(engine = %engine.kind(), ?removed, "swept leftovers"),
                Err(error) => tracing::warn!(engine = %engine.kind(), %error, "could not sweep leftovers"),
            }
        }
    }

    /// Removes images that nobody sleeps in or starts from, and checkpoints that were never acknowledged.
    async fn sweep_moments(&self, living: &[SandboxRecord]) {
        let asleep: HashSet<String> = living.iter().filter_map(|record| record.image.clone()).collect();
        let (pool, store) = (self.shared.pool.clone(), self.shared.store.clone());
        let templates = self.shared.templates.clone();
        let sweep = move || -> Result<Vec<String>, HostError> {
            let known: HashSet<String> =
                store.all_checkpoints()?.into_iter().map(|record| record.id.to_string()).collect();
            let seeds = templates.seeds()?;
            let in_use = |image: &String| [&asleep, &known, &seeds].iter().any(|some| some.contains(image));
            let failed = |error: roost_disk::ImageError| HostError::Internal(roost_model::chain(&error));
            let mut removed = Vec::new();
            for image in pool.list_images().map_err(failed)?.into_iter().filter(|image| !in_use(image)) {
                pool.delete_image(&image).map_err(failed)?;
                removed.push(image);
            }
            for checkpoint in pool.list_checkpoints().map_err(failed)?.into_iter().filter(|id| !known.contains(id)) {
                pool.delete_checkpoint(&checkpoint).map_err(failed)?;
                removed.push(checkpoint);
            }
            Ok(removed)
        };
        match crate::blocking(sweep).await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(?removed, "swept moments that were never finished"),
            Err(error) => tracing::warn!(%error, "could not sweep unfinished moments"),
        }
    }

    /// Removes what forks that were cut off would have removed, once their children are born.
    async fn finish_forks(self) {
        let store = self.store();
        let all = match crate::blocking(move || store.all_checkpoints()).await {
            Ok(all) => all,
            Err(error) => return tracing::warn!(%error, "could not look for checkpoints of unfinished forks"),
        };
        for moment in all.into_iter().filter(|record| record.transient) {
            let source = Some(Source::Checkpoint(moment.id.clone()));
            for child in self.handles().iter().filter(|handle| handle.record().source == source) {
                child.born().await;
            }
            if let Err(error) = self.delete_checkpoint(moment.id.as_str()).await {
                tracing::warn!(checkpoint = %moment.id, %error, "could not remove the checkpoint of a fork");
            }
        }
    }

    /// A disk that no record speaks of may be somebody's data: it is named and left alone.
    fn report_strange_disks(&self) {
        match self.shared.pool.list_disks() {
            Ok(disks) => {
                for disk in disks
                    .iter()
                    .filter(|disk| disk.parse::<SandboxId>().ok().and_then(|id| self.handle_of(&id)).is_none())
                {
                    tracing::warn!(%disk, "the pool holds a disk of no known sandbox; it is left alone");
                }
            }
            Err(error) => tracing::warn!(%error, "could not list the disks of the pool"),
        }
    }
}

fn slot_of(record: &SandboxRecord) -> Option<(Slot, Access)> {
    let access = if record.network.enabled { Access::Internet } else { Access::DaemonOnly };
    record.slot.map(|slot| (Slot(slot), access))
}
