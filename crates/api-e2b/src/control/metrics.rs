//! What sandboxes use: the present, since nothing of the past is kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use roost_host::{Handle, HostError};
use serde::{Deserialize, Serialize};

use super::bodies::{moment, whole_cpus};
use super::extract::{E2bPath, E2bQuery};
use crate::E2b;
use crate::e2b::wire_id;
use crate::error::E2bError;

/// The time over which the use of CPU is measured.
const WINDOW: Duration = Duration::from_millis(100);
/// Sandboxes that one request may ask for.
const MOST: usize = 100;

/// What a sandbox used at a moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    timestamp: String,
    timestamp_unix: i64,
    cpu_count: u64,
    /// Of one CPU: 150 is one and a half.
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Metric {
    async fn of(handle: &Handle) -> Result<Self, HostError> {
        let (before, began) = (handle.stats().await?, Instant::now());
        // One that sleeps uses nothing, which needs no measuring.
        if before.pids > 0 {
            tokio::time::sleep(WINDOW).await;
        }
        let (stats, view, now) = (handle.stats().await?, handle.view(), Timestamp::now());
        Ok(Self {
            timestamp: moment(now),
            timestamp_unix: now.as_second(),
            cpu_count: whole_cpus(view.limits.cpus),
            cpu_used_pct: used_percent(stats.cpu_us.saturating_sub(before.cpu_us), began.elapsed()),
            mem_used: stats.memory_anon,
            mem_total: stats.memory_limit,
            mem_cache: stats.memory.saturating_sub(stats.memory_anon),
            disk_used: stats.disk_exclusive,
            disk_total: stats.disk_limit,
        })
    }
}

/// Microseconds of CPU in a time, as percent of one CPU with two digits.
#[expect(clippy::cast_precision_loss, reason = "a window of milliseconds is far from 2^52 microseconds")]
fn used_percent(used_us: u64, time: Duration) -> f64 {
    let time_us = time.as_micros().max(1) as f64;
    (used_us as f64 / time_us * 10_000.0).round() / 100.0
}

/// A span of time, in unix seconds.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Within {
    start: Option<i64>,
    end: Option<i64>,
}

impl Within {
    fn holds(&self, second: i64) -> bool {
        // The present counts if a client whose clock is a little off asks for it.
        self.start.is_none_or(|start| start <= second) && self.end.is_none_or(|end| second <= end.saturating_add(1))
    }
}

/// `GET /sandboxes/{id}/metrics`.
pub(crate) async fn of_one(
    State(e2b): State<E2b>,
    E2bPath(id): E2bPath<String>,
    E2bQuery(within): E2bQuery<Within>,
) -> Result<Json<Vec<Metric>>, E2bError> {
    let handle = e2b.find(&id)?;
    let metric = Metric::of(&handle).await?;
    Ok(Json(Vec::from_iter(Some(metric).filter(|metric| within.holds(metric.timestamp_unix)))))
}

/// Sandboxes to tell of.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    /// Ids with commas between them.
    sandbox_ids: String,
}

/// What many use.
#[derive(Debug, Serialize)]
pub(crate) struct Metrics {
    sandboxes: BTreeMap<String, Metric>,
}

/// `GET /sandboxes/metrics`: of those that are there.
pub(crate) async fn of_many(
    State(e2b): State<E2b>,
    E2bQuery(which): E2bQuery<Which>,
) -> Result<Json<Metrics>, E2bError> {
    let ids: Vec<&str> = which.sandbox_ids.split(',').filter(|id| !id.is_empty()).collect();
    if ids.len() > MOST {
        return Err(E2bError::bad_request(format!("one request tells of at most {MOST} sandboxes")));
    }
    let handles = ids.into_iter().filter_map(|id| e2b.find(id).ok());
    let measured = handles.map(async |handle| (wire_id(handle.id()).to_owned(), Metric::of(&handle).await));
    let measured = futures_util::future::join_all(measured).await;
    let sandboxes = measured.into_iter().filter_map(|(id, metric)| Some((id, metric.ok()?))).collect();
    Ok(Json(Metrics { sandboxes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_of_cpu_is_told_in_percent_of_one() {
        assert!((used_percent(150_000, Duration::from_millis(100)) - 150.0).abs() < 0.01);
        assert!(used_percent(0, Duration::ZERO).abs() < 0.01);
    }

    #[test]
    fn the_present_is_in_a_span_or_not() {
        let within = |start, end| Within { start, end }.holds(100);
        assert!(within(None, None) && within(Some(90), Some(100)) && within(Some(100), None) && within(None, Some(99)));
        assert!(!within(Some(101), None) && !within(None, Some(50)));
    }
}
