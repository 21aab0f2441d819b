//! What was done, and what was refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts of everything, and when CRIU was last killed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Mutex<BTreeMap<String, u64>>,
    criu_killed: Mutex<Option<Instant>>,
    /// Sandboxes under whose save it was: some do not survive that, and begin anew from their files.
    shaken: Mutex<BTreeSet<String>>,
}

/// An operation that began before CRIU was killed has its answer by then.
const AFTERMATH: Duration = Duration::from_secs(60);

impl Tally {
    pub(crate) fn count(&self, what: impl Into<String>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.into()).or_default() += 1;
    }

    /// While it saved this sandbox, if it did.
    pub(crate) fn criu_was_killed(&self, saved: Option<String>) {
        self.count("criu killed");
        self.shaken.lock().unwrap_or_else(PoisonError::into_inner).extend(saved);
        *self.criu_killed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether CRIU was killed while it saved this one, and nobody has looked at it since.
    pub(crate) fn is_shaken(&self, id: &str) -> bool {
        self.shaken.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// The same, and now somebody looks at it.
    pub(crate) fn settle_shaken(&self, id: &str) -> bool {
        self.shaken.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    /// Whether a failed save or restore can be explained.
    pub(crate) fn criu_died_lately(&self) -> bool {
        let killed = *self.criu_killed.lock().unwrap_or_else(PoisonError::into_inner);
        killed.is_some_and(|at| at.elapsed() < AFTERMATH)
    }

    /// All counts in one line.
    pub(crate) fn text(&self) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let done = |what: &str| !what.contains("killed") && !what.starts_with("refused");
        let operations: u64 = counts.iter().filter(|(what, _)| done(what)).map(|(_, count)| count).sum();
        let mut text = format!("{operations} operations");
        for (what, count) in counts.iter() {
            // Writing to a string does not fail.
            let _written = write!(text, ", {what} {count}");
        }
        text
    }
}
