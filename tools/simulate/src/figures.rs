//! What a policy costs: hours awake for nobody, memory held, images written, and waits.

use roost_model::{IdlePolicy, Span};

use crate::crowd::crowd;
use crate::life::{Fate, Spent};
use crate::trace::{DAY, HOUR};

/// What a wake costs in milliseconds, for what it finds: awake, in RAM, on disk, in files. From `roost-bench memory`.
pub const WAKE_MS: [u64; 4] = [0, 4, 75, 300];

/// What many lives under a policy were like, for one sandbox and one day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Percent of the time asleep.
    pub asleep: f64,
    /// Hours awake with nothing to do.
    pub wasted: f64,
    /// Hours with its memory in RAM, awake or not.
    pub in_ram: f64,
    /// Images written.
    pub saves: f64,
    /// Percent of touches that had to wait for a wake.
    pub woken: f64,
    /// Milliseconds that a touch waits on average.
    pub wait: f64,
    /// Milliseconds that half of all touches wait, 95 and 99 of a hundred.
    pub waits: [u64; 3],
}

/// Lives that are compared: the same ones under every policy.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// How many.
    pub lives: u64,
    /// For how many days.
    pub days: u64,
    /// Which.
    pub seed: u64,
}

#[expect(clippy::cast_precision_loss, reason = "sums of milliseconds are far below 2^53")]
fn part(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

impl Costs {
    /// Of lives that took so many days together.
    pub fn of(spent: &Spent, days: u64) -> Self {
        let touches = spent.touches();
        let total = spent.awake + spent.ram + spent.deep;
        let waited = spent.found.iter().zip(WAKE_MS).map(|(count, cost)| count * cost).sum();
        Self {
            asleep: 100.0 * (1.0 - part(spent.awake, total)),
            wasted: part(spent.awake.saturating_sub(spent.busy), HOUR * days),
            in_ram: part(spent.awake + spent.ram, HOUR * days),
            saves: part(spent.saves, days),
            woken: 100.0 * part(touches - spent.found[0], touches),
            wait: part(waited, touches),
            waits: [50, 95, 99].map(|percent| quantile(&spent.found, percent)),
        }
    }
}

/// The wait that so many of a hundred touches do not exceed.
fn quantile(found: &[u64; 4], percent: u64) -> u64 {
    let wanted = (found.iter().sum::<u64>() * percent).div_ceil(100);
    let mut seen = 0;
    for (count, cost) in found.iter().zip(WAKE_MS) {
        seen += count;
        if seen >= wanted {
            return cost;
        }
    }
    WAKE_MS[3]
}

/// The policies that are compared: one thing differs from the default in each.
pub fn quiet_times() -> Vec<IdlePolicy> {
    let seconds = [5, 15, 60, 300, 900];
    seconds.map(|after| IdlePolicy { after: Span::seconds(after), ..IdlePolicy::default() }).into()
}

/// The same for the time in RAM.
pub fn times_in_ram() -> Vec<IdlePolicy> {
    let spans = [60, 600, 3600, 6 * 3600].map(Span::seconds).into_iter().chain([Span::NEVER]);
    spans.map(|deepen_after| IdlePolicy { deepen_after, ..IdlePolicy::default() }).collect()
}

/// Judges one policy.
pub fn judge(policy: &IdlePolicy, sample: Sample) -> Costs {
    let spent = crowd(sample.lives, sample.seed, policy, Fate::default(), sample.days * DAY);
    Costs::of(&spent, sample.days * sample.lives)
}
