//! What to do with a sandbox that a new daemon finds in the store.

use roost_model::Level;

use crate::{Effect, Phase, Step};

/// What the world says about a sandbox's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// There are none.
    Absent,
    /// They run.
    Running,
    /// They stand still with their memory in RAM.
    Frozen,
}

/// Carries a sandbox from the phase in which the last daemon left it to a settled one.
///
/// An active sandbox that still runs is adopted as it is; one that is frozen was in the middle of a checkpoint and goes
/// on. What was being started is killed first: nobody can have used it yet, because `Active` is persisted before anything is
/// served. What was being woken may already have written to its disk, so it is adopted if its guest answers.
pub fn recover(phase: Phase, seen: Seen) -> Step {
    use {Effect as X, Level as L, Phase as P, Seen as S};
    let down = |level| P::Suspending { level, wake_after: false };
    match (phase, seen) {
        (P::Creating, _) => (P::Creating, &[X::Kill, X::MakeDisk, X::Start]),

        (P::Active, S::Running) => (P::Active, &[]),
        (P::Active, S::Frozen) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Active, S::Absent) => (down(L::Files), &[X::Kill]),

        // Not committed: it is still there, so it goes on as it was.
        (P::Suspending { level: L::Ram | L::Disk, .. }, S::Running | S::Frozen) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Suspending { level: L::Ram | L::Disk, .. }, S::Absent) => (down(L::Files), &[X::Kill]),
        (P::Suspending { level: L::Files, .. }, _) => (down(L::Files), &[X::Kill]),

        (P::Suspended(L::Ram) | P::Deepening { .. }, S::Frozen) => (P::Suspended(L::Ram), &[]),
        (P::Suspended(L::Ram) | P::Deepening { .. }, S::Running) => (down(L::Ram), &[X::Freeze]),
        (P::Suspended(L::Ram) | P::Deepening { .. }, S::Absent) => (down(L::Files), &[X::Kill]),
        // Committed: what is left of its processes is only what had not been killed yet.
        (P::Suspended(L::Disk | L::Files), S::Absent) => (phase, &[]),
        (P::Suspended(L::Disk | L::Files), _) => (phase, &[X::Kill]),

        (P::Resuming(L::Ram), S::Running | S::Frozen) => (P::Resuming(L::Ram), &[X::Thaw]),
        (P::Resuming(L::Ram), S::Absent) => (down(L::Files), &[X::Kill]),
        (P::Resuming(L::Disk | L::Files), S::Running) => (phase, &[X::Adopt]),
        (P::Resuming(level), _) => (P::Suspended(level), &[X::Kill]),
        (P::Restoring, _) => (P::Restoring, &[X::Kill]),
        // Decided: what is left of it on the old engine ends, and the move goes on.
        (P::Moving { .. }, _) => (phase, &[X::Kill]),

        (P::Terminating, _) => (P::Terminating, &[X::Kill]),
        (P::Releasing, _) => (P::Releasing, &[X::Release]),
        (P::Terminated, _) => (P::Terminated, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_adopted_untouched() {
        assert_eq!(recover(Phase::Active, Seen::Running), (Phase::Active, &[][..]));
        assert_eq!(recover(Phase::Suspended(Level::Ram), Seen::Frozen), (Phase::Suspended(Level::Ram), &[][..]));
    }

    #[test]
    fn a_wake_that_failed_sleeps_on_in_its_image_however_many_daemons_die() {
        let resuming = Phase::Resuming(Level::Disk);
        for (phase, effects) in
            [crate::step(resuming, crate::Event::StartFailed).unwrap(), recover(resuming, Seen::Absent)]
        {
            assert_eq!((phase, effects), (Phase::Suspended(Level::Disk), &[Effect::Kill][..]));
            // And the next one, whatever it finds.
            for seen in [Seen::Absent, Seen::Running, Seen::Frozen] {
                assert_eq!(recover(phase, seen).0, Phase::Suspended(Level::Disk));
            }
        }
    }

    #[test]
    fn a_checkpoint_that_was_cut_off_lets_its_sandbox_go_on() {
        assert_eq!(recover(Phase::Active, Seen::Frozen).1, &[Effect::Thaw]);
    }
}
