//! How many sandboxes of a template wait ahead of time.

use std::time::Duration;

/// How long a take is remembered: after this time it counts a third.
const MEMORY: Duration = Duration::from_secs(60);

/// How few and how many may wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// As many always wait.
    pub min: u32,
    /// More never wait.
    pub max: u32,
}

/// How much a pool was asked for lately. Moments are times since any fixed one.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Demand {
    takes: f64,
    at: Duration,
}

/// What a pool needs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// One more.
    More,
    /// One less.
    Less,
    /// Nothing.
    Nothing,
}

impl Demand {
    /// Somebody took one, or would have if there had been one.
    pub fn asked(&mut self, now: Duration) {
        self.takes = self.recent(now) + 1.0;
        self.at = self.at.max(now);
    }

    /// About how many were asked for in the last minute; older ones count less and less.
    pub fn recent(&self, now: Duration) -> f64 {
        let age = now.saturating_sub(self.at);
        self.takes * (-age.as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }

    /// As many as the last minute asked for should wait for the next, within the bounds.
    pub fn target(&self, bounds: Bounds, now: Duration) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
        let wanted = self.recent(now).round() as u32;
        wanted.max(bounds.min).min(bounds.max)
    }
}

/// What brings a pool nearer to its target.
pub fn need(target: u32, ready: usize, coming: usize) -> Need {
    let target = usize::try_from(target).unwrap_or(usize::MAX);
    match ready {
        _ if ready + coming < target => Need::More,
        _ if ready > target => Need::Less,
        _ => Need::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(moments: &[u64]) -> Demand {
        let mut demand = Demand::default();
        for moment in moments {
            demand.asked(Duration::from_millis(*moment));
        }
        demand
    }

    fn bounds() -> impl Strategy<Value = Bounds> {
        (0..50u32, 0..50u32).prop_map(|(min, more)| Bounds { min, max: min + more })
    }

    #[test]
    fn a_take_is_remembered_for_a_while() {
        let (demand, bounds) = (after(&[0, 10, 20]), Bounds { min: 1, max: 10 });
        assert_eq!(demand.target(bounds, Duration::from_secs(1)), 3);
        assert_eq!(demand.target(bounds, Duration::from_secs(60)), 1);
        assert_eq!(demand.target(Bounds { min: 0, max: 10 }, Duration::from_secs(300)), 0);
        assert_eq!(demand.target(Bounds { min: 0, max: 2 }, Duration::from_secs(1)), 2);
    }

    proptest! {
        #[test]
        fn the_target_keeps_its_bounds(
            moments in prop::collection::vec(0..10_000_000u64, 0..200), bounds in bounds(), now in 0..10_000_000u64,
        ) {
            let target = after(&moments).target(bounds, Duration::from_millis(now));
            prop_assert!((bounds.min..=bounds.max).contains(&target));
        }

        #[test]
        fn one_more_take_never_lowers_it(
            mut moments in prop::collection::vec(0..1_000_000u64, 0..50), bounds in bounds(), later in 0..100_000u64,
        ) {
            moments.sort_unstable();
            let last = moments.last().copied().unwrap_or(0);
            let now = Duration::from_millis(last + later);
            let before = after(&moments);
            moments.push(last);
            prop_assert!(after(&moments).target(bounds, now) >= before.target(bounds, now));
        }

        #[test]
        fn without_takes_it_only_falls_and_ends_at_the_least(
            moments in prop::collection::vec(0..1_000u64, 0..100), bounds in bounds(), steps in prop::collection::vec(0..60_000u64, 1..20),
        ) {
            let demand = after(&moments);
            let mut now = Duration::from_secs(1);
            let mut last = demand.target(bounds, now);
            for step in steps {
                now += Duration::from_millis(step);
                let target = demand.target(bounds, now);
                prop_assert!(target <= last);
                last = target;
            }
            prop_assert_eq!(demand.target(bounds, now + Duration::from_secs(3600)), bounds.min);
        }

        #[test]
        fn needs_lead_to_the_target_and_stop_there(target in 0..60u32, ready in 0..60usize) {
            let mut ready = ready;
            for _ in 0..120 {
                match need(target, ready, 0) {
                    Need::More => ready += 1,
                    Need::Less => ready -= 1,
                    Need::Nothing => break,
                }
            }
            prop_assert_eq!(ready, usize::try_from(target).unwrap());
            prop_assert_eq!(need(target, ready, 0), Need::Nothing);
        }
    }
}
