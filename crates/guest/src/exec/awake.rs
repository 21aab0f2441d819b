//! Time as a process lives it: it stands still while the sandbox sleeps.
//!
//! No clock of the kernel does that for us. One that is frozen in memory sees the monotonic clock jump ahead, one that is
//! restored from an image may see it jump anywhere. So time is counted in steps: whoever waits for a moment does so in
//! slices of at most [`TICK`], and a slice that took much longer than it was asked for was slept through.

use std::time::{Duration, Instant};

/// The longest slice. What a sleep can falsify is less than this.
const TICK: Duration = Duration::from_secs(1);
/// How late a busy machine may let a slice end before that is taken for sleep.
const LATE: Duration = Duration::from_millis(500);

/// A stopwatch for time awake.
#[derive(Debug)]
pub(crate) struct Awake {
    elapsed: Duration,
    seen: Instant,
    /// How long was to be waited since `seen`, if there was a limit.
    slice: Option<Duration>,
}

impl Awake {
    pub(crate) fn new(now: Instant) -> Self {
        Self { elapsed: Duration::ZERO, seen: now, slice: None }
    }

    /// Counts the time since the last look and returns all of it.
    pub(crate) fn look(&mut self, now: Instant) -> Duration {
        let step = now.saturating_duration_since(self.seen);
        self.seen = now;
        self.elapsed += match self.slice.take() {
            // When in the slice it fell asleep is unknown. Never nothing, so that time runs out on a starved machine too.
            Some(slice) if step > slice + LATE => slice / 2,
            _ => step,
        };
        self.elapsed
    }

    /// How long to wait at most before the next look, for a moment that is `left` away.
    pub(crate) fn slice(&mut self, left: Duration) -> Duration {
        let slice = left.min(TICK);
        self.slice = Some(slice);
        slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn time_awake_counts_in_full() {
        let start = Instant::now();
        let mut awake = Awake::new(start);
        assert_eq!(awake.slice(seconds(10.0)), TICK);
        assert_eq!(awake.look(start + seconds(1.2)), seconds(1.2));
        assert_eq!(awake.slice(seconds(0.25)), seconds(0.25));
        assert_eq!(awake.look(start + seconds(1.3)), seconds(1.3));
        // Without a limit a long wait is only that.
        assert_eq!(awake.look(start + seconds(100.0)), seconds(100.0));
    }

    #[test]
    fn time_asleep_does_not_count() {
        let start = Instant::now();
        let mut awake = Awake::new(start);
        awake.slice(seconds(10.0));
        assert_eq!(awake.look(start + seconds(86_400.0)), TICK / 2);
        // Another machine, whose clock began later.
        awake.slice(seconds(10.0));
        assert_eq!(awake.look(start), TICK / 2);
        awake.slice(seconds(10.0));
        assert_eq!(awake.look(start + seconds(0.5)), TICK);
    }

    #[test]
    fn time_runs_out_even_if_every_slice_ends_late() {
        let limit = seconds(3.0);
        let (mut awake, mut now, mut looks) = (Awake::new(Instant::now()), Instant::now(), 0);
        while awake.look(now) + Duration::from_millis(1) < limit {
            let left = limit - awake.elapsed;
            now += awake.slice(left) + seconds(2.0);
            looks += 1;
            assert!(looks < 100);
        }
    }
}
