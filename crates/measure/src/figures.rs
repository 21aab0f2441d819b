//! Durations of one operation, and what they come to.

use std::collections::BTreeMap;
use std::time::Duration;

use roost_model::Receipt;
use serde::Serialize;

/// What was measured and every value of it.
#[derive(Debug, Clone, Serialize)]
pub struct Series {
    pub what: String,
    /// Milliseconds, unless the name says otherwise.
    pub values: Vec<f64>,
}

/// A series in a few numbers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Summary {
    pub min: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub n: usize,
}

/// Everything one suite measured.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub series: Vec<Series>,
    /// What receipts say the operations were made of.
    pub parts: Vec<Series>,
}

impl Series {
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), values: Vec::new() }
    }

    pub fn add(&mut self, duration: Duration) {
        self.push(duration.as_secs_f64() * 1e3);
    }

    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Nothing if nothing was measured.
    pub fn summary(&self) -> Option<Summary> {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            // Nearest rank: the smallest value that at least this part of all values do not exceed.
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied()
        };
        Some(Summary { min: *sorted.first()?, p50: at(0.5)?, p95: at(0.95)?, p99: at(0.99)?, n: sorted.len() })
    }
}

/// The parts that the receipts of one operation name.
#[derive(Debug, Default)]
pub struct Parts(BTreeMap<String, Series>);

impl Parts {
    pub fn add(&mut self, operation: &str, receipt: &Receipt) {
        let whole = [("in all", Some(receipt.total_ms)), ("paused", receipt.paused_ms)];
        let whole = whole.into_iter().filter_map(|(part, time)| Some((part, time?)));
        for (part, time) in receipt.parts_ms.iter().map(|(part, time)| (part.as_str(), *time)).chain(whole) {
            let what = format!("{operation}: {part}");
            self.0.entry(what.clone()).or_insert_with(|| Series::new(what)).push(time);
        }
    }

    pub fn series(self) -> impl Iterator<Item = Series> {
        self.0.into_values()
    }
}

#[cfg(test)]
mod tests {
    use roost_model::Operation;

    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut series = Series::new("test");
        assert!(series.summary().is_none());
        for value in (1..=100).rev() {
            series.add(Duration::from_millis(value));
        }
        let summary = series.summary().unwrap();
        assert_eq!((summary.min, summary.p50, summary.p95, summary.p99, summary.n), (1.0, 50.0, 95.0, 99.0, 100));
    }

    #[test]
    fn parts_of_receipts_become_series() {
        let mut receipt = Receipt::new(Operation::Wake, 1);
        receipt.parts_ms.insert("load".to_owned(), 2.0);
        let mut parts = Parts::default();
        parts.add("wake", &receipt);
        parts.add("wake", &receipt);
        let parts: Vec<_> = parts.series().map(|series| (series.what, series.values)).collect();
        assert_eq!(parts, [("wake: in all".to_owned(), vec![0.0; 2]), ("wake: load".to_owned(), vec![2.0; 2])]);
    }
}
