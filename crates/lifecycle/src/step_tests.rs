//! What the core may never do, tried on random lives.

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::phase::all;
use crate::{Seen, recover};

const EVENTS: [Event; 17] = [
    Event::WakeRequested,
    Event::SuspendRequested(Level::Ram),
    Event::SuspendRequested(Level::Disk),
    Event::SuspendRequested(Level::Files),
    Event::RestoreRequested,
    Event::MoveRequested(EngineKind::Gvisor),
    Event::TerminateRequested,
    Event::Started,
    Event::StartFailed,
    Event::Frozen,
    Event::Saved,
    Event::NotSaved,
    Event::Gone,
    Event::Killed,
    Event::Released,
    Event::TakeRequested,
    Event::NotConfigured,
];
const REQUESTS: [Event; 8] = [
    Event::WakeRequested,
    Event::SuspendRequested(Level::Ram),
    Event::SuspendRequested(Level::Disk),
    Event::SuspendRequested(Level::Files),
    Event::RestoreRequested,
    Event::MoveRequested(EngineKind::Gvisor),
    Event::TerminateRequested,
    Event::TakeRequested,
];

fn reachable_from(start: Phase) -> HashSet<Phase> {
    let mut seen = HashSet::from([start]);
    let mut queue = VecDeque::from([start]);
    while let Some(phase) = queue.pop_front() {
        for event in EVENTS {
            if let Ok((next, _)) = step(phase, event)
                && seen.insert(next)
            {
                queue.push_back(next);
            }
        }
    }
    seen
}

#[test]
fn every_reachable_phase_has_a_way_to_terminated() {
    for phase in reachable_from(Phase::Creating) {
        assert!(reachable_from(phase).contains(&Phase::Terminated), "{phase}");
    }
}

#[test]
fn every_phase_can_be_terminated_in_three_events() {
    for phase in all() {
        let mut now = phase;
        for event in [Event::TerminateRequested, Event::Killed, Event::Released] {
            if let Ok((next, _)) = step(now, event) {
                now = next;
            }
        }
        assert_eq!(now, Phase::Terminated, "from {phase}");
    }
}

/// What a crash leaves of a take is the taker's, whole, or still waits: there is nothing between.
#[test]
fn a_take_that_is_cut_off_is_a_birth() {
    for waiting in [Phase::Active, Phase::Suspended(Level::Ram)] {
        let (taken, effects) = step(waiting, Event::TakeRequested).unwrap();
        assert_eq!((taken, effects), (Phase::Creating, &[Effect::Configure][..]));
        let anew = [Effect::Kill, Effect::MakeDisk, Effect::Start];
        for seen in [Seen::Absent, Seen::Running, Seen::Frozen] {
            assert_eq!(recover(taken, seen), (Phase::Creating, &anew[..]));
        }
        assert_eq!(step(taken, Event::NotConfigured), Ok((Phase::Creating, &anew[..])));
    }
    for other in [Phase::Suspended(Level::Files), Phase::Suspended(Level::Disk), Phase::Creating, Phase::Terminating] {
        assert!(step(other, Event::TakeRequested).is_err(), "{other}");
    }
}

/// Whatever is found of a move that was decided, the move goes on; and what slept is not woken by it.
#[test]
fn a_move_that_is_cut_off_goes_on() {
    let to = EngineKind::Gvisor;
    for (from, after) in [
        (Phase::Active, Phase::Resuming(Level::Files)),
        (Phase::Suspended(Level::Ram), Phase::Suspended(Level::Files)),
        (Phase::Suspended(Level::Disk), Phase::Suspended(Level::Files)),
        (Phase::Suspended(Level::Files), Phase::Suspended(Level::Files)),
    ] {
        let (moving, _) = step(from, Event::MoveRequested(to)).unwrap();
        assert!(matches!(moving, Phase::Moving { to: EngineKind::Gvisor, .. }));
        for seen in [Seen::Absent, Seen::Running, Seen::Frozen] {
            assert_eq!(recover(moving, seen), (moving, &[Effect::Kill][..]));
        }
        assert_eq!(step(moving, Event::Killed).unwrap().0, after);
    }
}

#[test]
fn terminated_is_final() {
    for event in EVENTS {
        if let Ok((next, effects)) = step(Phase::Terminated, event) {
            assert_eq!((next, effects), (Phase::Terminated, &[][..]));
        }
    }
}

/// A sandbox as the effects leave it: what a real one would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Processes {
    None,
    Running,
    Frozen,
}

/// A sandbox, its image and its disk, and how often memory was lost without anybody asking for it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) phase: Phase,
    processes: Processes,
    image: bool,
    disk: bool,
    /// Bumped whenever processes end that are in no image.
    memory_lost: u32,
    starts: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Creating, processes: Processes::None, image: false, disk: true, memory_lost: 0, starts: 0 }
    }

    /// Runs one effect; `works` says whether it succeeds where it may fail.
    fn run(&mut self, effect: Effect, works: bool) -> Option<Event> {
        match effect {
            Effect::MakeDisk | Effect::ReplaceDisk | Effect::Shutdown => None,
            Effect::Start => {
                assert_eq!(self.processes, Processes::None, "started while it is there: {:?}", self.phase);
                assert!(self.disk);
                self.starts += 1;
                if works {
                    self.processes = Processes::Running;
                }
                Some(if works { Event::Started } else { Event::StartFailed })
            }
            Effect::Adopt => {
                Some(if self.processes == Processes::Running && works { Event::Started } else { Event::StartFailed })
            }
            Effect::Freeze => {
                assert_ne!(self.processes, Processes::None);
                if works {
                    self.processes = Processes::Frozen;
                }
                Some(if works { Event::Frozen } else { Event::NotSaved })
            }
            Effect::Save => {
                assert_ne!(self.processes, Processes::None);
                self.processes = Processes::Frozen;
                self.image |= works;
                Some(if works { Event::Saved } else { Event::NotSaved })
            }
            Effect::Thaw => {
                assert_ne!(self.processes, Processes::None, "thawed what is not there: {:?}", self.phase);
                if works {
                    self.processes = Processes::Running;
                }
                Some(if works { Event::Started } else { Event::StartFailed })
            }
            Effect::Configure => {
                assert_ne!(self.processes, Processes::None, "took what is not there: {:?}", self.phase);
                if works {
                    self.processes = Processes::Running;
                }
                Some(if works { Event::Started } else { Event::NotConfigured })
            }
            Effect::DropImage => {
                assert!(
                    self.processes != Processes::None
                        || !self.image
                        || matches!(self.phase, Phase::Suspending { .. } | Phase::Moving { .. }),
                    "the only copy of its memory was dropped in {}",
                    self.phase
                );
                self.image = false;
                None
            }
            Effect::Kill => {
                if self.processes != Processes::None && !self.image {
                    self.memory_lost += 1;
                }
                self.processes = Processes::None;
                Some(Event::Killed)
            }
            Effect::Release => {
                assert_eq!(self.processes, Processes::None, "released before it was killed");
                self.disk = false;
                self.image = false;
                Some(Event::Released)
            }
        }
    }

    /// Runs effects and what follows from them until it is settled, as the actor does.
    pub(crate) fn settle(&mut self, mut effects: &'static [Effect], works: &mut impl FnMut() -> bool) {
        for _ in 0..20 {
            let mut outcome = None;
            for effect in effects {
                outcome = self.run(*effect, works());
            }
            let Some(event) = outcome else { return };
            let (phase, next) = step(self.phase, event).expect("an outcome of our own effects makes sense");
            self.phase = phase;
            effects = next;
        }
        panic!("does not settle: {self:?}");
    }

    pub(crate) fn ask(&mut self, event: Event, works: &mut impl FnMut() -> bool) {
        if event == Event::Gone {
            if self.processes == Processes::None {
                return;
            }
            self.processes = Processes::None;
        }
        if let Ok((phase, effects)) = step(self.phase, event) {
            self.phase = phase;
            self.settle(effects, works);
        }
    }

    /// What a new daemon would see of it.
    pub(crate) fn seen(&self) -> Seen {
        match self.processes {
            Processes::None => Seen::Absent,
            Processes::Running => Seen::Running,
            Processes::Frozen => Seen::Frozen,
        }
    }

    /// What must hold whenever nothing is going on.
    pub(crate) fn check(&self) {
        match self.phase {
            Phase::Active => assert_eq!(self.processes, Processes::Running),
            Phase::Suspended(Level::Ram) => assert_eq!(self.processes, Processes::Frozen),
            Phase::Suspended(Level::Disk) => {
                assert!(self.image && self.processes == Processes::None, "{self:?}");
            }
            Phase::Suspended(Level::Files) => assert_eq!(self.processes, Processes::None),
            Phase::Terminated => assert!(!self.disk && self.processes == Processes::None),
            other => panic!("not settled: {other}"),
        }
        assert!(self.disk || self.phase == Phase::Terminated);
        // Memory of another moment would come back on the disk of this one.
        assert!(!self.image || self.phase == Phase::Suspended(Level::Disk), "{self:?}");
    }
}

#[test]
fn a_moment_whose_memory_does_not_come_back_leaves_no_image_of_another() {
    let mut world = World::new();
    world.settle(&[Effect::MakeDisk, Effect::Start], &mut || true);
    world.ask(Event::SuspendRequested(Level::Disk), &mut || true);
    // Killed, its disk replaced, and not started.
    let mut outcomes = [true, true, false].into_iter();
    world.ask(Event::RestoreRequested, &mut || outcomes.next().unwrap_or(true));
    assert_eq!(world.phase, Phase::Suspended(Level::Files));
    world.check();
}

proptest! {
    #[test]
    fn lives_settle_and_lose_nothing_unasked(
        requests in proptest::collection::vec((0usize..9, any::<u8>()), 1..60)
    ) {
        let mut world = World::new();
        world.settle(&[Effect::MakeDisk, Effect::Start], &mut || true);
        for (choice, luck) in requests {
            let mut bits = u32::from(luck) | 0xff00;
            let mut works = || { bits = bits.rotate_right(1); bits & 0x8000_0000 == 0 || bits & 0x80 != 0 };
            let event = REQUESTS.get(choice).copied().unwrap_or(Event::Gone);
            let asked_for_loss = matches!(
                event,
                Event::SuspendRequested(Level::Files)
                    | Event::RestoreRequested
                    | Event::MoveRequested(_)
                    | Event::TerminateRequested
                    | Event::TakeRequested
                    | Event::Gone
            );
            let before = world.memory_lost;
            world.ask(event, &mut works);
            world.check();
            prop_assert!(world.memory_lost == before || asked_for_loss, "{:?} lost memory: {:?}", event, world);
        }
    }

    #[test]
    fn a_crash_at_any_step_is_recovered_from(
        requests in proptest::collection::vec(0usize..8, 1..20),
        stop_after in 0usize..6,
        last in 0usize..8,
    ) {
        let mut world = World::new();
        world.settle(&[Effect::MakeDisk, Effect::Start], &mut || true);
        for choice in requests {
            world.ask(REQUESTS[choice], &mut || true);
        }
        // The last request is cut off after some of its effects; the phase was stored before each of them.
        let Ok((phase, mut effects)) = step(world.phase, REQUESTS[last]) else { return Ok(()) };
        let was = world.phase;
        world.phase = phase;
        let mut left = stop_after;
        'cut: loop {
            let mut outcome = None;
            for effect in effects {
                if left == 0 { break 'cut }
                left -= 1;
                outcome = world.run(*effect, true);
            }
            let Some(event) = outcome else { break };
            if left == 0 { break }
            (world.phase, effects) = step(world.phase, event).expect("makes sense");
        }
        let lost = world.memory_lost;
        // As a new daemon does: an image that it does not sleep in is of an earlier moment.
        world.image &= world.phase.is_in_image() || world.phase == Phase::Restoring;
        let (phase, effects) = recover(world.phase, world.seen());
        world.phase = phase;
        world.settle(effects, &mut || true);
        world.check();
        let may_lose = matches!(
            REQUESTS[last],
            Event::SuspendRequested(Level::Files)
                | Event::RestoreRequested
                | Event::MoveRequested(_)
                | Event::TerminateRequested
                | Event::TakeRequested
        );
        prop_assert!(world.memory_lost == lost || may_lose, "from {}: {:?}", was, world);
    }

    #[test]
    fn a_wake_in_any_living_phase_leads_to_active(wakes in 1usize..100) {
        for start in all().into_iter().filter(|phase| !phase.is_ending()) {
            let mut phase = start;
            let mut starts = 0u32;
            let mut settle = |phase: &mut Phase, event| {
                if let Ok((next, effects)) = step(*phase, event) {
                    *phase = next;
                    starts += u32::try_from(
                        effects.iter().filter(|e| matches!(e, Effect::Start | Effect::Thaw)).count()
                    ).unwrap_or(99);
                }
            };
            for _ in 0..wakes { settle(&mut phase, Event::WakeRequested); }
            for event in [Event::Frozen, Event::Saved, Event::Killed, Event::Started] {
                if phase != Phase::Active { settle(&mut phase, event); }
            }
            prop_assert_eq!(phase, Phase::Active, "from {}", start);
            prop_assert!(starts <= 1, "{} starts from {}", starts, start);
        }
    }
}
