//! What a sandbox uses now, measured over a moment.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use roost_host::{Handle, HostError};
use roost_model::Stats;

/// The time over which the use of CPU is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// What a sandbox uses.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) at: Timestamp,
    /// CPUs it may use, fractions and all.
    pub(crate) cpus: f64,
    /// Of all that it may use: 100 is every CPU.
    pub(crate) cpu_percent: f64,
    pub(crate) stats: Stats,
}

impl Usage {
    /// Measures; does not wake it.
    pub(crate) async fn of(handle: &Handle) -> Result<Self, HostError> {
        let (before, began) = (handle.stats().await?, Instant::now());
        // One that sleeps uses nothing, which needs no measuring.
        if before.pids > 0 {
            tokio::time::sleep(WINDOW).await;
        }
        let (stats, between) = (handle.stats().await?, began.elapsed());
        let cpus = handle.view().limits.cpus;
        let cpu_percent = percent(stats.cpu_us.saturating_sub(before.cpu_us), between, cpus);
        Ok(Self { at: Timestamp::now(), cpus, cpu_percent, stats })
    }

    /// The part of its memory that the kernel takes back when it is needed.
    pub(crate) fn cache(&self) -> u64 {
        self.stats.memory.saturating_sub(self.stats.memory_anon)
    }
}

/// Microseconds of CPU in a time, as percent of what there was, with two digits.
fn percent(used_us: u64, time: Duration, cpus: f64) -> f64 {
    let most = time.as_secs_f64() * cpus;
    let share = if most > 0.0 { Duration::from_micros(used_us).as_secs_f64() / most } else { 0.0 };
    (share.clamp(0.0, 1.0) * 10_000.0).round() / 100.0
}

/// CPUs as a whole number, which is all that clients know.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "limits are positive and small")]
pub(crate) fn whole_cpus(cpus: f64) -> u64 {
    cpus.ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_cpu_is_a_share_of_what_it_may_use() {
        let window = Duration::from_millis(100);
        for (used_us, time, cpus, expected) in [
            (50_000, window, 2.0, 25.0),
            (200_000, window, 2.0, 100.0),
            (9_000_000, window, 0.5, 100.0),
            (0, window, 2.0, 0.0),
            (9, Duration::ZERO, 2.0, 0.0),
        ] {
            let found = percent(used_us, time, cpus);
            assert!((found - expected).abs() < 0.01, "{used_us} in {time:?} of {cpus}: {found}");
        }
    }
}
