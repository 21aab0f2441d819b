//! Persisting: a change of phase is stored, then seen, then told.

use std::sync::Arc;

use jiff::Timestamp;
use roost_lifecycle::{Clock, Event as Happening, Phase, spend};
use roost_model::{EventKind, Level, Operation, chain};
use roost_store::{Durability, NewEvent, SandboxRecord};

use super::{Actor, RETRY};
use crate::HostError;
use crate::failpoint::fail_point;

impl Actor {
    /// Persists a change of phase with its event, lets everybody see it, and sees to what hangs on it.
    pub(super) async fn enter(
        &mut self,
        phase: Phase,
        reason: Option<String>,
        kind: Option<EventKind>,
    ) -> Result<(), HostError> {
        let now = Timestamp::now();
        let mut next = self.record.clone();
        let account = |operation| Box::new(self.account.receipt(operation, phase.level(), self.record.generation));
        let receipt = match kind {
            Some(EventKind::Suspended) => Some(account(Operation::Suspend)),
            Some(EventKind::Woken) => Some(account(Operation::Wake)),
            _ => None,
        };
        // Nobody hears of one that waits in a pool.
        let told = kind.filter(|_| self.record.pool.is_none());
        let event = told.map(|kind| NewEvent { at: now, kind, reason: reason.clone(), receipt });
        spend(&mut next.spent, next.phase, next.state_since, now);
        match kind {
            Some(EventKind::Woken) => next.spent.wakes += 1,
            // One that only goes deeper was asleep before.
            Some(EventKind::Suspended) if next.asleep_since.is_none() => next.spent.sleeps += 1,
            _ => {}
        }
        next.phase = phase;
        next.state_since = now;
        if matches!(phase, Phase::Suspended(_)) {
            next.asleep_since.get_or_insert(now);
            let quiet_since = self.guards.quiet_since(&next.idle.ignore).unwrap_or(now);
            next.quiet_since.get_or_insert(quiet_since);
        }
        if phase == Phase::Active {
            next.asleep_since = None;
            next.quiet_since = None;
            next.not_saved = None;
        }
        let clock = Clock { stays: next.stays, expires_at: next.expires_at }.entering(phase, next.ttl, now);
        (next.stays, next.expires_at) = (clock.stays, clock.expires_at);
        next.reason = reason;
        let durability = durability_of(&self.record, phase);
        self.store(next, event, durability).await?;
        // Awake, it needs no waking for its crontabs; without processes it has nobody who reads them.
        if matches!(phase, Phase::Active | Phase::Suspended(Level::Files)) {
            self.effects.shared.leases.woke(&self.record.id).await;
        }
        self.place = match phase {
            Phase::Suspended(_) | Phase::Deepening { .. } => None,
            phase if phase.is_ending() => None,
            // One that an earlier daemon left awake has its place whether there is room or not.
            _ => Some(self.place.take().unwrap_or_else(|| self.effects.shared.room.take())),
        };
        self.entered(phase);
        Ok(())
    }

    /// For transitions that report what has already happened: they cannot be refused, so they are tried until stored.
    pub(super) async fn enter_until_stored(&mut self, phase: Phase, reason: Option<String>, kind: Option<EventKind>) {
        while let Err(error) = self.enter(phase, reason.clone(), kind).await {
            tracing::error!(sandbox = %self.record.id, %phase, error = %chain(&error), "could not persist; trying again");
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Lets everybody see the record as it has been stored.
    pub(crate) fn publish(&mut self, record: SandboxRecord) {
        self.record = record;
        self.published.send_replace(Arc::new(self.record.clone()));
    }

    /// Stored, then seen, then told: whoever hears of it finds it so.
    pub(crate) async fn store(
        &mut self,
        record: SandboxRecord,
        event: Option<NewEvent>,
        durability: Durability,
    ) -> Result<(), HostError> {
        let event = self.effects.save_record(&record, event, durability).await?;
        fail_point("record-stored");
        self.publish(record);
        self.effects.announce(event);
        Ok(())
    }
}

/// What the memory and the files of a sandbox hang on must be on the disk before what follows.
///
/// A tombstone, before the data it speaks of goes. That it sleeps in an image, before its processes end. That it has left its
/// image: after a power failure that memory would meet files of a later moment.
///
/// What is nobody's to keep, a run's or a pool's, is ended by the next daemon whether or not its tombstone is there.
fn durability_of(record: &SandboxRecord, to: Phase) -> Durability {
    let kept = !record.bound_to_run && record.pool.is_none();
    match (record.phase, to) {
        (_, Phase::Terminating) if !kept => Durability::Process,
        (_, Phase::Terminating | Phase::Suspended(Level::Disk)) => Durability::Synced,
        (Phase::Resuming(Level::Disk) | Phase::Restoring, Phase::Active) => Durability::Synced,
        _ => Durability::Process,
    }
}

/// The event that a change of phase is worth, by what brought it about.
pub(super) fn event_of(event: Happening, from: Phase, to: Phase) -> Option<EventKind> {
    if event == Happening::Gone { Some(EventKind::Crashed) } else { change_of(from, to) }
}

/// The event that a change of phase is worth.
pub(super) fn change_of(from: Phase, to: Phase) -> Option<EventKind> {
    match (from, to) {
        (Phase::Creating, Phase::Active) => Some(EventKind::Created),
        // A restore tells of itself when it is done.
        (Phase::Restoring, Phase::Active) => None,
        (_, Phase::Active) => Some(EventKind::Woken),
        (_, Phase::Suspended(_)) => Some(EventKind::Suspended),
        (_, Phase::Terminating) => Some(EventKind::Terminated),
        _ => None,
    }
}
