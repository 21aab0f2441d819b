//! What is to be done about services next. Decides only: no process, no clock and no file is touched here.
//!
//! ```text
//!            wanted, needs met               ends by itself
//!   Down ------------------------> Up ----------------------+--> Pause --- time is up, needs met --> Up
//!    ^                              | not wanted, or again   +--> Done (by its policy it stays so)
//!    +------- ended ---- Leaving <--+
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use roost_wire::{ErrorCode, Exit, Failure, Restart, Service, ServiceLimits, ServiceSet, ServiceState};

use super::entry::{Entry, Now, Phase};
use crate::failure::bad_request;

/// How soon is looked whether a service listens, at first and at last.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_secs(1);
/// How long is looked for a port that nobody waits for.
const WATCHED: Duration = Duration::from_secs(60);

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Start a process, and say what came of it.
    Start(Box<Service>),
    /// Ask it to end.
    Terminate(String),
    /// End it.
    Kill(String),
    /// It is no more: forget what is left of it.
    Forget(String),
}

/// All services and how they stand.
#[derive(Debug)]
pub(super) struct Plan {
    entries: BTreeMap<String, Entry>,
    revision: u64,
    limits: ServiceLimits,
    /// The sandbox ends: nothing starts any more, and each ends after those that need it.
    closing: bool,
}

impl Plan {
    pub(super) fn new(limits: ServiceLimits) -> Self {
        Self { entries: BTreeMap::new(), revision: 0, limits, closing: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The service of a name, unless it is on its way out.
    pub(super) fn find(&self, name: &str) -> Result<&Entry, Failure> {
        self.entries.get(name).filter(|entry| !entry.removed).ok_or_else(|| not_found(name))
    }

    /// Takes a new set; false if it is not newer than the one here.
    pub(super) fn set(&mut self, set: ServiceSet, now: Now) -> Result<bool, Failure> {
        if set.revision <= self.revision || self.closing {
            return Ok(false);
        }
        check(&set)?;
        self.revision = set.revision;
        let named: BTreeSet<String> = set.services.iter().map(|service| service.name.clone()).collect();
        for (_, entry) in self.entries.iter_mut().filter(|(name, _)| !named.contains(*name)) {
            entry.removed = true;
            entry.wanted = false;
        }
        let pause = self.first_pause();
        for service in set.services {
            match self.entries.get_mut(&service.name) {
                Some(entry) => entry.change(service, pause, now),
                None => drop(self.entries.insert(service.name.clone(), Entry::new(service, pause, now))),
            }
        }
        Ok(true)
    }

    /// Wants a service up: `again` even if it is, `demand` on behalf of something that only asks for its port.
    pub(super) fn start(&mut self, name: &str, again: bool, demand: bool, now: Now) -> Result<(), Failure> {
        self.find(name)?;
        if self.closing {
            return Err(Failure::new(ErrorCode::Conflict, "the sandbox is being stopped"));
        }
        let pause = self.first_pause();
        let entry = self.entries.get_mut(name).ok_or_else(|| not_found(name))?;
        if entry.service.stopped {
            return Err(Failure::new(ErrorCode::Conflict, format!("service `{name}` is stopped")));
        }
        entry.wanted = true;
        match &mut entry.phase {
            Phase::Up { watched_from, .. } => {
                *watched_from = now.awake;
                entry.again |= again;
            }
            Phase::Pause { .. } if demand => {}
            Phase::Pause { .. } | Phase::Done { .. } => {
                entry.pause = pause;
                entry.enter(Phase::Down, now);
            }
            Phase::Down | Phase::Leaving { .. } => {}
        }
        Ok(())
    }

    /// Wants everything down, for good.
    pub(super) fn close(&mut self) {
        self.closing = true;
        for entry in self.entries.values_mut() {
            entry.wanted = false;
        }
    }

    /// How long all of them may take to end, one after the other.
    pub(super) fn stop_time(&self) -> Duration {
        let times = self.entries.values().map(|entry| Duration::from_millis(entry.service.stop_timeout_ms));
        times.fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Whether nothing has a process any more.
    pub(super) fn all_down(&self) -> bool {
        !self.entries.values().any(Entry::has_process)
    }

    /// The next thing to do, if there is one now.
    pub(super) fn next(&mut self, now: Now) -> Option<Act> {
        self.spread_demand();
        let names: Vec<String> = self.names();
        names.iter().find_map(|name| self.next_for(name, now))
    }

    fn next_for(&mut self, name: &str, now: Now) -> Option<Act> {
        let needed = self.closing && self.is_needed(name);
        let ready = self.missing_need(name).is_none();
        let entry = self.entries.get_mut(name)?;
        match entry.phase {
            Phase::Up { .. } if (!entry.wanted || entry.again) && !needed => {
                let kill_at = now.awake + Duration::from_millis(entry.service.stop_timeout_ms);
                entry.enter(Phase::Leaving { kill_at: Some(kill_at) }, now);
                Some(Act::Terminate(name.to_owned()))
            }
            Phase::Leaving { kill_at: Some(at) } if now.awake >= at => {
                entry.phase = Phase::Leaving { kill_at: None };
                Some(Act::Kill(name.to_owned()))
            }
            Phase::Down | Phase::Done { .. } | Phase::Pause { .. } if entry.removed => {
                self.entries.remove(name);
                Some(Act::Forget(name.to_owned()))
            }
            Phase::Pause { .. } if !entry.wanted => {
                entry.enter(Phase::Down, now);
                None
            }
            Phase::Down if entry.wanted && ready => Some(entry.begin(now)),
            Phase::Pause { until } if now.awake >= until && ready => {
                entry.restarts += 1;
                Some(entry.begin(now))
            }
            _ => None,
        }
    }

    /// A process has been started.
    pub(super) fn started(&mut self, name: &str) {
        if let Some(Phase::Up { alive, .. }) = self.entries.get_mut(name).map(|entry| &mut entry.phase) {
            *alive = true;
        }
    }

    /// A process could not be started.
    pub(super) fn not_started(&mut self, name: &str, exit: Exit, why: String, now: Now) {
        self.ended(name, exit, now);
        if let Some(entry) = self.entries.get_mut(name) {
            entry.reason = Some(why);
        }
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, name: &str, exit: Exit, now: Now) {
        let limits = self.limits;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let healthy = matches!(entry.phase, Phase::Up { since, .. }
            if now.awake.saturating_sub(since) >= Duration::from_millis(limits.healthy_ms));
        let by_order = matches!(entry.phase, Phase::Leaving { .. }) || !entry.wanted || entry.again;
        if healthy || by_order {
            entry.pause = Duration::from_millis(limits.first_pause_ms);
        }
        entry.last_exit = Some(exit);
        entry.again = false;
        if by_order {
            entry.enter(Phase::Down, now);
            return;
        }
        entry.falls += 1;
        let well = exit.code == Some(0);
        let again = match entry.service.restart {
            Restart::Always => true,
            Restart::OnFailure => !well,
            Restart::Never => false,
        };
        if again {
            let pause = entry.pause;
            entry.pause = (pause * 2).min(Duration::from_millis(limits.longest_pause_ms));
            entry.enter(Phase::Pause { until: now.awake + pause }, now);
            entry.reason = Some(format!("{}; starts again after {}", ending(exit), seconds(pause)));
        } else {
            entry.enter(Phase::Done { well }, now);
            entry.reason = Some(ending(exit));
        }
    }

    /// When to look again, if nothing happens before.
    pub(super) fn deadline(&self, now: Now) -> Option<Duration> {
        let times = self.entries.iter().filter_map(|(name, entry)| match entry.phase {
            Phase::Pause { until } => Some(until),
            Phase::Leaving { kill_at } => kill_at,
            Phase::Up { .. } if self.is_watched(name, entry, now) => Some(now.awake + look_after(entry, now)),
            _ => None,
        });
        // What is over and was not acted on waits for another service, not for the time.
        times.filter(|time| *time > now.awake).min()
    }

    /// Whether somebody may still want to know if a service listens.
    pub(super) fn watches_ports(&self, now: Now) -> bool {
        self.entries.iter().any(|(name, entry)| self.is_watched(name, entry, now))
    }

    fn is_watched(&self, name: &str, entry: &Entry, now: Now) -> bool {
        let Phase::Up { listens: false, watched_from, .. } = entry.phase else { return false };
        entry.service.port.is_some()
            && (now.awake.saturating_sub(watched_from) < WATCHED || self.waits_for(name).next().is_some())
    }

    /// Takes note of what is listened on.
    pub(super) fn see_ports(&mut self, listening: &BTreeSet<u16>, now: Now) {
        for entry in self.entries.values_mut() {
            let open = entry.service.port.is_some_and(|port| listening.contains(&port));
            if let Phase::Up { listens: listens @ false, .. } = &mut entry.phase
                && open
            {
                *listens = true;
                entry.since_ms = now.wall_ms;
            }
        }
    }

    /// How a service stands, and why where that needs saying.
    pub(super) fn state(&self, name: &str) -> Option<(ServiceState, Option<String>)> {
        let entry = self.entries.get(name)?;
        let told = entry.reason.clone();
        Some(match entry.phase {
            Phase::Up { .. } if entry.is_up() => (ServiceState::Running, None),
            Phase::Up { .. } => {
                let port = entry.service.port.map(|port| format!("does not listen on port {port} yet"));
                (ServiceState::Starting, port)
            }
            Phase::Leaving { .. } if entry.wanted => (ServiceState::Starting, Some("is being restarted".to_owned())),
            Phase::Leaving { .. } => (ServiceState::Running, Some("is being stopped".to_owned())),
            Phase::Pause { .. } => (ServiceState::Backoff, told),
            Phase::Done { well: true } => (ServiceState::Stopped, told),
            Phase::Done { well: false } => (ServiceState::Failed, told),
            Phase::Down if entry.wanted => {
                let missing = self.missing_need(name).map(|need| format!("waits for service `{need}`"));
                (ServiceState::Starting, missing)
            }
            Phase::Down => (ServiceState::Stopped, told),
        })
    }

    /// The first service that it needs and that is not up.
    fn missing_need(&self, name: &str) -> Option<&str> {
        let entry = self.entries.get(name)?;
        let met = |need: &&String| {
            self.entries.get(*need).is_some_and(|need| need.is_up() || matches!(need.phase, Phase::Done { well: true }))
        };
        entry.service.needs.iter().find(|need| !met(need)).map(String::as_str)
    }

    /// Services that need this one and wait to start.
    fn waits_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        let waits = |entry: &&Entry| entry.wanted && matches!(entry.phase, Phase::Down | Phase::Pause { .. });
        self.needing(name).filter(waits)
    }

    fn needing<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| entry.service.needs.iter().any(|need| need == name))
    }

    fn is_needed(&self, name: &str) -> bool {
        self.needing(name).any(Entry::has_process)
    }

    /// What a wanted service needs is wanted too, unless somebody stopped it.
    fn spread_demand(&mut self) {
        loop {
            let wanted = self.entries.values().filter(|entry| entry.wanted && !entry.has_process());
            let needs: BTreeSet<String> = wanted.flat_map(|entry| entry.service.needs.iter().cloned()).collect();
            let mut changed = false;
            for need in &needs {
                if let Some(entry) = self.entries.get_mut(need)
                    && !entry.wanted
                    && !entry.service.stopped
                    && !entry.removed
                {
                    entry.wanted = true;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    fn first_pause(&self) -> Duration {
        Duration::from_millis(self.limits.first_pause_ms)
    }
}

fn look_after(entry: &Entry, now: Now) -> Duration {
    let Phase::Up { watched_from, .. } = entry.phase else { return LAST_LOOK };
    (now.awake.saturating_sub(watched_from) / 8).clamp(FIRST_LOOK, LAST_LOOK)
}

/// Names become folders; a set that names one twice has no meaning.
fn check(set: &ServiceSet) -> Result<(), Failure> {
    let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let mut names = BTreeSet::new();
    for service in &set.services {
        let name = service.name.as_str();
        if name.is_empty() || name.len() > 64 || !name.chars().all(well_formed) || !names.insert(name) {
            return Err(bad_request(format!("`{}` is no name for a service here", name.escape_debug())));
        }
    }
    Ok(())
}

fn not_found(name: &str) -> Failure {
    Failure::new(ErrorCode::ServiceNotFound, format!("no service named `{}`", name.escape_debug()))
}

/// How a process ended, in words.
pub(super) fn ending(exit: Exit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("ended with code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or_default()),
    }
}

fn seconds(time: Duration) -> String {
    if time.subsec_millis() == 0 { format!("{} s", time.as_secs()) } else { format!("{} ms", time.as_millis()) }
}
