//! How deep a sandbox sleeps after a while, and what its time is counted as.

use jiff::{SignedDuration, Timestamp};
use roost_model::{IdlePolicy, Level, Spent};

use crate::Phase;

/// What could not be saved is not tried again for so long, unless it was awake in between.
const TRY_AGAIN: SignedDuration = SignedDuration::from_hours(1);

/// When the memory of a sandbox that sleeps in RAM shall go to disk; never, if its policy says so.
pub fn deepens_at(policy: &IdlePolicy, asleep_since: Timestamp, not_saved: Option<Timestamp>) -> Option<Timestamp> {
    let wait = SignedDuration::try_from(policy.deepen_after.get()?).ok()?;
    let due = asleep_since.checked_add(wait).ok()?;
    match not_saved {
        Some(tried) => Some(due.max(may_save_again(tried))),
        None => Some(due),
    }
}

/// When a sandbox whose memory could not be saved may be tried again.
pub fn may_save_again(tried: Timestamp) -> Timestamp {
    tried.checked_add(TRY_AGAIN).unwrap_or(Timestamp::MAX)
}

/// Adds the time that a sandbox spent in a phase to what it has spent. A clock that was set back adds nothing.
pub fn spend(spent: &mut Spent, phase: Phase, since: Timestamp, until: Timestamp) {
    let time = u64::try_from(until.duration_since(since).as_millis()).unwrap_or(0);
    let place = match phase {
        Phase::Suspended(Level::Ram) | Phase::Deepening { .. } => &mut spent.ram_ms,
        Phase::Suspended(Level::Disk) => &mut spent.disk_ms,
        Phase::Suspended(Level::Files) => &mut spent.files_ms,
        // On its way down or up it is still, or already, at somebody's service.
        Phase::Creating
        | Phase::Active
        | Phase::Suspending { .. }
        | Phase::Resuming(_)
        | Phase::Restoring
        | Phase::Moving { .. } => &mut spent.active_ms,
        Phase::Terminating | Phase::Releasing | Phase::Terminated => return,
    };
    *place = place.saturating_add(time);
}

#[cfg(test)]
mod tests {
    use roost_model::Span;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn memory_goes_to_disk_after_its_time_in_ram() {
        let policy = IdlePolicy::default();
        assert_eq!(deepens_at(&policy, at(1000), None), Some(at(1600)));
        // What could not be saved is left alone for an hour.
        assert_eq!(deepens_at(&policy, at(1000), Some(at(1600))), Some(at(5200)));
        assert_eq!(deepens_at(&policy, at(1000), Some(at(0))), Some(at(3600)));
        let never = IdlePolicy { deepen_after: Span::NEVER, ..policy };
        assert_eq!(deepens_at(&never, at(1000), None), None);
    }

    #[test]
    fn every_phase_of_a_life_is_counted_once() {
        let mut spent = Spent::default();
        for (phase, seconds) in [
            (Phase::Creating, 1),
            (Phase::Active, 2),
            (Phase::Suspending { level: Level::Ram, wake_after: false }, 4),
            (Phase::Suspended(Level::Ram), 8),
            (Phase::Deepening { wake_after: false }, 16),
            (Phase::Suspended(Level::Disk), 32),
            (Phase::Suspended(Level::Files), 64),
            (Phase::Resuming(Level::Disk), 128),
            (Phase::Terminating, 256),
        ] {
            spend(&mut spent, phase, at(0), at(seconds));
        }
        let expected =
            Spent { active_ms: 135_000, ram_ms: 24_000, disk_ms: 32_000, files_ms: 64_000, ..Spent::default() };
        assert_eq!(spent, expected);
        spend(&mut spent, Phase::Active, at(10), at(5));
        assert_eq!(spent, expected);
    }
}
