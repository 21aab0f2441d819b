//! Pools: sandboxes of a template that wait for somebody to ask for one.
//!
//! One that waits is a sandbox like any other, with an actor, a disk and a network, but with a made-up name, frozen, and
//! seen by nobody. A create that fits takes it: one write to the store gives it its name and everything else that was asked
//! for, and from then on it is being made. What is left is done to it while it is woken ([`crate::effects::Effects::configure`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roost_lifecycle::Phase;
use roost_lifecycle::pool::{Bounds, Demand, Need, need};
use roost_model::{EngineKind, Level, PoolView, SetPool, TemplateId};
use roost_store::{IdempotencyKey, PoolRecord, SandboxRecord};
use tokio::sync::{Notify, watch};

use crate::actor::{Message, Taken, Taking};
use crate::handle::Handle;
use crate::host::Host;
use crate::{HostError, blocking};

/// The largest pool there may be.
const LARGEST: u32 = 1000;
/// How long a pool that gave its sandboxes up makes no new ones.
const SHRUNK: Duration = Duration::from_secs(30);

/// Which pool: the template's name, and what isolates.
pub(crate) type PoolKey = (String, EngineKind);

/// All pools of a host.
#[derive(Debug)]
pub(crate) struct Pools {
    began: Instant,
    state: Mutex<State>,
    /// Told when a pool may need something.
    pub(crate) changed: Notify,
    creating: watch::Sender<Creates>,
    /// Held while one is made for a pool.
    pub(crate) making: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    pools: HashMap<PoolKey, PoolState>,
    closed: bool,
    not_before: Option<Instant>,
}

#[derive(Debug, Default)]
struct PoolState {
    bounds: Bounds,
    demand: Demand,
    ready: VecDeque<Handle>,
    coming: usize,
    taken: u64,
    missed: u64,
    /// How long it took to make the last one.
    takes: Duration,
    /// After one could not be made.
    retry_at: Option<Instant>,
}

/// What is made for somebody who waits.
#[derive(Debug, Default)]
struct Creates {
    now: usize,
    /// When the last of them was ready, and first used.
    ended: Option<Instant>,
}

/// Somebody waits for a sandbox for as long as this lives.
#[derive(Debug)]
pub(crate) struct Creating<'a>(&'a Pools);

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.0.creating.send_modify(|creates| {
            creates.now -= 1;
            creates.ended = Some(Instant::now());
        });
    }
}

impl Pools {
    pub(crate) fn new(stored: Vec<PoolRecord>) -> Self {
        let pools = stored.into_iter().map(|PoolRecord { template, engine, min, max }| {
            ((template, engine), PoolState { bounds: Bounds { min, max }, ..PoolState::default() })
        });
        Self {
            began: Instant::now(),
            state: Mutex::new(State { pools: pools.collect(), ..State::default() }),
            changed: Notify::new(),
            creating: watch::Sender::default(),
            making: tokio::sync::Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that somebody waits for a sandbox to be made.
    pub(crate) fn creating(&self) -> Creating<'_> {
        self.creating.send_modify(|creates| creates.now += 1);
        Creating(self)
    }

    /// Waits until nobody waits for a sandbox, or for so long that the pool would starve. Whoever just got one uses it: making the
    /// next stands back for as long as it would be in the way.
    pub(crate) async fn quiet(&self, key: &PoolKey, patience: Duration) {
        let rest = self.lock().pools.get(key).map_or(Duration::ZERO, |pool| pool.takes);
        let mut creating = self.creating.subscribe();
        let quiet = async {
            loop {
                let Ok(ended) = creating.wait_for(|creates| creates.now == 0).await.map(|creates| creates.ended) else {
                    return;
                };
                let left = ended.map_or(Duration::ZERO, |ended| rest.saturating_sub(ended.elapsed()));
                if tokio::time::timeout(left, creating.wait_for(|creates| creates.now > 0)).await.is_err() {
                    return;
                }
            }
        };
        // Whichever it was, it is this pool's turn.
        drop(tokio::time::timeout(patience, quiet).await);
    }

    /// Takes a waiting member that fits, and counts that it was asked for.
    fn take(&self, key: &PoolKey, fits: impl Fn(&SandboxRecord) -> bool) -> Option<Handle> {
        let now = self.began.elapsed();
        let mut state = self.lock();
        let pool = state.pools.get_mut(key)?;
        pool.demand.asked(now);
        let place = pool.ready.iter().position(|handle| fits(&handle.record()));
        let found = place.and_then(|place| pool.ready.remove(place));
        match found {
            Some(_) => pool.taken += 1,
            None => pool.missed += 1,
        }
        drop(state);
        self.changed.notify_one();
        found
    }

    /// Puts one back that was not taken after all.
    fn put_back(&self, key: &PoolKey, member: Handle) {
        if let Some(pool) = self.lock().pools.get_mut(key) {
            pool.taken -= 1;
            pool.ready.push_front(member);
        }
    }

    /// Adds one that is ready; gives it back if there is no pool for it.
    pub(crate) fn add(&self, key: &PoolKey, member: Handle) -> Option<Handle> {
        let mut state = self.lock();
        let closed = state.closed;
        match state.pools.get_mut(key) {
            Some(pool) if !closed => {
                pool.ready.push_back(member);
                None
            }
            _ => Some(member),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Makes no more.
    pub(crate) async fn close(&self) {
        self.lock().closed = true;
        // One that is being made is finished first, so that it can be ended too.
        drop(self.making.lock().await);
    }

    /// What to do next for pools whose templates are these: more for one, or these away.
    pub(crate) fn next(&self, current: &HashMap<String, TemplateId>) -> Next {
        let mut state = self.lock();
        if state.closed {
            return Next::Nothing;
        }
        let (now, since) = (Instant::now(), self.began.elapsed());
        let held = state.not_before.is_some_and(|moment| now < moment);
        for (key, pool) in &mut state.pools {
            let template = current.get(&key.0);
            let useless = |handle: &Handle| {
                let record = handle.record();
                record.pool.as_ref() != template || !waits(record.phase)
            };
            if let Some(place) = pool.ready.iter().position(useless) {
                return pool.ready.remove(place).map_or(Next::Nothing, Next::End);
            }
            let target = if template.is_some() { pool.demand.target(pool.bounds, since) } else { 0 };
            match need(target, pool.ready.len(), pool.coming) {
                Need::More if held || pool.retry_at.is_some_and(|moment| now < moment) => {}
                Need::More => {
                    pool.coming += 1;
                    return Next::Make(key.clone());
                }
                Need::Less => return pool.ready.pop_back().map_or(Next::Nothing, Next::End),
                Need::Nothing => {}
            }
        }
        state.pools.retain(|_, pool| pool.bounds.max > 0 || !pool.ready.is_empty() || pool.coming > 0);
        if state.pools.is_empty() { Next::Nothing } else { Next::LookAgain }
    }

    /// Says what came of [`Next::Make`].
    pub(crate) fn made(&self, key: &PoolKey, took: Duration, retry_at: Option<Instant>) {
        if let Some(pool) = self.lock().pools.get_mut(key) {
            pool.coming -= 1;
            pool.takes = took;
            pool.retry_at = retry_at;
        }
    }

    fn set(&self, key: &PoolKey, bounds: Bounds) {
        let mut state = self.lock();
        state.pools.entry(key.clone()).or_default().bounds = bounds;
        drop(state);
        self.changed.notify_one();
    }

    fn view(&self, key: &PoolKey) -> PoolView {
        let since = self.began.elapsed();
        let state = self.lock();
        let none = PoolState::default();
        let pool = state.pools.get(key).unwrap_or(&none);
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        PoolView {
            template: key.0.clone(),
            engine: key.1,
            min: pool.bounds.min,
            max: pool.bounds.max,
            target: pool.demand.target(pool.bounds, since),
            ready: count(pool.ready.len()),
            coming: count(pool.coming),
            taken: pool.taken,
            missed: pool.missed,
        }
    }

    /// Takes all that wait out of their pools, which make no new ones for a while.
    fn drain(&self) -> Vec<Handle> {
        let mut state = self.lock();
        state.not_before = Some(Instant::now() + SHRUNK);
        state.pools.values_mut().flat_map(|pool| std::mem::take(&mut pool.ready)).collect()
    }

    fn keys(&self) -> Vec<PoolKey> {
        let mut keys: Vec<PoolKey> =
            self.lock().pools.iter().filter(|(_, pool)| pool.bounds.max > 0).map(|(key, _)| key.clone()).collect();
        keys.sort_by(|a, b| (&a.0, a.1.as_str()).cmp(&(&b.0, b.1.as_str())));
        keys
    }
}

/// What the keeper of pools does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Make one.
    Make(PoolKey),
    /// End one that is too much, too old or unfit.
    End(Handle),
    /// Nothing now; what was asked for fades with time.
    LookAgain,
    /// Nothing.
    Nothing,
}

/// Whether one can be taken in this phase; where nothing can be frozen they wait awake.
pub(crate) fn waits(phase: Phase) -> bool {
    matches!(phase, Phase::Active | Phase::Suspended(Level::Ram))
}

impl Host {
    /// Every pool.
    pub fn pools(&self) -> Vec<PoolView> {
        let pools = &self.pools;
        pools.keys().iter().map(|key| pools.view(key)).collect()
    }

    /// The pool of a template, which may be none.
    pub async fn pool(&self, template: &str, engine: Option<&str>) -> Result<PoolView, HostError> {
        Ok(self.pools.view(&self.pool_key(template, engine).await?))
    }

    /// Says how large the pool of a template may be.
    pub async fn set_pool(&self, template: &str, wanted: SetPool) -> Result<PoolView, HostError> {
        let key = self.pool_key(template, wanted.engine.as_deref()).await?;
        let SetPool { min, max, .. } = wanted;
        if min > max {
            return Err(HostError::BadRequest(format!("a pool of at least {min} cannot be one of at most {max}")));
        }
        if max > LARGEST {
            return Err(HostError::BadRequest(format!("a pool of {max}: the largest may be {LARGEST}")));
        }
        let record = PoolRecord { template: key.0.clone(), engine: key.1, min, max };
        let store = self.store();
        blocking(move || store.save_pool(&record)).await?;
        self.pools.set(&key, Bounds { min, max });
        Ok(self.pools.view(&key))
    }

    /// A pool has sandboxes as a create with the same words would make them.
    async fn pool_key(&self, template: &str, engine: Option<&str>) -> Result<PoolKey, HostError> {
        let (name, template) = self.shared.templates.find(template)?;
        Ok((name.to_string(), self.engine_of(engine, &template).await?))
    }

    /// Ends all sandboxes that wait in pools, for a host that needs their memory; returns how many there were.
    ///
    /// For a while no new ones are made.
    pub async fn shrink_pools(&self) -> usize {
        let members = self.pools.drain();
        let count = members.len();
        let mut ends = tokio::task::JoinSet::new();
        for member in members {
            ends.spawn(async move { end(&member).await });
        }
        ends.join_all().await;
        count
    }

    /// Takes a sandbox that waits for being what `record` says; nothing if none fits.
    pub(crate) async fn take_waiting(
        &self,
        record: &SandboxRecord,
        template: &TemplateId,
        key: Option<&IdempotencyKey>,
    ) -> Result<Option<(Handle, bool)>, HostError> {
        let pools = &self.pools;
        let pool = (record.template.clone(), record.engine);
        let own_kernel = self.shared.engine(record.engine)?.capabilities().own_kernel;
        // A member's processes cannot gain or lose capabilities of the host's kernel.
        let fits = |member: &SandboxRecord| {
            member.pool.as_ref() == Some(template) && (own_kernel || member.capabilities == record.capabilities)
        };
        let _waiting = pools.creating();
        while let Some(member) = pools.take(&pool, fits) {
            let taking = Box::new(Taking { record: record.clone(), key: key.cloned() });
            match member.ask(|reply| Message::Take(taking, reply)).await {
                Ok(Taken::Yours) => return Ok(Some((member, false))),
                Ok(Taken::Replayed(id)) => {
                    pools.put_back(&pool, member);
                    return Ok(Some((self.made(&id).await?, true)));
                }
                // It ended while it waited; there may be another.
                Ok(Taken::Unfit) | Err(HostError::Terminated(_)) if member.record().pool.is_some() => {
                    tokio::spawn(async move { end(&member).await });
                }
                Err(error) => {
                    if member.record().pool.is_some() {
                        pools.put_back(&pool, member);
                    }
                    return Err(error);
                }
                Ok(Taken::Unfit) => {}
            }
        }
        Ok(None)
    }
}

/// Ends one that nobody will take.
pub(crate) async fn end(member: &Handle) {
    match member.terminate("pool", "nobody took it").await {
        Ok(()) | Err(HostError::Terminated(_)) => {}
        Err(error) => tracing::warn!(sandbox = %member.id(), %error, "could not end one that waited in a pool"),
    }
}

#[cfg(test)]
mod tests;
