//! What to do when the host's memory runs short.

use jiff::Timestamp;

/// A host whose tasks wait this much of the time for memory is short of it, if there is little free as well.
const STALLED_PERCENT: f64 = 10.0;

/// When the host counts as short of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// With fewer free bytes than this, what sleeps in RAM goes to disk.
    pub low: u64,
    /// With fewer free bytes than this, nothing is started.
    pub critical: u64,
    /// How many sandboxes may be awake at the same time.
    pub max_active: Option<usize>,
}

/// The host's memory at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MemoryReading {
    /// Bytes that can be had without hurting anybody.
    pub available: u64,
    /// The share of the last seconds in which some task waited for memory, in percent; 0 where the host does not tell.
    pub stalled: f64,
}

/// How short of memory the host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    /// There is enough.
    None,
    /// What sleeps in RAM should go to disk.
    Low,
    /// Nothing more may be started.
    Critical,
}

/// Says how short of memory the host is.
///
/// Waiting alone does not count: a sandbox that has reached its own limit waits for memory on a host that has plenty.
pub fn shortage(policy: &MemoryPolicy, reading: &MemoryReading) -> Shortage {
    let waits = reading.stalled >= STALLED_PERCENT && reading.available < policy.low.saturating_mul(2);
    match reading.available {
        free if free < policy.critical => Shortage::Critical,
        free if free < policy.low || waits => Shortage::Low,
        _ => Shortage::None,
    }
}

/// Of sandboxes that sleep in RAM, each with the moment it fell asleep and the one before which its memory must not be
/// tried to be saved, the one whose memory goes to disk first: it has slept longest.
pub fn first_to_deepen<T>(
    sleepers: impl IntoIterator<Item = (T, Timestamp, Option<Timestamp>)>,
    now: Timestamp,
) -> Option<T> {
    let may = sleepers.into_iter().filter(|(_, _, not_before)| not_before.is_none_or(|moment| moment <= now));
    may.min_by_key(|(_, since, _)| *since).map(|(sleeper, ..)| sleeper)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: MemoryPolicy = MemoryPolicy { low: 100, critical: 50, max_active: None };

    #[test]
    fn shortage_grows_as_memory_shrinks() {
        let of = |available, stalled| shortage(&POLICY, &MemoryReading { available, stalled });
        assert_eq!(of(1000, 0.0), Shortage::None);
        assert_eq!(of(1000, 90.0), Shortage::None);
        assert_eq!(of(150, 20.0), Shortage::Low);
        assert_eq!(of(99, 0.0), Shortage::Low);
        assert_eq!(of(49, 0.0), Shortage::Critical);
        assert!(Shortage::Low < Shortage::Critical);
    }

    #[test]
    fn the_longest_asleep_goes_first() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        let sleepers = [("b", at(20), None), ("a", at(10), Some(at(500))), ("c", at(30), None)];
        assert_eq!(first_to_deepen(sleepers, at(100)), Some("b"));
        // One that could not be saved has its turn again later.
        assert_eq!(first_to_deepen(sleepers, at(500)), Some("a"));
        assert_eq!(first_to_deepen::<&str>([], at(1)), None);
    }
}
