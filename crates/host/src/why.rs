//! Why a sandbox is awake or asleep, what comes next, and what it has cost so far.

use jiff::{SignedDuration, Timestamp};
use roost_lifecycle::{Phase, Waker, deepens_at, may_wake, spend};
use roost_model::{
    Event, EventKind, LedgerEntry, LedgerKind, Level, SandboxId, Span, Spent, State, UsageReport, UsageView, WhyView,
};
use roost_store::SandboxRecord;

use crate::handle::Handle;
use crate::host::Host;
use crate::memory::images_of;
use crate::shared::Shared;
use crate::{HostError, blocking};

/// How many events are read for a ledger; most of them become one line of it.
const LEDGER: usize = 50;

impl Handle {
    /// What keeps it awake or why it sleeps, what comes next, and its last sleeps and wakes; does not wake it.
    pub async fn why(&self) -> Result<WhyView, HostError> {
        self.living()?;
        let record = self.record();
        let awake = record.phase == Phase::Active;
        let never = never(&record);
        let keeps_awake = if awake { self.guards.keepers(&record.idle.ignore) } else { Vec::new() };
        let view = self.view();
        let (store, id) = (self.shared.store.clone(), self.id.clone());
        let events = blocking(move || store.recent_events(&id, LEDGER)).await?;
        let now = Timestamp::now();
        let wakes = may_wake(record.phase, record.stays, record.auto_resume, Waker::Touch);
        let sleeps_at = match (view.quiet_since, record.idle.after.get()) {
            (Some(since), Some(after)) if awake && never.is_none() => later(since, after).map(|at| at.max(now)),
            _ => None,
        };
        Ok(WhyView {
            id: record.id.clone(),
            name: record.name.clone(),
            state: view.state,
            level: view.level,
            state_since: record.state_since,
            reason: record.reason.clone(),
            stays: record.stays,
            idle: record.idle.clone(),
            keeps_awake,
            never,
            quiet_since: view.quiet_since,
            sleeps_at,
            deepens_at: self.deepens_at(&record),
            not_saved: record.not_saved.as_ref().map(|attempt| attempt.why.clone()),
            wakes_at: self.shared.next_alarm(&self.id).filter(|_| view.state == State::Suspended && wakes),
            ledger: ledger(&events, now),
        })
    }

    fn deepens_at(&self, record: &SandboxRecord) -> Option<Timestamp> {
        let saves = self.shared.engine(record.engine).is_ok_and(|engine| engine.capabilities().save_memory);
        if record.phase != Phase::Suspended(Level::Ram) || !saves {
            return None;
        }
        let since = record.asleep_since.unwrap_or(record.state_since);
        deepens_at(&record.idle, since, record.not_saved.as_ref().map(|attempt| attempt.at))
    }

    /// Time it was awake and asleep, and the bytes on disk that are its own; does not wake it.
    pub async fn usage(&self) -> Result<UsageView, HostError> {
        self.living()?;
        let record = self.record();
        let disk_exclusive = exclusive(&self.shared, record.id.clone()).await?;
        let images = images_of(&self.shared, &record).await?;
        Ok(usage(&record, disk_exclusive, images))
    }
}

impl Host {
    /// What every living sandbox has cost so far, and all of them together.
    pub async fn usage(&self) -> Result<UsageReport, HostError> {
        self.usage_of(self.handles()).await
    }

    /// The same of some of them.
    pub(crate) async fn usage_of(&self, mut handles: Vec<Handle>) -> Result<UsageReport, HostError> {
        handles.sort_by(|a, b| a.id().cmp(b.id()));
        let mut report = UsageReport { sandboxes: Vec::new(), spent: Spent::default(), disk_exclusive: 0, images: 0 };
        for handle in handles {
            let record = handle.record();
            if record.phase.is_ending() {
                continue;
            }
            // One that is being made has no disk yet, and one that ends has none any more.
            let disk = exclusive(&self.shared, record.id.clone()).await.unwrap_or(0);
            let images = images_of(&self.shared, &record).await?;
            let one = usage(&record, disk, images);
            report.spent.add(&one.spent);
            report.disk_exclusive += disk;
            report.images += images;
            report.sandboxes.push(one);
        }
        Ok(report)
    }
}

/// The bytes on disk that are a sandbox's own.
pub(crate) async fn exclusive(shared: &Shared, id: SandboxId) -> Result<u64, HostError> {
    let pool = shared.pool.clone();
    let usage = blocking(move || pool.usage(id.as_str())).await;
    let usage = usage.map_err(|error| HostError::Internal(error.to_string()))?;
    Ok(usage.map_or(0, |usage| usage.exclusive))
}

fn usage(record: &SandboxRecord, disk_exclusive: u64, images: u64) -> UsageView {
    let mut spent = record.spent;
    spend(&mut spent, record.phase, record.state_since, Timestamp::now());
    UsageView {
        id: record.id.clone(),
        name: record.name.clone(),
        state: record.phase.state(),
        level: record.phase.level(),
        created_at: record.created_at,
        spent,
        disk_exclusive,
        images,
        image_budget: record.limits.image_budget(),
    }
}

/// Why it does not sleep by itself at all, if it does not.
fn never(record: &SandboxRecord) -> Option<String> {
    if record.bound_to_run {
        return Some("it belongs to a run and ends with it".to_owned());
    }
    (record.idle.after == Span::NEVER).then(|| "its policy says `never`".to_owned())
}

fn later(since: Timestamp, time: std::time::Duration) -> Option<Timestamp> {
    since.checked_add(SignedDuration::try_from(time).ok()?).ok()
}

/// The lines of a ledger that events are worth.
fn ledger(events: &[Event], now: Timestamp) -> Vec<LedgerEntry> {
    let mut lines: Vec<LedgerEntry> = events.iter().filter_map(line).collect();
    let ends: Vec<Timestamp> = lines.iter().skip(1).map(|line| line.at).chain([now]).collect();
    for (line, end) in lines.iter_mut().zip(ends) {
        line.lasted_ms = u64::try_from(end.duration_since(line.at).as_millis()).unwrap_or(0);
    }
    lines
}

fn line(event: &Event) -> Option<LedgerEntry> {
    let kind = match event.kind {
        EventKind::Created => LedgerKind::Created,
        EventKind::Woken => LedgerKind::Woke,
        EventKind::Suspended => LedgerKind::Slept,
        EventKind::Restored => LedgerKind::Restored,
        EventKind::Crashed => LedgerKind::Crashed,
        EventKind::Creating
        | EventKind::Checkpointed
        | EventKind::Forked
        | EventKind::Moved
        | EventKind::Changed
        | EventKind::Terminated
        | EventKind::Strained
        | EventKind::DaemonRestarted
        | EventKind::HostShort
        | EventKind::NetworkRepaired => return None,
    };
    let receipt = event.receipt.as_deref();
    Some(LedgerEntry {
        at: event.at,
        kind,
        level: receipt.and_then(|receipt| receipt.level).filter(|_| kind == LedgerKind::Slept),
        cause: event.reason.clone(),
        took_ms: receipt.map(|receipt| receipt.total_ms),
        lasted_ms: 0,
    })
}

#[cfg(test)]
mod tests {
    use roost_model::{Operation, Receipt};

    use super::*;

    #[test]
    fn a_ledger_tells_how_long_each_sleep_and_wake_lasted() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let event = |id: u64, seconds, kind, level| Event {
            id,
            at: at(seconds),
            sandbox: Some(SandboxId::from_parts(1, 1)),
            name: Some("web".parse().unwrap()),
            kind,
            state: Some(State::Active),
            reason: Some("because".to_owned()),
            receipt: Some(Box::new(Receipt { level, total_ms: 4.0, ..Receipt::new(Operation::Suspend, 1) })),
        };
        let events = [
            event(1, 0, EventKind::Creating, None),
            event(2, 1, EventKind::Created, None),
            event(3, 20, EventKind::Suspended, Some(Level::Ram)),
            event(4, 25, EventKind::Changed, None),
            event(5, 80, EventKind::Woken, None),
        ];
        let lines = ledger(&events, at(90));
        let kinds: Vec<_> = lines.iter().map(|line| (line.kind, line.level, line.lasted_ms)).collect();
        assert_eq!(
            kinds,
            [
                (LedgerKind::Created, None, 19_000),
                (LedgerKind::Slept, Some(Level::Ram), 60_000),
                (LedgerKind::Woke, None, 10_000)
            ]
        );
        assert_eq!(lines[1].took_ms, Some(4.0));
    }
}
