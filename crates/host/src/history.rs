//! What sandboxes have used over hours and days.
//!
//! One task looks at every sandbox once a minute. Of what sleeps it knows all without a question: how long, from the record, and
//! that it used nothing. Only what is awake, or has fallen asleep since the last look, is read, which is two small files.

mod ring;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use roost_lifecycle::{Phase, spend};
use roost_model::{Level, SandboxId, Span, UsageHistory};
use tokio::time::MissedTickBehavior;

use crate::HostError;
use crate::handle::Handle;
use crate::host::Host;
use ring::{Past, Reading};

const LOOK: Duration = Duration::from_secs(60);
/// More than is kept.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Everybody's past, since the daemon started.
#[derive(Debug)]
pub(crate) struct History {
    began: Timestamp,
    pasts: Mutex<HashMap<SandboxId, Seen>>,
}

#[derive(Debug)]
struct Seen {
    past: Past,
    /// Since when it was in its state at the last look.
    since: Option<Timestamp>,
}

impl Default for History {
    fn default() -> Self {
        Self { began: Timestamp::now(), pasts: Mutex::default() }
    }
}

impl History {
    fn pasts(&self) -> MutexGuard<'_, HashMap<SandboxId, Seen>> {
        self.pasts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Looks at all sandboxes again and again until the daemon leaves.
    pub(crate) async fn keep_history(self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.shared.leaving.cancelled() => return,
            }
            let handles = self.handles();
            let here: HashSet<&SandboxId> = handles.iter().map(Handle::id).collect();
            self.shared.history.pasts().retain(|id, _| here.contains(id));
            for handle in &handles {
                handle.note_usage().await;
            }
        }
    }
}

impl Handle {
    /// What it has used over time, from now back; does not wake it.
    pub async fn usage_history(&self, over: Span) -> Result<UsageHistory, HostError> {
        self.living()?;
        let over = over.get().filter(|over| !over.is_zero() && *over <= LONGEST);
        let over =
            over.ok_or_else(|| HostError::BadRequest("a history goes back at least 1s and at most 7d".to_owned()))?;
        self.note_usage().await;
        let pasts = self.shared.history.pasts();
        let now = Timestamp::now();
        // It may be ending just now.
        Ok(pasts.get(&self.id).map_or_else(|| Past::default().history(over, now), |seen| seen.past.history(over, now)))
    }

    /// Takes down what it has used since it was last looked at.
    async fn note_usage(&self) {
        let record = self.record();
        if record.phase.is_ending() {
            return;
        }
        let history = &self.shared.history;
        let unchanged = history.pasts().get(&self.id).is_some_and(|seen| seen.since == Some(record.state_since));
        let reading = match record.phase {
            Phase::Suspended(Level::Ram) if unchanged => None,
            Phase::Suspended(Level::Disk | Level::Files) => Some(Reading { cpu_us: 0, memory: 0 }),
            // One that just changes is read the next time.
            _ => self.read_usage().await,
        };
        let now = Timestamp::now();
        let mut spent = record.spent;
        spend(&mut spent, record.phase, record.state_since, now);
        let mut pasts = history.pasts();
        let seen = pasts.entry(self.id.clone()).or_insert_with(|| Seen {
            past: if record.created_at >= history.began { Past::since(record.created_at) } else { Past::default() },
            since: None,
        });
        seen.past.look(now, &spent, reading);
        seen.since = reading.map(|_| record.state_since).or(seen.since);
    }

    async fn read_usage(&self) -> Option<Reading> {
        let record = self.record();
        let usage = self.shared.engine(record.engine).ok()?.usage(&record.id).await.ok()?;
        Some(Reading { cpu_us: usage.cpu_us, memory: usage.memory })
    }
}
