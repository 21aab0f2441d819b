//! What is held and when what goes off, in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;
use roost_model::{Alarm, Hold, Name, SandboxId};

/// An alarm that goes off.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) owner: SandboxId,
    /// As it was when it went off.
    pub(crate) alarm: Alarm,
}

#[derive(Debug, Default)]
struct Of {
    holds: BTreeMap<Name, Hold>,
    /// Given by an alarm that went off; not worth storing.
    grace: Option<Hold>,
    alarms: BTreeMap<Name, Alarm>,
}

/// Holds and alarms, and the order in which alarms go off.
#[derive(Debug, Default)]
pub(super) struct Book {
    sandboxes: HashMap<SandboxId, Of>,
    /// Alarms by their next time, without those that are going off.
    due: BTreeSet<(Timestamp, SandboxId, Name)>,
}

pub(super) fn is_over(hold: &Hold, now: Timestamp) -> bool {
    hold.expires_at <= now
}

impl Book {
    pub(super) fn put_hold(&mut self, owner: &SandboxId, hold: Hold) {
        self.sandboxes.entry(owner.clone()).or_default().holds.insert(hold.id.clone(), hold);
    }

    pub(super) fn hold(&self, owner: &SandboxId, id: &Name) -> Option<Hold> {
        self.sandboxes.get(owner)?.holds.get(id).cloned()
    }

    pub(super) fn remove_hold(&mut self, owner: &SandboxId, id: &Name) {
        if let Some(of) = self.sandboxes.get_mut(owner) {
            of.holds.remove(id);
        }
    }

    pub(super) fn set_grace(&mut self, owner: &SandboxId, grace: Hold) {
        self.sandboxes.entry(owner.clone()).or_default().grace = Some(grace);
    }

    /// The holds that somebody took and that are not over.
    pub(super) fn holds(&self, owner: &SandboxId, now: Timestamp) -> Vec<Hold> {
        let held = self.sandboxes.get(owner).into_iter().flat_map(|of| of.holds.values());
        held.filter(|hold| !is_over(hold, now)).cloned().collect()
    }

    /// The same, with what an alarm has given it.
    pub(super) fn holds_and_grace(&self, owner: &SandboxId, now: Timestamp) -> Vec<Hold> {
        let grace = self.sandboxes.get(owner).and_then(|of| of.grace.clone()).filter(|grace| !is_over(grace, now));
        self.holds(owner, now).into_iter().chain(grace).collect()
    }

    pub(super) fn take_expired(&mut self, owner: &SandboxId, now: Timestamp) -> Vec<Hold> {
        let Some(of) = self.sandboxes.get_mut(owner) else { return Vec::new() };
        let over: Vec<Hold> = of.holds.values().filter(|hold| is_over(hold, now)).cloned().collect();
        of.holds.retain(|_, hold| !is_over(hold, now));
        over
    }

    pub(super) fn put_alarm(&mut self, owner: &SandboxId, alarm: Alarm) {
        self.remove_alarm(owner, &alarm.id);
        self.due.insert((alarm.next_at, owner.clone(), alarm.id.clone()));
        self.sandboxes.entry(owner.clone()).or_default().alarms.insert(alarm.id.clone(), alarm);
    }

    pub(super) fn remove_alarm(&mut self, owner: &SandboxId, id: &Name) {
        let Some(alarm) = self.sandboxes.get_mut(owner).and_then(|of| of.alarms.remove(id)) else { return };
        self.due.remove(&(alarm.next_at, owner.clone(), alarm.id));
    }

    pub(super) fn alarm(&self, owner: &SandboxId, id: &Name) -> Option<Alarm> {
        self.sandboxes.get(owner)?.alarms.get(id).cloned()
    }

    pub(super) fn has_alarm(&self, owner: &SandboxId, id: &str) -> bool {
        self.sandboxes.get(owner).is_some_and(|of| of.alarms.keys().any(|name| name.as_str() == id))
    }

    pub(super) fn alarms(&self, owner: &SandboxId) -> Vec<Alarm> {
        self.sandboxes.get(owner).into_iter().flat_map(|of| of.alarms.values().cloned()).collect()
    }

    /// Forgets a sandbox; says whether there was anything.
    pub(super) fn forget(&mut self, owner: &SandboxId) -> bool {
        let Some(of) = self.sandboxes.remove(owner) else { return false };
        for alarm in of.alarms.into_values() {
            self.due.remove(&(alarm.next_at, owner.clone(), alarm.id));
        }
        true
    }

    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<Due> {
        let mut taken = Vec::new();
        while self.next_due().is_some_and(|at| at <= now) {
            let Some((_, owner, id)) = self.due.pop_first() else { break };
            if let Some(alarm) = self.alarm(&owner, &id) {
                taken.push(Due { owner, alarm });
            }
        }
        taken
    }

    /// Gives every alarm that waits its time anew.
    pub(super) fn reschedule(&mut self, anew: impl Fn(&Alarm) -> Alarm) {
        let waiting = std::mem::take(&mut self.due);
        for (at, owner, id) in waiting {
            let alarm = self.sandboxes.get_mut(&owner).and_then(|of| of.alarms.get_mut(&id));
            let at = alarm.map_or(at, |alarm| {
                *alarm = anew(alarm);
                alarm.next_at
            });
            self.due.insert((at, owner, id));
        }
    }
}
