//! Durations of one operation, and what they come to.

use std::time::Duration;

use serde::Serialize;

/// What was measured and every value of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) what: &'static str,
    pub(crate) milliseconds: Vec<f64>,
}

/// A series in four numbers.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) n: usize,
}

impl Series {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, milliseconds: Vec::new() }
    }

    pub(crate) fn add(&mut self, duration: Duration) {
        self.milliseconds.push(duration.as_secs_f64() * 1e3);
    }

    /// Nothing if nothing was measured.
    pub(crate) fn summary(&self) -> Option<Summary> {
        let mut sorted = self.milliseconds.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            // Nearest rank: the smallest value that at least this part of all values do not exceed.
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied()
        };
        Some(Summary { min: *sorted.first()?, p50: at(0.5)?, p95: at(0.95)?, n: sorted.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut series = Series::new("test");
        assert!(series.summary().is_none());
        for value in (1..=100).rev() {
            series.add(Duration::from_millis(value));
        }
        let summary = series.summary().unwrap();
        assert_eq!((summary.min, summary.p50, summary.p95, summary.n), (1.0, 50.0, 95.0, 100));
    }
}
