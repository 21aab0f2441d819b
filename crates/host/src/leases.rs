//! Holds and alarms of all sandboxes: in the store so that they outlive the daemon, in memory so that looking is cheap.

mod book;
mod handle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use roost_lifecycle::{Cron, moment, zone};
use roost_model::{Alarm, Hold, Name, Origin, PutAlarm, PutHold, SandboxId, Span, chain};
use roost_store::Store;
use tokio::sync::Notify;

use crate::shared::Shared;
use crate::{HostError, blocking};
pub(crate) use book::Due;
use book::{Book, is_over};

/// Holds, and as many alarms, that a sandbox can have; half of them can be asked for from inside.
const MOST: usize = 64;
const MOST_FROM_INSIDE: usize = MOST / 2;
const LONGEST_HOLD: SignedDuration = SignedDuration::from_hours(24 * 30);
const LONGEST_REASON: usize = 200;
/// What a job that an alarm wakes a sandbox for has to begin in.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
/// A wake may take this long; until then nobody lets the sandbox sleep again.
const LONGEST_WAKE: SignedDuration = SignedDuration::from_mins(2);
/// When a wake that failed is tried again.
const RETRY: SignedDuration = SignedDuration::from_mins(1);
/// The one alarm that is read out of a sandbox's crontabs.
const CRONTAB: &str = "crontab";

/// Holds and alarms.
#[derive(Debug)]
pub(crate) struct Leases {
    store: Arc<dyn Store>,
    /// One writer at a time, so that store and memory change in the same order. Not taken by readers.
    writing: Mutex<()>,
    book: Mutex<Book>,
    /// Told when the next alarm may be another one.
    pub(crate) rescheduled: Notify,
}

impl Leases {
    /// Reads what is stored; what belongs to no living sandbox, or is over, is forgotten.
    pub(crate) fn open(store: Arc<dyn Store>, living: &[SandboxId], now: Timestamp) -> Result<Self, HostError> {
        let mut book = Book::default();
        for (owner, hold) in store.holds()? {
            if living.contains(&owner) && !is_over(&hold, now) {
                book.put_hold(&owner, hold);
            } else {
                store.delete_hold(&owner, &hold.id)?;
            }
        }
        for (owner, alarm) in store.alarms()? {
            if living.contains(&owner) {
                book.put_alarm(&owner, sooner(alarm, now));
            } else {
                store.delete_alarm(&owner, &alarm.id)?;
            }
        }
        Ok(Self { store, writing: Mutex::default(), book: Mutex::new(book), rescheduled: Notify::new() })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes or renews a hold; says whether it is a new one. Blocks.
    fn put_hold(
        &self,
        owner: &SandboxId,
        id: Option<Name>,
        wanted: PutHold,
        from: Origin,
    ) -> Result<(Hold, bool), HostError> {
        let _one_at_a_time = self.writing();
        let now = Timestamp::now();
        let expires_at = hold_end(now, wanted.length)?;
        check_reason(wanted.reason.as_deref())?;
        self.forget_expired(owner, now)?;
        let held: Vec<Hold> = self.book().holds(owner, now);
        let id = match id {
            Some(id) => id,
            None => free_name("hold", |name| held.iter().any(|hold| hold.id == *name))?,
        };
        let before = held.iter().find(|hold| hold.id == id);
        check_room("holds", before.map(|hold| hold.from), held.iter().map(|hold| hold.from), from)?;
        let created_at = before.map_or(now, |hold| hold.created_at);
        let hold = Hold { id, reason: wanted.reason, created_at, expires_at, from };
        self.store.put_hold(owner, &hold)?;
        self.book().put_hold(owner, hold.clone());
        Ok((hold, before.is_none()))
    }

    fn forget_expired(&self, owner: &SandboxId, now: Timestamp) -> Result<(), HostError> {
        let over = self.book().take_expired(owner, now);
        for hold in over {
            self.store.delete_hold(owner, &hold.id)?;
        }
        Ok(())
    }

    /// Releases a hold; says whether there was one. Blocks.
    fn release(&self, owner: &SandboxId, id: &Name) -> Result<bool, HostError> {
        let _one_at_a_time = self.writing();
        let over = self.book().hold(owner, id).is_none_or(|hold| is_over(&hold, Timestamp::now()));
        self.store.delete_hold(owner, id)?;
        self.book().remove_hold(owner, id);
        Ok(!over)
    }

    /// Sets or replaces an alarm; says whether it is a new one. Blocks.
    fn put_alarm(
        &self,
        owner: &SandboxId,
        id: Option<Name>,
        wanted: PutAlarm,
        from: Origin,
    ) -> Result<(Alarm, bool), HostError> {
        let _one_at_a_time = self.writing();
        let now = Timestamp::now();
        check_reason(wanted.reason.as_deref())?;
        if id.as_ref().is_some_and(|id| id.as_str() == CRONTAB) {
            return Err(HostError::BadRequest(format!("an alarm `{CRONTAB}` is set by Roost itself")));
        }
        let set: Vec<Alarm> = self.book().alarms(owner);
        let id = match id {
            Some(id) => id,
            None => free_name("alarm", |name| set.iter().any(|alarm| alarm.id == *name))?,
        };
        let before = set.iter().find(|alarm| alarm.id == id);
        check_room("alarms", before.map(|alarm| alarm.from), set.iter().map(|alarm| alarm.from), from)?;
        let alarm = alarm_of(id, wanted, from, now)?;
        self.store.put_alarm(owner, &alarm)?;
        self.book().put_alarm(owner, alarm.clone());
        self.rescheduled.notify_one();
        Ok((alarm, before.is_none()))
    }

    /// Removes an alarm; says whether there was one. Blocks.
    fn unset(&self, owner: &SandboxId, id: &Name) -> Result<bool, HostError> {
        let _one_at_a_time = self.writing();
        let was_there = self.store.delete_alarm(owner, id)?;
        self.book().remove_alarm(owner, id);
        self.rescheduled.notify_one();
        Ok(was_there)
    }

    /// Sets, moves or removes the alarm for the next job of a crontab inside. Blocks.
    fn set_crontab(&self, owner: &SandboxId, next: Option<(Timestamp, String)>) -> Result<(), HostError> {
        let id: Name = CRONTAB.parse()?;
        let Some((next_at, reason)) = next else {
            // Most sandboxes never had one, and need no write to have none.
            return if self.book().alarm(owner, &id).is_some() { self.unset(owner, &id).map(drop) } else { Ok(()) };
        };
        let _one_at_a_time = self.writing();
        let alarm = Alarm {
            id,
            next_at,
            every: None,
            tz: "UTC".to_owned(),
            reason: Some(reason),
            created_at: Timestamp::now(),
            last_at: None,
            failure: None,
            from: Origin::Crontab,
        };
        self.store.put_alarm(owner, &alarm)?;
        self.book().put_alarm(owner, alarm);
        self.rescheduled.notify_one();
        Ok(())
    }

    /// Forgets everything of a sandbox that is gone.
    pub(crate) async fn forget(self: &Arc<Self>, owner: &SandboxId) {
        if !self.book().forget(owner) {
            return;
        }
        let (leases, id) = (self.clone(), owner.clone());
        if let Err(error) = blocking(move || leases.store.forget_leases(&id)).await {
            // The next start of the daemon finds that nobody owns them.
            tracing::warn!(sandbox = %owner, error = %chain(&error), "its holds and alarms stay for now");
        }
        self.rescheduled.notify_one();
    }

    /// The sandbox is awake: there is no job of a crontab to wake it for until it sleeps again.
    pub(crate) async fn woke(self: &Arc<Self>, owner: &SandboxId) {
        self.crontab(owner, None).await;
    }

    /// Wakes the sandbox at a moment for a job of a crontab inside, or no more.
    pub(crate) async fn crontab(self: &Arc<Self>, owner: &SandboxId, next: Option<(Timestamp, String)>) {
        if next.is_none() && !self.book().has_alarm(owner, CRONTAB) {
            return;
        }
        let (leases, id) = (self.clone(), owner.clone());
        if let Err(error) = blocking(move || leases.set_crontab(&id, next)).await {
            tracing::warn!(sandbox = %owner, error = %chain(&error), "could not note the next job of its crontabs");
        }
    }

    /// When the next alarm of all goes off.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.book().next_due()
    }

    /// The alarms that go off now; each is given out once, until it is told how that went.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Due> {
        self.book().take_due(now)
    }

    /// The clock was set: what comes again and again may come sooner now.
    pub(crate) fn clock_was_set(&self, now: Timestamp) {
        self.book().reschedule(|alarm| sooner(alarm.clone(), now));
    }

    /// Keeps a sandbox awake while an alarm wakes it, and for a moment after.
    pub(crate) fn grace(&self, due: &Due, woken: bool) {
        let now = Timestamp::now();
        let length = if woken { GRACE } else { LONGEST_WAKE };
        let reason = Some(format!("woken by alarm {}", due.alarm.id));
        let expires_at = now.saturating_add(length).unwrap_or(now);
        let Ok(id) = "alarm".parse() else { return };
        self.book().set_grace(&due.owner, Hold { id, reason, created_at: now, expires_at, from: Origin::Alarm });
    }

    /// An alarm went off. Blocks.
    pub(crate) fn went_off(&self, due: &Due, outcome: Result<(), String>) -> Result<(), HostError> {
        let _one_at_a_time = self.writing();
        // Whoever has set it anew meanwhile means the new one.
        if self.book().alarm(&due.owner, &due.alarm.id).as_ref() != Some(&due.alarm) {
            return Ok(());
        }
        let next = after_ringing(&due.alarm, outcome, Timestamp::now());
        match &next {
            Some(alarm) => self.store.put_alarm(&due.owner, alarm)?,
            None => drop(self.store.delete_alarm(&due.owner, &due.alarm.id)?),
        }
        match next {
            Some(alarm) => self.book().put_alarm(&due.owner, alarm),
            None => self.book().remove_alarm(&due.owner, &due.alarm.id),
        }
        self.rescheduled.notify_one();
        Ok(())
    }
}

impl Shared {
    /// The leases that keep a sandbox awake now.
    pub(crate) fn holds_of(&self, sandbox: &SandboxId) -> Vec<Hold> {
        self.leases.book().holds_and_grace(sandbox, Timestamp::now())
    }

    /// When a sandbox will be woken next.
    pub(crate) fn next_alarm(&self, sandbox: &SandboxId) -> Option<Timestamp> {
        self.leases.book().alarms(sandbox).iter().map(|alarm| alarm.next_at).min()
    }
}

fn hold_end(now: Timestamp, length: Span) -> Result<Timestamp, HostError> {
    let longest = || HostError::BadRequest("a hold ends after at most 30 days".to_owned());
    let length = SignedDuration::try_from(length.get().ok_or_else(longest)?).map_err(|_| longest())?;
    if length.is_zero() {
        return Err(HostError::BadRequest("a hold of no length holds nothing".to_owned()));
    }
    if length > LONGEST_HOLD {
        return Err(longest());
    }
    now.checked_add(length).map_err(|_| longest())
}

fn check_reason(reason: Option<&str>) -> Result<(), HostError> {
    match reason {
        Some(reason) if reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) => {
            Err(HostError::BadRequest(format!("a reason is one line of at most {LONGEST_REASON} bytes")))
        }
        _ => Ok(()),
    }
}

/// Whether one more fits, and whether it is this one's to replace.
fn check_room(
    what: &str,
    before: Option<Origin>,
    all: impl Iterator<Item = Origin>,
    from: Origin,
) -> Result<(), HostError> {
    match before {
        Some(owner) if from == Origin::Inside && owner != Origin::Inside => {
            return Err(HostError::Forbidden(format!("that name belongs to one of the {what} from outside")));
        }
        Some(_) => return Ok(()),
        None => {}
    }
    let (mut count, mut inside) = (0, 0);
    for origin in all.filter(|origin| *origin != Origin::Crontab) {
        count += 1;
        inside += usize::from(origin == Origin::Inside);
    }
    if count >= MOST || (from == Origin::Inside && inside >= MOST_FROM_INSIDE) {
        let most = if count >= MOST { MOST } else { MOST_FROM_INSIDE };
        return Err(HostError::LimitExceeded(format!("too many {what}: it has {most} of them already")));
    }
    Ok(())
}

/// A made-up name that is free.
fn free_name(word: &str, taken: impl Fn(&Name) -> bool) -> Result<Name, HostError> {
    let names = (1..=MOST + 1).filter_map(|number| format!("{word}-{number}").parse().ok());
    let mut free = names.filter(|name| !taken(name));
    free.next().ok_or_else(|| HostError::LimitExceeded(format!("there is no name left for another {word}")))
}

fn alarm_of(id: Name, wanted: PutAlarm, from: Origin, now: Timestamp) -> Result<Alarm, HostError> {
    let bad = |error: &dyn std::error::Error| HostError::BadRequest(error.to_string());
    let place = zone(wanted.tz.as_deref()).map_err(|error| bad(&error))?;
    let next_at = match (&wanted.at, &wanted.every) {
        (Some(at), None) => moment(at, now, &place).map_err(|error| bad(&error))?,
        (None, Some(every)) => {
            let cron: Cron = every.parse().map_err(|error| bad(&error))?;
            cron.next_after(now, &place).ok_or_else(|| HostError::BadRequest(format!("`{every}` never comes")))?
        }
        _ => return Err(HostError::BadRequest("give either `at` or `every`: when is it to go off?".to_owned())),
    };
    let tz = wanted.tz.unwrap_or_else(|| "UTC".to_owned());
    let every = wanted.every.map(|every| every.trim().to_owned());
    Ok(Alarm { id, next_at, every, tz, reason: wanted.reason, created_at: now, last_at: None, failure: None, from })
}

/// When an alarm that comes again comes next.
fn next_ring(alarm: &Alarm, now: Timestamp) -> Option<Timestamp> {
    let cron: Cron = alarm.every.as_ref()?.parse().ok()?;
    cron.next_after(now, &zone(Some(&alarm.tz)).ok()?)
}

/// The alarm with its next time as the clock shows it now, if that is sooner; one that was missed stays missed.
fn sooner(alarm: Alarm, now: Timestamp) -> Alarm {
    match next_ring(&alarm, now) {
        Some(next) if next < alarm.next_at => Alarm { next_at: next, ..alarm },
        _ => alarm,
    }
}

/// What is left of an alarm after it went off: its next time, another try if the wake failed, or nothing.
fn after_ringing(alarm: &Alarm, outcome: Result<(), String>, now: Timestamp) -> Option<Alarm> {
    let again = outcome.is_err().then(|| now.saturating_add(RETRY).unwrap_or(now));
    let next_at = next_ring(alarm, now).into_iter().chain(again).min()?;
    Some(Alarm { next_at, last_at: Some(now), failure: outcome.err(), ..alarm.clone() })
}

#[cfg(test)]
#[path = "leases/tests.rs"]
mod tests;
