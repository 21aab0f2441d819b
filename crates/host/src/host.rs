//! The host: all sandboxes of one daemon.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use roost_lifecycle::Phase;
use roost_model::{Level, Name, Page, SandboxId, SandboxView, State};
use roost_store::Store;
use tokio::sync::Notify;

use crate::claims::Claims;
use crate::events::EventLog;
use crate::handle::Handle;
use crate::pools::Pools;
use crate::shared::Shared;
use crate::uid_ranges::UidRanges;
use crate::view::view;
use crate::{HostConfig, HostError, blocking};

const LARGEST_PAGE: usize = 1000;
/// How long events, tombstones and idempotency keys are remembered.
const EVENT_DAYS: i64 = 30;
const TOMBSTONE_DAYS: i64 = 90;
const KEY_DAYS: i64 = 2;

/// All sandboxes of one daemon; cheap to clone.
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sandboxes: Arc<RwLock<HashMap<SandboxId, Handle>>>,
    pub(crate) uid_ranges: Arc<UidRanges>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) claims: Arc<Claims>,
    /// Woken each time that a sandbox has become known.
    pub(crate) arrivals: Arc<Notify>,
}

/// Which sandboxes to list.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    /// Only those in this state; `terminated` looks among those that are gone.
    pub state: Option<State>,
    /// Only those with all these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those whose name holds this text.
    pub name: Option<String>,
    /// Those that are gone too.
    pub terminated: bool,
    /// How many at most.
    pub limit: usize,
    /// Only those after this id.
    pub cursor: Option<SandboxId>,
}

impl Host {
    /// Settings in force.
    pub fn config(&self) -> &HostConfig {
        &self.shared.config
    }

    /// The event log.
    pub fn events(&self) -> &EventLog {
        &self.shared.events
    }

    /// Every sandbox that somebody asked for.
    pub fn handles(&self) -> Vec<Handle> {
        let all = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|handle| handle.seen.borrow().pool.is_none()).cloned().collect()
    }

    /// Every sandbox, also those that wait in pools.
    pub(crate) fn everyone(&self) -> Vec<Handle> {
        self.sandboxes.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn handle_of(&self, id: &SandboxId) -> Option<Handle> {
        self.sandboxes.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Makes a sandbox known and forgets it again when it has ended.
    pub(crate) fn register(&self, handle: Handle) {
        let sandboxes = self.sandboxes.clone();
        let id = handle.id().clone();
        let mut seen = handle.seen.clone();
        self.shared.actors.spawn(crate::calls::attend(handle.clone()));
        sandboxes.write().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), handle);
        self.arrivals.notify_waiters();
        self.shared.actors.spawn(async move {
            // Its actor ends when it is terminated or the daemon leaves; the channel closes with it.
            while seen.changed().await.is_ok() {}
            sandboxes.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
    }

    /// How many sandboxes there are.
    pub fn count(&self) -> usize {
        let all = self.sandboxes.read().unwrap_or_else(PoisonError::into_inner);
        all.values().filter(|handle| handle.seen.borrow().pool.is_none()).count()
    }

    /// How many sandboxes are in each state.
    pub fn count_by_state(&self) -> Vec<(State, u64)> {
        let mut counts: HashMap<State, u64> = HashMap::new();
        for handle in self.handles() {
            *counts.entry(handle.record().phase.state()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// A made-up name that no sandbox has.
    pub(crate) fn free_name(&self) -> Name {
        loop {
            let mut bytes = [0u8; 4];
            getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
            let name = Name::from_random(u32::from_le_bytes(bytes));
            if !self.handles().iter().any(|handle| handle.record().name == name) {
                return name;
            }
        }
    }

    /// A page of sandboxes, oldest first.
    pub async fn list(&self, filter: &ListFilter) -> Result<Page<SandboxView>, HostError> {
        self.list_seen(filter, &|_| true).await
    }

    /// The same of those that somebody sees.
    pub(crate) async fn list_seen(
        &self,
        filter: &ListFilter,
        sees: &(dyn Fn(&SandboxView) -> bool + Sync),
    ) -> Result<Page<SandboxView>, HostError> {
        let fits = |view: &SandboxView| fits(view, filter) && sees(view);
        let limit = filter.limit.clamp(1, LARGEST_PAGE);
        let mut found: Vec<SandboxView> = Vec::new();
        if filter.state != Some(State::Terminated) {
            // One whose end is decided is no longer here, although its actor may still be at it.
            let here = |view: &SandboxView| view.state != State::Terminated && fits(view);
            found.extend(self.handles().iter().map(Handle::view).filter(here));
        }
        if filter.terminated || filter.state == Some(State::Terminated) {
            found.extend(self.tombstones(filter, limit + 1, &fits).await?);
        }
        found.sort_by(|a, b| a.id.cmp(&b.id));
        found.dedup_by(|a, b| a.id == b.id);
        let more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| more).map(|last| last.id.to_string());
        Ok(Page { items: found, next_cursor })
    }

    /// Reads tombstones until enough of them fit.
    async fn tombstones(
        &self,
        filter: &ListFilter,
        wanted: usize,
        fits: &(dyn Fn(&SandboxView) -> bool + Sync),
    ) -> Result<Vec<SandboxView>, HostError> {
        let mut found = Vec::new();
        let mut after = filter.cursor.clone();
        loop {
            let (store, from) = (self.shared.store.clone(), after.clone());
            let batch = blocking(move || store.terminated(from.as_ref(), LARGEST_PAGE)).await?;
            let last = batch.last().map(|record| record.id.clone());
            let asked_for = batch.iter().filter(|record| record.pool.is_none());
            found.extend(asked_for.map(view).filter(|view| fits(view)));
            if last.is_none() || found.len() >= wanted {
                return Ok(found);
            }
            after = last;
        }
    }

    /// Ends the processes of every sandbox, files stay, and so does memory that is on disk already; for a daemon that shall
    /// leave nothing running.
    pub async fn stop_all(&self) {
        self.shared.batches.pause().await;
        self.pools.close().await;
        let mut stops = tokio::task::JoinSet::new();
        for handle in self.everyone() {
            stops.spawn(async move {
                if handle.record().pool.is_some() {
                    crate::pools::end(&handle).await;
                } else if handle.record().phase == Phase::Suspended(Level::Disk) {
                    tracing::debug!(sandbox = %handle.id(), "nothing of it runs");
                } else if let Err(error) = handle.suspend(Level::Files).await {
                    tracing::warn!(sandbox = %handle.id(), %error, "could not stop it");
                }
            });
        }
        stops.join_all().await;
    }

    /// Leaves all sandboxes to themselves: what is being done is finished, then nobody looks after them any more.
    pub async fn leave(self) {
        self.shared.leaving.cancel();
        self.shared.batches.pause().await;
        self.shared.actors.close();
        self.shared.actors.wait().await;
    }

    /// Forgets what is old enough and removes what nobody needs; meant to be called now and then.
    pub async fn maintain(&self) {
        self.sweep_templates().await;
        let now = Timestamp::now();
        let before = |days: i64| now.checked_sub(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MIN);
        let (events, tombstones, keys) = (before(EVENT_DAYS), before(TOMBSTONE_DAYS), before(KEY_DAYS));
        self.forget_batches(events).await;
        self.forget_builds(events).await;
        let store = self.store();
        match blocking(move || store.prune(events, tombstones, keys)).await {
            Ok(pruned) => tracing::debug!(?pruned, "forgot what is old"),
            Err(error) => tracing::warn!(%error, "could not forget what is old"),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.shared.store.clone()
    }
}

fn fits(view: &SandboxView, filter: &ListFilter) -> bool {
    filter.state.is_none_or(|state| view.state == state)
        && filter.name.as_ref().is_none_or(|part| view.name.as_str().contains(part.as_str()))
        && filter.labels.iter().all(|(key, value)| view.labels.get(key) == Some(value))
        && filter.cursor.as_ref().is_none_or(|cursor| view.id > *cursor)
}
