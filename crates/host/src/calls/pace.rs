//! How fast calls of one sandbox are taken.

use std::time::{Duration, Instant};

/// Calls that may come at once.
const BURST: u32 = 20;
/// After these, one in so much time.
const INTERVAL: Duration = Duration::from_millis(200);

/// Lets a burst through and then a steady trickle. What comes faster waits inside.
#[derive(Debug)]
pub(super) struct Pace {
    /// The moment up to which the time is spent; calls are free while it lies far enough back.
    spent: Instant,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { spent: now.checked_sub(INTERVAL * BURST).unwrap_or(now) }
    }

    /// How long to wait before the next call is taken.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        (self.spent + INTERVAL).saturating_duration_since(now)
    }

    /// Notes that one was taken.
    pub(super) fn spend(&mut self, now: Instant) {
        let earliest = now.checked_sub(INTERVAL * BURST).unwrap_or(self.spent);
        self.spent = self.spent.max(earliest) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_a_trickle() {
        let start = Instant::now() + Duration::from_secs(3600);
        let mut pace = Pace::new(start);
        let mut now = start;
        for _ in 0..BURST {
            assert_eq!(pace.wait(now), Duration::ZERO);
            pace.spend(now);
        }
        let mut taken = 0;
        while now < start + Duration::from_secs(10) {
            now += pace.wait(now);
            pace.spend(now);
            taken += 1;
        }
        assert_eq!(taken, 50);
        // Rest is paid back, but no more than a burst.
        now += Duration::from_secs(3600);
        let free = std::iter::repeat_with(|| {
            let free = pace.wait(now).is_zero();
            pace.spend(now);
            free
        });
        assert_eq!(free.take_while(|free| *free).count(), BURST as usize);
    }
}
