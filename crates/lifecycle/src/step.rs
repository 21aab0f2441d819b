//! The one function that decides what happens next.

use roost_model::Level;

use crate::Phase;

/// What happened, or what is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Somebody needs it awake.
    WakeRequested,
    /// Its processes shall end and its files stay.
    StopRequested,
    /// It shall be no more.
    TerminateRequested,
    /// The engine has started it and its guest answers.
    Started,
    /// The engine could not start it; it has cleaned up after itself.
    StartFailed,
    /// Its processes ended by themselves.
    Gone,
    /// The engine says that no process of it is left.
    Killed,
    /// Its disk and network have been given back.
    Released,
}

/// Work that follows from a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Make its disk, unless it has one.
    MakeDisk,
    /// Start it and wait for its guest; answers [`Event::Started`] or [`Event::StartFailed`].
    Start,
    /// Ask its guest to end everything in good order; failure does not matter, a kill follows.
    Shutdown,
    /// End every process of it and unplug its network; answers [`Event::Killed`].
    Kill,
    /// Give its disk and network slot back; answers [`Event::Released`].
    Release,
}

/// An event that makes no sense in a phase; nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The phase it is in.
    pub phase: Phase,
    /// What was asked.
    pub event: Event,
}

/// The next phase and the work it calls for.
pub type Step = (Phase, &'static [Effect]);

/// Decides the next phase and the work it calls for. Does no I/O.
pub fn step(phase: Phase, event: Event) -> Result<Step, Refused> {
    use {Effect as X, Event as E, Phase as P};
    let down = |wake_after| P::Suspending { level: Level::Files, wake_after };
    Ok(match (phase, event) {
        // The end comes first: it is possible from everywhere and nothing leads back.
        (P::Terminating | P::Releasing | P::Terminated, E::TerminateRequested) => (phase, &[]),
        (_, E::TerminateRequested) => (P::Terminating, &[X::Kill]),
        (P::Terminating, E::Killed) => (P::Releasing, &[X::Release]),
        (P::Releasing, E::Released) => (P::Terminated, &[]),
        // What still arrives about a sandbox that is ending changes nothing.
        (P::Terminating | P::Releasing, E::Started | E::StartFailed | E::Gone | E::Killed) => (phase, &[]),

        (P::Creating | P::Resuming(_), E::Started) => (P::Active, &[]),
        (P::Creating, E::StartFailed) => (P::Terminating, &[X::Kill]),
        (P::Creating | P::Resuming(_), E::WakeRequested) => (phase, &[]),
        (P::Resuming(_), E::StartFailed) => (down(false), &[X::Kill]),

        (P::Active, E::WakeRequested) => (P::Active, &[]),
        (P::Active, E::StopRequested) => (down(false), &[X::Shutdown, X::Kill]),
        (P::Active, E::Gone) => (down(false), &[X::Kill]),

        (P::Suspending { level, .. }, E::WakeRequested) => (P::Suspending { level, wake_after: true }, &[]),
        (P::Suspending { .. }, E::StopRequested | E::Gone) => (phase, &[]),
        (P::Suspending { level, wake_after: true }, E::Killed) => (P::Resuming(level), &[X::Start]),
        (P::Suspending { level, wake_after: false }, E::Killed) => (P::Suspended(level), &[]),

        (P::Suspended(level), E::WakeRequested) => (P::Resuming(level), &[X::Start]),
        (P::Suspended(_), E::StopRequested | E::Gone) => (phase, &[]),

        _ => return Err(Refused { phase, event }),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::phase::all;

    const EVENTS: [Event; 8] = [
        Event::WakeRequested,
        Event::StopRequested,
        Event::TerminateRequested,
        Event::Started,
        Event::StartFailed,
        Event::Gone,
        Event::Killed,
        Event::Released,
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

    #[test]
    fn terminated_is_final() {
        for event in EVENTS {
            if let Ok((next, effects)) = step(Phase::Terminated, event) {
                assert_eq!((next, effects), (Phase::Terminated, &[][..]));
            }
        }
    }

    #[test]
    fn a_start_that_fails_at_birth_ends_it() {
        assert_eq!(step(Phase::Creating, Event::StartFailed), Ok((Phase::Terminating, &[Effect::Kill][..])));
    }

    /// The world as the effects leave it, to check what the core may never do to it.
    #[derive(Debug, Default)]
    struct World {
        processes: bool,
        starts_in_flight: u32,
        disk: bool,
    }

    proptest! {
        #[test]
        fn resources_go_only_after_a_kill_and_wakes_are_single_flight(
            choices in proptest::collection::vec((0usize..8, any::<bool>()), 1..200)
        ) {
            let mut phase = Phase::Creating;
            let mut world = World { processes: false, starts_in_flight: 1, disk: true };
            let mut killing = 0u32;
            let mut releasing = false;
            for (choice, succeeds) in choices {
                let event = EVENTS[choice];
                // Only outcomes of effects that run can come back.
                match event {
                    Event::Started | Event::StartFailed => {
                        if world.starts_in_flight == 0 || (event == Event::Started) != succeeds { continue }
                        world.starts_in_flight -= 1;
                        world.processes = event == Event::Started;
                    }
                    Event::Killed => {
                        // An actor runs its effects in order: a kill is answered after a start that was before it.
                        if killing == 0 || world.starts_in_flight > 0 { continue }
                        killing -= 1;
                        world.processes = false;
                    }
                    Event::Gone => {
                        if !world.processes { continue }
                        world.processes = false;
                    }
                    Event::Released => {
                        if !releasing { continue }
                        releasing = false;
                        world.disk = false;
                    }
                    _ => {}
                }
                let before = phase;
                let Ok((next, effects)) = step(phase, event) else { continue };
                phase = next;
                for effect in effects {
                    match effect {
                        Effect::Start => {
                            prop_assert_eq!(world.starts_in_flight, 0, "two starts at once: {} {:?}", before, event);
                            prop_assert!(!world.processes, "started while it runs: {} {:?}", before, event);
                            world.starts_in_flight += 1;
                        }
                        Effect::Kill => killing += 1,
                        Effect::Release => {
                            prop_assert!(!world.processes, "released before it was killed");
                            prop_assert_eq!(world.starts_in_flight, 0);
                            releasing = true;
                        }
                        Effect::MakeDisk | Effect::Shutdown => {}
                    }
                }
                prop_assert!(world.disk || matches!(phase, Phase::Terminated), "its disk is gone in {}", phase);
                if phase == Phase::Active { prop_assert!(world.disk); }
            }
        }

        #[test]
        fn a_wake_in_any_living_phase_leads_to_active(wakes in 1usize..100) {
            for start in all().into_iter().filter(|phase| !phase.is_ending()) {
                let mut phase = start;
                let mut starts = u32::from(matches!(start, Phase::Creating | Phase::Resuming(_)));
                let mut settle = |phase: &mut Phase, event| {
                    if let Ok((next, effects)) = step(*phase, event) {
                        *phase = next;
                        starts += u32::try_from(effects.iter().filter(|e| **e == Effect::Start).count()).unwrap_or(99);
                    }
                };
                for _ in 0..wakes { settle(&mut phase, Event::WakeRequested); }
                if matches!(phase, Phase::Suspending { .. }) { settle(&mut phase, Event::Killed); }
                settle(&mut phase, Event::Started);
                prop_assert_eq!(phase, Phase::Active, "from {}", start);
                prop_assert!(starts <= 1, "{} starts from {}", starts, start);
            }
        }
    }
}
