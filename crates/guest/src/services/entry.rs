//! One service and how it stands.

use std::time::Duration;

use roost_wire::{Exit, Service};

use super::plan::Act;

/// A moment, by the two clocks that matter here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Time awake, by which pauses and limits are counted.
    pub(super) awake: Duration,
    /// Milliseconds since the epoch, for people.
    pub(super) wall_ms: u64,
}

/// What a service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has no process.
    Down,
    /// It has a process, or is just getting one.
    Up {
        since: Duration,
        /// Its process is there.
        alive: bool,
        /// Its port was seen open since it started.
        listens: bool,
        /// From when on somebody looks for its port.
        watched_from: Duration,
    },
    /// Its process was told to end, and is killed at this time.
    Leaving { kill_at: Option<Duration> },
    /// It ended by itself and starts again at this time.
    Pause { until: Duration },
    /// It ended by itself and that is that.
    Done { well: bool },
}

/// One service.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) service: Service,
    /// Whether it shall run.
    pub(super) wanted: bool,
    /// It is not in the set any more.
    pub(super) removed: bool,
    /// Its process is to be replaced by a new one.
    pub(super) again: bool,
    pub(super) phase: Phase,
    /// How long the next pause will be.
    pub(super) pause: Duration,
    pub(super) restarts: u64,
    /// How often it has ended by itself.
    pub(super) falls: u64,
    pub(super) since_ms: u64,
    pub(super) last_exit: Option<Exit>,
    pub(super) reason: Option<String>,
}

impl Entry {
    pub(super) fn new(service: Service, pause: Duration, now: Now) -> Self {
        Self {
            wanted: !service.stopped && !service.on_demand,
            service,
            removed: false,
            again: false,
            phase: Phase::Down,
            pause,
            restarts: 0,
            falls: 0,
            since_ms: now.wall_ms,
            last_exit: None,
            reason: None,
        }
    }

    /// Takes a new definition; a process of an old one is replaced.
    pub(super) fn change(&mut self, service: Service, pause: Duration, now: Now) {
        let other = !runs_the_same(&self.service, &service);
        let released = self.service.stopped || self.service.on_demand || self.removed;
        if service.stopped {
            self.wanted = false;
        } else if released && !service.on_demand {
            self.wanted = true;
        }
        self.service = service;
        self.removed = false;
        match self.phase {
            Phase::Up { .. } => self.again |= other && self.wanted,
            Phase::Pause { .. } | Phase::Done { .. } if other || !self.wanted => {
                self.pause = pause;
                self.enter(Phase::Down, now);
            }
            _ => {}
        }
    }

    pub(super) fn enter(&mut self, phase: Phase, now: Now) {
        self.phase = phase;
        self.since_ms = now.wall_ms;
        self.reason = None;
    }

    pub(super) fn begin(&mut self, now: Now) -> Act {
        self.enter(Phase::Up { since: now.awake, alive: false, listens: false, watched_from: now.awake }, now);
        Act::Start(Box::new(self.service.clone()))
    }

    pub(super) fn has_process(&self) -> bool {
        matches!(self.phase, Phase::Up { .. } | Phase::Leaving { .. })
    }

    /// It runs, and listens if it is to.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up { alive: true, listens, .. } if listens || self.service.port.is_none())
            && !self.again
    }
}

/// Whether a process of the one is as good as one of the other.
fn runs_the_same(one: &Service, other: &Service) -> bool {
    let what = |service: &Service| {
        (service.program.clone(), service.env.clone(), service.cwd.clone(), service.user.clone(), service.port)
    };
    what(one) == what(other)
}
