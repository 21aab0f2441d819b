//! Chooses the processors that a sandbox runs on.
//!
//! The quota of the control group is the limit. But programs size themselves by the processors that they may run on: `nproc`,
//! Node, Python and Go ask for their affinity. So a sandbox gets as many as its limit rounded up. Sandboxes take their
//! turns around the host's processors, and a sandbox whose limit takes all of them is not confined.

use std::sync::atomic::{AtomicUsize, Ordering};

use roost_sys::cgroup::Group;

/// The processors of this host, and the position of the next turn.
#[derive(Debug)]
pub(crate) struct Processors {
    all: Vec<usize>,
    next: AtomicUsize,
}

impl Processors {
    /// Shares out these processors, which are those of the daemon.
    pub(crate) fn new(all: Vec<usize>) -> Self {
        Self { all, next: AtomicUsize::new(0) }
    }

    /// Chooses the processors for one more sandbox or a changed limit, in ascending order.
    pub(crate) fn choose(&self, milli_cpus: u64) -> Vec<usize> {
        let wanted = usize::try_from(milli_cpus.div_ceil(1000)).unwrap_or(usize::MAX).max(1);
        if wanted >= self.all.len() {
            return self.all.clone();
        }
        let first = self.next.fetch_add(wanted, Ordering::Relaxed);
        let mut chosen: Vec<usize> =
            self.all.iter().cycle().skip(first % self.all.len()).take(wanted).copied().collect();
        chosen.sort_unstable();
        chosen
    }

    /// Whether the chosen processors are fewer than the host's.
    pub(crate) fn is_narrow(&self, chosen: &[usize]) -> bool {
        chosen.len() < self.all.len()
    }
}

/// Confines a running sandbox to its processors. The quota is the limit in any case, so a failure is only logged.
pub(crate) fn confine(group: &Group, chosen: &[usize]) {
    if let Err(error) = group.confine(chosen) {
        tracing::warn!(%error, "failed to confine a sandbox to its processors");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_rounded_up_and_at_least_one() {
        let processors = Processors::new((0..8).collect());
        for (milli, count) in [(0, 1), (10, 1), (1000, 1), (1001, 2), (2500, 3), (7999, 8), (64_000, 8)] {
            assert_eq!(processors.choose(milli).len(), count, "{milli}");
        }
        assert!(processors.is_narrow(&[1]) && !processors.is_narrow(&processors.choose(8000)));
    }

    #[test]
    fn sandboxes_are_spread_evenly() {
        let processors = Processors::new(vec![0, 2, 4]);
        let mut load = [0; 5];
        for number in (0..30).flat_map(|_| processors.choose(1500)) {
            load[number] += 1;
        }
        assert_eq!(load, [20, 0, 20, 0, 20]);
    }

    #[test]
    fn chosen_processors_go_around_the_end_in_order() {
        let processors = Processors::new((0..4).collect());
        assert_eq!(processors.choose(3000), [0, 1, 2]);
        assert_eq!(processors.choose(3000), [0, 1, 3]);
    }
}
