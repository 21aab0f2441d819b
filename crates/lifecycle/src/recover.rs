//! What to do with a sandbox that a new daemon finds in the store.

use roost_model::Level;

use crate::{Effect, Phase, Step};

/// What the world says about a sandbox's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// There are none.
    Absent,
    /// They run, or are frozen, and the guest can be asked.
    Present,
}

/// Carries a sandbox from the phase in which the last daemon left it to a settled one.
///
/// An active sandbox that still runs is adopted as it is. What was being started is killed first: nobody can have used it
/// yet, because `Active` is persisted before anything is served.
pub fn recover(phase: Phase, seen: Seen) -> Step {
    use {Effect as X, Phase as P};
    match (phase, seen) {
        (P::Creating, _) => (P::Creating, &[X::Kill, X::MakeDisk, X::Start]),
        (P::Active, Seen::Present) => (P::Active, &[]),
        (P::Active, Seen::Absent) => (P::Suspending { level: Level::Files, wake_after: false }, &[X::Kill]),
        (P::Suspending { level, .. } | P::Resuming(level), _) => {
            (P::Suspending { level, wake_after: false }, &[X::Kill])
        }
        (P::Suspended(_), Seen::Absent) => (phase, &[]),
        (P::Suspended(level), Seen::Present) => (P::Suspending { level, wake_after: false }, &[X::Kill]),
        (P::Terminating, _) => (P::Terminating, &[X::Kill]),
        (P::Releasing, _) => (P::Releasing, &[X::Release]),
        (P::Terminated, _) => (P::Terminated, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, phase::all, step};

    /// Runs the effects of a recovery in a world where everything works, until nothing is left to do.
    fn settle(phase: Phase, seen: Seen) -> Phase {
        let (mut phase, mut effects) = recover(phase, seen);
        for _ in 0..10 {
            let Some(last) = effects.last() else { return phase };
            let event = match last {
                Effect::Start => Event::Started,
                Effect::Kill => Event::Killed,
                Effect::Release => Event::Released,
                Effect::MakeDisk | Effect::Shutdown => unreachable!("answers nothing"),
            };
            (phase, effects) = step(phase, event).unwrap();
        }
        panic!("does not settle");
    }

    #[test]
    fn every_phase_settles_and_no_living_sandbox_is_lost() {
        for phase in all() {
            for seen in [Seen::Absent, Seen::Present] {
                let settled = settle(phase, seen);
                assert!(
                    matches!(settled, Phase::Active | Phase::Suspended(_) | Phase::Terminated),
                    "{phase}: {settled}"
                );
                assert_eq!(settled == Phase::Terminated, phase.is_ending(), "{phase}");
            }
        }
    }

    #[test]
    fn what_runs_is_adopted_untouched() {
        assert_eq!(recover(Phase::Active, Seen::Present), (Phase::Active, &[][..]));
    }
}
