//! What an operation did and cost, gathered while it runs; a receipt at its end.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roost_model::{Level, NotKept, Operation, Receipt, SavedProcess};

/// The account of one operation.
#[derive(Debug)]
pub(crate) struct Account {
    began: Instant,
    parts: BTreeMap<String, f64>,
    paused_since: Option<Instant>,
    paused: Option<Duration>,
    pub(crate) bytes: BTreeMap<String, u64>,
    pub(crate) kept: Vec<&'static str>,
    pub(crate) not_kept: Vec<NotKept>,
    pub(crate) processes: Vec<SavedProcess>,
}

impl Account {
    pub(crate) fn open() -> Self {
        Self {
            began: Instant::now(),
            parts: BTreeMap::new(),
            paused_since: None,
            paused: None,
            bytes: BTreeMap::new(),
            kept: Vec::new(),
            not_kept: Vec::new(),
            processes: Vec::new(),
        }
    }

    /// Writes down how long a part took that began at `since`.
    pub(crate) fn part(&mut self, name: &str, since: Instant) {
        *self.parts.entry(name.to_owned()).or_default() += milliseconds(since.elapsed());
    }

    /// Writes down a part that somebody else has timed.
    pub(crate) fn timed(&mut self, name: &str, microseconds: u64) {
        *self.parts.entry(name.to_owned()).or_default() += milliseconds(Duration::from_micros(microseconds));
    }

    /// Nothing runs in the sandbox from now on.
    pub(crate) fn pause(&mut self) {
        self.paused_since.get_or_insert_with(Instant::now);
    }

    /// Its processes run again, or are no more.
    pub(crate) fn resume(&mut self) {
        if let Some(since) = self.paused_since.take() {
            self.paused = Some(self.paused.unwrap_or_default() + since.elapsed());
        }
    }

    /// The receipt as things stand now.
    pub(crate) fn receipt(&self, operation: Operation, level: Option<Level>, generation: u64) -> Receipt {
        let still = self.paused_since.map(|since| since.elapsed());
        let paused = match (self.paused, still) {
            (None, None) => None,
            (before, still) => Some(before.unwrap_or_default() + still.unwrap_or_default()),
        };
        Receipt {
            level,
            kept: self.kept.iter().map(|what| (*what).to_owned()).collect(),
            not_kept: self.not_kept.clone(),
            bytes: self.bytes.clone(),
            paused_ms: paused.map(milliseconds),
            parts_ms: self.parts.clone(),
            total_ms: milliseconds(self.began.elapsed()),
            ..Receipt::new(operation, generation)
        }
    }
}

/// What a sandbox keeps that sleeps at a level.
pub(crate) fn kept_at(level: Option<Level>) -> Vec<&'static str> {
    match level {
        Some(Level::Files) => vec!["files"],
        _ => vec!["files", "memory", "processes", "listening_sockets"],
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
