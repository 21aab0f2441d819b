//! What sandboxes use: the present, since nothing of the past is kept.

use std::collections::BTreeMap;

use axum::Json;
use roost_host::{Handle, HostError};
use serde::{Deserialize, Serialize};

use super::bodies::moment;
use super::extract::{E2bPath, E2bQuery};
use super::visit::Visit;
use crate::e2b::wire_id;
use crate::error::E2bError;
use crate::usage::{Usage, whole_cpus};

/// Sandboxes that one request may ask for.
const MOST: usize = 100;

/// What a sandbox used at a moment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metric {
    timestamp: String,
    timestamp_unix: i64,
    cpu_count: u64,
    /// Of all its CPUs together.
    cpu_used_pct: f64,
    mem_used: u64,
    mem_total: u64,
    mem_cache: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Metric {
    async fn of(handle: &Handle) -> Result<Self, HostError> {
        let usage = Usage::of(handle).await?;
        Ok(Self {
            timestamp: moment(usage.at),
            timestamp_unix: usage.at.as_second(),
            cpu_count: whole_cpus(usage.cpus),
            cpu_used_pct: usage.cpu_percent,
            mem_used: usage.stats.memory_anon,
            mem_total: usage.stats.memory_limit,
            mem_cache: usage.cache(),
            disk_used: usage.stats.disk_exclusive,
            disk_total: usage.stats.disk_limit,
        })
    }
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
    e2b: Visit,
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
pub(crate) async fn of_many(e2b: Visit, E2bQuery(which): E2bQuery<Which>) -> Result<Json<Metrics>, E2bError> {
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
    fn the_present_is_in_a_span_or_not() {
        let within = |start, end| Within { start, end }.holds(100);
        assert!(within(None, None) && within(Some(90), Some(100)) && within(Some(100), None) && within(None, Some(99)));
        assert!(!within(Some(101), None) && !within(None, Some(50)));
    }
}
