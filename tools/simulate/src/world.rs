//! One sandbox on an engine that is only thought of: what its decisions do to processes, memory, image and files.
//!
//! Contents are numbers that grow with every change, so that the loss of any change is seen, and so is a moment that comes
//! back unasked. The daemon may die after every persist and after every effect; the next one finds what the store and
//! the world say, as the real one does.

use std::collections::BTreeMap;

use roost_lifecycle::{Effect, Event, Phase, Seen, recover, step};
use roost_model::Level;

use crate::random::Random;

/// How often things go wrong: once in so many times, 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    /// The daemon dies after a persist or an effect.
    pub crash: u64,
    /// The whole host dies with it.
    pub reboot: u64,
    /// An effect that can fail does.
    pub failure: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Processes {
    memory: u64,
    frozen: bool,
}

/// A moment that was kept.
#[derive(Debug, Clone, Copy)]
struct Moment {
    files: u64,
    memory: Option<u64>,
}

/// What must be there, whatever happens.
#[derive(Debug, Clone, Copy)]
struct Expected {
    files: u64,
    /// Nothing where memory was given up on request, or lost with its processes.
    memory: Option<u64>,
}

/// How often the daemon died, for each place at which it did: the phase that was stored, and the last effect.
pub type Crashes = BTreeMap<(String, String), u64>;

/// A sandbox, and what is promised about it.
#[derive(Debug)]
pub struct World {
    pub phase: Phase,
    processes: Option<Processes>,
    /// The image that its record names.
    image: Option<u64>,
    /// One that no record names yet.
    unnamed: Option<u64>,
    files: Option<u64>,
    kept: Option<Moment>,
    expected: Expected,
    random: Random,
    odds: Odds,
    pub crashes: Crashes,
    pub persists: u64,
}

impl World {
    /// A sandbox that has just been promised; it is brought to life.
    pub fn new(random: Random, odds: Odds) -> Self {
        let expected = Expected { files: 0, memory: None };
        let mut world = Self {
            phase: Phase::Creating,
            processes: None,
            image: None,
            unnamed: None,
            files: None,
            kept: None,
            expected,
            random,
            odds,
            crashes: Crashes::new(),
            persists: 0,
        };
        world.settle(&[Effect::MakeDisk, Effect::Start]);
        world
    }

    /// Whether its life has ended.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Terminated
    }

    /// Something inside changes its memory and its files.
    pub fn work(&mut self) {
        assert_eq!(self.phase, Phase::Active, "only what is awake works");
        let processes = self.processes.as_mut().expect("what is awake runs");
        processes.memory += 1;
        self.expected.memory = Some(processes.memory);
        self.expected.files += 1;
        self.files = Some(self.expected.files);
    }

    /// Keeps this moment.
    pub fn keep(&mut self) {
        let memory = self.processes.map(|processes| processes.memory).or(self.image);
        self.kept = self.files.map(|files| Moment { files, memory });
    }

    /// Asks something of it, and waits until it is settled. Clients ask again for a wake that a crash cut off.
    pub fn ask(&mut self, event: Event) {
        if self.phase.is_ending() || (event == Event::RestoreRequested && self.kept.is_none()) {
            return;
        }
        for _ in 0..1000 {
            self.feed(event);
            self.check();
            if event != Event::WakeRequested || matches!(self.phase, Phase::Active | Phase::Terminated) {
                return;
            }
        }
        panic!("never awake: {self:?}");
    }

    /// Its processes end by themselves.
    pub fn perish(&mut self) {
        if self.processes.take().is_some() {
            self.forget_memory();
            self.feed(Event::Gone);
            self.check();
        }
    }

    /// Its processes are gone, and what they remembered with them, unless it sleeps in its image.
    fn forget_memory(&mut self) {
        self.expected.memory = self.image.filter(|_| self.phase.is_in_image());
    }

    fn feed(&mut self, event: Event) {
        match event {
            Event::SuspendRequested(Level::Files) => self.expected.memory = None,
            Event::RestoreRequested if !self.phase.is_ending() => {
                let Some(moment) = self.kept else { return };
                self.expected = Expected { files: moment.files, memory: moment.memory };
            }
            _ => {}
        }
        if let Some(effects) = self.decide(event) {
            self.settle(effects);
        }
    }

    /// Decides and persists.
    fn decide(&mut self, event: Event) -> Option<&'static [Effect]> {
        let (next, effects) = step(self.phase, event).ok()?;
        let woken = matches!((self.phase, next), (Phase::Suspended(_), Phase::Resuming(_)));
        assert!(!woken || event == Event::WakeRequested, "{event:?} woke it from {}", self.phase);
        match (self.phase, event) {
            (_, Event::Saved) => self.image = self.unnamed.take(),
            // The one loss that is nobody's wish: the files of the moment are there, its memory could not be had.
            (Phase::Restoring, Event::StartFailed) => self.expected.memory = None,
            _ => {}
        }
        self.phase = next;
        self.persists += 1;
        Some(effects)
    }

    /// Acts until nothing follows, through every death of the daemon.
    fn settle(&mut self, mut effects: &'static [Effect]) {
        'acting: for _ in 0..1000 {
            if self.crashes_now(None) {
                effects = self.next_daemon();
                continue;
            }
            let mut outcome = None;
            for effect in effects {
                outcome = self.run(*effect);
                if self.crashes_now(Some(*effect)) {
                    effects = self.next_daemon();
                    continue 'acting;
                }
            }
            let Some(event) = outcome else { return };
            effects = self.decide(event).expect("the outcome of our own effect makes sense");
        }
        panic!("does not settle: {self:?}");
    }

    fn crashes_now(&mut self, after: Option<Effect>) -> bool {
        let dies = self.random.once_in(self.odds.crash);
        if dies {
            let after = after.map_or_else(|| "the persist".to_owned(), |effect| format!("{effect:?}"));
            let place = (self.phase.to_string(), after);
            *self.crashes.entry(place).or_default() += 1;
        }
        dies
    }

    fn next_daemon(&mut self) -> &'static [Effect] {
        if self.random.once_in(self.odds.reboot) && self.processes.take().is_some() {
            self.forget_memory();
        }
        // What no record names is swept, and an image of what was awake is of an earlier moment.
        self.unnamed = None;
        if !self.phase.is_in_image() && self.phase != Phase::Restoring {
            self.image = None;
        }
        let seen = match self.processes {
            None => Seen::Absent,
            Some(Processes { frozen: true, .. }) => Seen::Frozen,
            Some(Processes { frozen: false, .. }) => Seen::Running,
        };
        let (next, effects) = recover(self.phase, seen);
        let asleep = matches!(self.phase, Phase::Suspended(_));
        assert!(!asleep || !matches!(next, Phase::Resuming(_) | Phase::Active), "a crash woke it from {}", self.phase);
        self.phase = next;
        self.persists += 1;
        effects
    }

    /// Runs one effect; it may fail where the real one may.
    fn run(&mut self, effect: Effect) -> Option<Event> {
        let works = !self.random.once_in(self.odds.failure);
        let frozen = |processes: Option<Processes>, frozen| processes.map(|one| Processes { frozen, ..one });
        match effect {
            Effect::Shutdown => None,
            Effect::MakeDisk => {
                self.files.get_or_insert(0);
                None
            }
            Effect::ReplaceDisk => {
                let moment = self.kept.expect("a restore names its moment");
                (self.files, self.image) = (Some(moment.files), moment.memory);
                None
            }
            Effect::Start => {
                assert!(self.processes.is_none(), "started while it is there: {self:?}");
                assert!(self.files.is_some(), "started without a disk: {self:?}");
                if works {
                    // Without an image its processes are new, and so is all they remember.
                    let memory = self.image.unwrap_or(self.persists << 20);
                    self.processes = Some(Processes { memory, frozen: false });
                }
                Some(if works { Event::Started } else { Event::StartFailed })
            }
            Effect::Adopt => Some(if self.processes.is_some() { Event::Started } else { Event::StartFailed }),
            Effect::Freeze if works => {
                self.processes = frozen(self.processes, true);
                Some(Event::Frozen)
            }
            Effect::Save => {
                self.processes = frozen(self.processes, true);
                self.unnamed = self.processes.filter(|_| works).map(|processes| processes.memory);
                Some(if self.unnamed.is_some() { Event::Saved } else { Event::NotSaved })
            }
            Effect::Freeze => Some(Event::NotSaved),
            Effect::Thaw => {
                assert!(self.processes.is_some(), "thawed what is not there: {self:?}");
                self.processes = frozen(self.processes, false);
                Some(Event::Started)
            }
            Effect::Configure => {
                self.processes = frozen(self.processes, false);
                Some(if works { Event::Started } else { Event::NotConfigured })
            }
            Effect::DropImage => {
                self.image = None;
                None
            }
            Effect::Kill => {
                self.processes = None;
                Some(Event::Killed)
            }
            Effect::Release => {
                assert!(self.processes.is_none(), "released while it runs: {self:?}");
                (self.files, self.image, self.kept) = (None, None, None);
                Some(Event::Released)
            }
        }
    }

    /// What must hold whenever nothing is going on.
    fn check(&mut self) {
        let runs = self.processes.map(|processes| (processes.memory, processes.frozen));
        // Memory that was given up is whatever the next start made of it.
        match self.phase {
            Phase::Active | Phase::Suspended(Level::Ram) if self.expected.memory.is_none() => {
                self.expected.memory = runs.map(|(memory, _)| memory);
            }
            Phase::Suspended(Level::Files) => {
                assert_eq!(self.expected.memory, None, "lost its memory: {self:?}");
            }
            _ => {}
        }
        let memory = self.expected.memory;
        match self.phase {
            Phase::Active => assert_eq!(runs, memory.map(|memory| (memory, false)), "{self:?}"),
            Phase::Suspended(Level::Ram) => assert_eq!(runs, memory.map(|memory| (memory, true)), "{self:?}"),
            Phase::Suspended(Level::Disk) => assert_eq!((runs, self.image), (None, memory), "{self:?}"),
            Phase::Suspended(Level::Files) => assert_eq!(runs, None, "{self:?}"),
            Phase::Terminated => return assert_eq!((runs, self.files, self.image), (None, None, None), "{self:?}"),
            _ => panic!("not settled: {self:?}"),
        }
        assert_eq!(self.files, Some(self.expected.files), "lost files: {self:?}");
    }
}
