//! Ranges of host uids for sandboxes.
//!
//! A range belongs to the sandboxes that were created with it, and to the memory images that hold its ids: those of forks, of
//! checkpoints and of templates. It is free when no record of any of them names it.
//!
//! ```text
//! free ranges in a queue -> handed out, one to each create -> queue empty: records are read, the queue is filled again
//! ```

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use roost_engine::UID_RANGES;

use crate::host::Host;
use crate::{HostError, blocking};

/// Bounds the time from the choice of a range until the record with it is stored.
const LONGEST_BIRTH: Duration = Duration::from_secs(300);
/// systemd keeps this range for users of foreign images. Earlier versions handed it out, so records may name it.
const FOREIGN: u32 = 4094;

/// The ranges that the daemon may hand out.
#[derive(Debug, Default)]
pub(crate) struct UidRanges(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    free: VecDeque<u32>,
    /// Ranges that may not be in a record yet.
    handed_out: HashMap<u32, Instant>,
}

impl UidRanges {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<u32> {
        let mut queue = self.lock();
        let range = queue.free.pop_front()?;
        queue.handed_out.insert(range, Instant::now());
        Some(range)
    }

    /// Fills the queue with the ranges that are not in `used`.
    fn refill(&self, used: &HashSet<u32>) {
        let mut queue = self.lock();
        // Another create may have filled it meanwhile.
        if queue.free.is_empty() {
            queue.handed_out.retain(|_, at| at.elapsed() < LONGEST_BIRTH);
            let taken = |range: &u32| used.contains(range) || queue.handed_out.contains_key(range) || *range == FOREIGN;
            let free = (0..UID_RANGES).filter(|range| !taken(range)).collect();
            queue.free = free;
        }
    }
}

impl Host {
    /// Returns a range that no sandbox and no memory image has.
    pub(crate) async fn free_uid_range(&self) -> Result<u32, HostError> {
        if let Some(range) = self.uid_ranges.take() {
            return Ok(range);
        }
        let used = self.used_uid_ranges().await?;
        self.uid_ranges.refill(&used);
        self.uid_ranges.take().ok_or_else(|| {
            let why = "every range of user ids is taken by a sandbox or by a checkpoint or template with memory";
            HostError::HostFull(why.to_owned())
        })
    }

    async fn used_uid_ranges(&self) -> Result<HashSet<u32>, HostError> {
        let (store, templates) = (self.store(), self.shared.templates.clone());
        blocking(move || {
            let checkpoints = store.all_checkpoints()?.into_iter().chain(templates.moments()?);
            let images =
                checkpoints.filter(|checkpoint| checkpoint.memory).map(|checkpoint| checkpoint.origin.uid_range);
            let mut used: HashSet<u32> = images.collect();
            // Read last: the record of a sandbox that is made from a checkpoint comes before the checkpoint goes.
            used.extend(store.living()?.into_iter().map(|record| record.uid_range));
            Ok(used)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_handed_out_again_only_when_nothing_has_it() {
        let ranges = UidRanges::default();
        assert_eq!(ranges.take(), None);
        let used: HashSet<u32> = (2..UID_RANGES).collect();
        ranges.refill(&used);
        assert_eq!((ranges.take(), ranges.take(), ranges.take()), (Some(0), Some(1), None));
        // Both may belong to sandboxes that are not stored yet.
        ranges.refill(&used);
        assert_eq!(ranges.take(), None);
        ranges.lock().handed_out.clear();
        ranges.refill(&(1..UID_RANGES).collect());
        assert_eq!((ranges.take(), ranges.take()), (Some(0), None));
    }

    #[test]
    fn there_are_twice_as_many_ranges_as_sandboxes() {
        let ranges = UidRanges::default();
        ranges.refill(&HashSet::new());
        let mut seen = HashSet::new();
        while let Some(range) = ranges.take() {
            assert!(range != FOREIGN && seen.insert(range));
        }
        assert!(seen.len() >= 2 * 8000, "{}", seen.len());
    }
}
