//! How much of the machine is used by others, and a wait until it is little.
//!
//! What one suite leaves to be done (a thousand disks that the kernel deletes behind it) would be in the figures of the next.

use std::time::{Duration, Instant};

/// More of the processors than this means that others use the machine too, and that the figures are theirs as well.
pub(crate) const BUSY: f64 = 0.2;
/// How long is looked at what is used.
const LOOK: Duration = Duration::from_secs(1);
/// One quiet moment between two busy ones is not rest.
const IN_A_ROW: usize = 3;
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until the machine rests, or until it is clear that it does not; gives the share of its processors that is used then.
pub(crate) async fn wait() -> f64 {
    let deadline = Instant::now() + PATIENCE;
    let mut quiet = 0;
    loop {
        let before = Times::now();
        tokio::time::sleep(LOOK).await;
        let used = Times::now().used_since(before);
        quiet = if used <= BUSY { quiet + 1 } else { 0 };
        if quiet == IN_A_ROW || Instant::now() >= deadline {
            return used;
        }
    }
}

/// Processor time since the machine's start, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    all: f64,
    idle: f64,
}

impl Times {
    fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// From the first line: user, nice, system, idle, waiting for disks, interrupts, soft ones, stolen; a guest's is in user's.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        Self { all: ticks.iter().sum(), idle: ticks.iter().skip(3).take(2).sum() }
    }

    /// The share that was not idle; not a number where the kernel does not tell.
    fn used_since(self, before: Self) -> f64 {
        1.0 - (self.idle - before.idle) / (self.all - before.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_waits_for_disks_is_used() {
        let before = Times::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n");
        assert_eq!(before, Times { all: 1000.0, idle: 850.0 });
        let after = Times::parse("cpu  110 0 60 865 60 0 0 5 9 9\n");
        assert_eq!(after.used_since(before), 0.25);
        assert!(Times::parse("").used_since(Times::parse("")).is_nan());
    }
}
