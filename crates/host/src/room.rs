//! Room on the host: how many sandboxes may be awake, and what happens when memory runs short.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roost_lifecycle::{MemoryPolicy, MemoryReading, Phase, Shortage, first_to_deepen, may_save_again, shortage};
use roost_model::Level;

use crate::HostError;
use crate::actor::Message;
use crate::handle::Handle;
use crate::host::Host;

/// How often memory is looked at while there is plenty, and while there is not.
const CALM: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_secs(1);

/// Reads the host's memory; nothing if it cannot be read.
pub type ReadMemory = Arc<dyn Fn() -> Option<MemoryReading> + Send + Sync>;

/// Counts the sandboxes that are awake, and knows when there may be no more.
#[derive(Default)]
pub(crate) struct Room {
    rules: OnceLock<(MemoryPolicy, ReadMemory)>,
    awake: Mutex<usize>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let policy = self.rules.get().map(|(policy, _)| policy);
        f.debug_struct("Room").field("policy", &policy).field("awake", &*self.count()).finish()
    }
}

/// The place of one sandbox among those that are awake.
#[derive(Debug)]
pub(crate) struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        let mut awake = self.0.count();
        *awake = awake.saturating_sub(1);
    }
}

impl Room {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.awake.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a sandbox that is awake already.
    pub(crate) fn take(self: &Arc<Self>) -> Place {
        *self.count() += 1;
        Place(self.clone())
    }

    /// A place for one that shall be started or woken; `needs_memory` if its memory is not in RAM yet.
    pub(crate) fn admit(self: &Arc<Self>, needs_memory: bool) -> Result<Place, HostError> {
        let Some((policy, read)) = self.rules.get() else { return Ok(self.take()) };
        if needs_memory
            && let Some(reading) = read()
            && shortage(policy, &reading) == Shortage::Critical
        {
            return Err(HostError::MemoryShort { available: reading.available, critical: policy.critical });
        }
        let mut awake = self.count();
        match policy.max_active {
            Some(most) if *awake >= most => Err(HostError::TooManyActive { most }),
            _ => {
                *awake += 1;
                Ok(Place(self.clone()))
            }
        }
    }
}

impl Host {
    /// Puts rules for memory in force, once, and sees to them from now on.
    pub fn guard_memory(&self, policy: MemoryPolicy, read: ReadMemory) {
        if self.shared.room.rules.set((policy, read.clone())).is_err() {
            return;
        }
        let host = self.clone();
        self.shared.actors.spawn(async move {
            let leaving = host.shared.leaving.clone();
            let mut pause = CALM;
            loop {
                tokio::select! {
                    () = leaving.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = host.relieve(&policy, &read).await;
            }
        });
    }

    /// Lets sleepers go to disk, one after the other, for as long as memory is short; says when to look again.
    pub(crate) async fn relieve(&self, policy: &MemoryPolicy, read: &ReadMemory) -> Duration {
        loop {
            let Some(reading) = read() else { return CALM };
            if shortage(policy, &reading) == Shortage::None {
                return CALM;
            }
            let Some(sleeper) = self.longest_asleep() else { return SHORT };
            tracing::info!(sandbox = %sleeper.id(), available = reading.available, "memory is short; it goes to disk");
            let why = "the host is short of memory".to_owned();
            if let Err(error) = sleeper.ask(|reply| Message::Deepen(why, reply)).await {
                tracing::debug!(sandbox = %sleeper.id(), %error, "it stays in memory");
            }
            if self.shared.leaving.is_cancelled() {
                return CALM;
            }
        }
    }

    /// The sandbox that has slept longest in RAM and may be saved.
    fn longest_asleep(&self) -> Option<Handle> {
        let sleepers = self.handles().into_iter().filter_map(|handle| {
            let record = handle.record();
            let saves = self.shared.engine(record.engine).is_ok_and(|engine| engine.capabilities().save_memory);
            if record.phase != Phase::Suspended(Level::Ram) || !saves {
                return None;
            }
            let since = record.asleep_since.unwrap_or(record.state_since);
            let not_before = record.not_saved.as_ref().map(|attempt| may_save_again(attempt.at));
            Some((handle, since, not_before))
        });
        first_to_deepen(sleepers, Timestamp::now())
    }
}
