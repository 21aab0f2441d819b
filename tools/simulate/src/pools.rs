//! What the bounds of a pool cost: sandboxes that wait for nobody, against creates that find none.

use std::time::Duration;

use roost_lifecycle::pool::{Bounds, Demand, Need, need};

use crate::random::Random;
use crate::trace::{DAY, HOUR, MINUTE, SECOND};

/// Milliseconds that one more takes, while nobody creates.
const MAKE: u64 = 40;
/// How often targets are looked at while nobody asks.
const LOOK: u64 = 2 * SECOND;

/// What bounds were like.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PoolCosts {
    /// Creates.
    pub asked: u64,
    /// Those that found none.
    pub missed: u64,
    /// Milliseconds that sandboxes waited, all together.
    pub waited: u64,
    /// How long the trace is.
    pub length: u64,
}

impl PoolCosts {
    /// Percent of creates that found none.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub fn misses(&self) -> f64 {
        100.0 * self.missed as f64 / self.asked.max(1) as f64
    }

    /// How many waited on average.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a few days")]
    pub fn waiting(&self) -> f64 {
        self.waited as f64 / self.length.max(1) as f64
    }
}

/// The bounds that are compared.
pub const BOUNDS: [Bounds; 7] = [
    Bounds { min: 0, max: 0 },
    Bounds { min: 0, max: 8 },
    Bounds { min: 1, max: 8 },
    Bounds { min: 2, max: 8 },
    Bounds { min: 2, max: 32 },
    Bounds { min: 8, max: 32 },
    Bounds { min: 32, max: 32 },
];

/// Moments at which somebody creates one: single ones by the day's rhythm, sessions of a few a minute, and now and then
/// thirty at once.
pub fn creates(days: u64, seed: u64) -> Vec<u64> {
    let mut random = Random::of(seed, 0);
    let (mut now, mut moments) = (0, Vec::new());
    while now < days * DAY {
        let hour = now / HOUR % 24;
        now += random.until_next(if (8..20).contains(&hour) { 4 * MINUTE } else { 30 * MINUTE });
        let mut at = now;
        let (count, apart) = match random.below(100) {
            0..80 => (1, 0),
            80..97 => (random.between(5, 30), 8 * SECOND),
            _ => (30, 20),
        };
        for _ in 0..count {
            moments.push(at);
            at += random.until_next(apart);
        }
    }
    moments.sort_unstable();
    moments
}

/// Judges bounds on a trace of creates.
pub fn judge(bounds: Bounds, creates: &[u64]) -> PoolCosts {
    let (mut demand, mut ready, mut now) = (Demand::default(), 0usize, 0u64);
    let mut costs = PoolCosts { length: creates.last().copied().unwrap_or(0), ..PoolCosts::default() };
    let mut pass = |demand: &Demand, ready: &mut usize, until: u64| {
        while now < until {
            let target = demand.target(bounds, Duration::from_millis(now));
            let (wait, change) = match need(target, *ready, 0) {
                Need::More => (MAKE, 1),
                Need::Less => (1, -1),
                // Nothing changes by itself while nobody asks, once the least is reached.
                Need::Nothing if target == bounds.min => (until - now, 0),
                Need::Nothing => (LOOK, 0),
            };
            let next = (now + wait).min(until);
            costs.waited += (next - now) * *ready as u64;
            // What is not finished when somebody comes is begun again, behind him.
            if next == now + wait {
                *ready = ready.saturating_add_signed(change);
            }
            now = next;
        }
    };
    let (mut asked, mut missed) = (0, 0);
    for at in creates {
        pass(&demand, &mut ready, *at);
        demand.asked(Duration::from_millis(*at));
        asked += 1;
        match ready {
            0 => missed += 1,
            _ => ready -= 1,
        }
    }
    PoolCosts { asked, missed, ..costs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wider_bounds_miss_less_and_wait_more() {
        let creates = creates(3, 1);
        let of = |min, max| judge(Bounds { min, max }, &creates);
        assert_eq!(of(0, 0).missed, of(0, 0).asked);
        assert_eq!(of(0, 0).waited, 0);
        for (narrow, wide) in [((0, 8), (2, 8)), ((2, 8), (2, 32)), ((2, 32), (32, 32))] {
            let (narrow, wide) = (of(narrow.0, narrow.1), of(wide.0, wide.1));
            assert!(wide.missed <= narrow.missed, "{narrow:?} {wide:?}");
            assert!(wide.waited > narrow.waited, "{narrow:?} {wide:?}");
        }
    }
}
