//! `/envs` and `/metrics`: what processes of the sandbox are given, and what they use.

use std::collections::BTreeMap;

use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use super::Call;
use crate::E2b;
use crate::error::E2bError;
use crate::usage::{Usage, whole_cpus};

pub(crate) fn routes() -> Router<E2b> {
    Router::new().route("/envs", get(envs)).route("/metrics", get(metrics))
}

async fn envs(call: Call) -> Json<BTreeMap<String, String>> {
    Json(call.handle.view().env)
}

/// What a sandbox uses now.
#[derive(Debug, Serialize)]
struct Metrics {
    /// Seconds since the epoch.
    ts: i64,
    cpu_count: u64,
    /// Of all its CPUs together.
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

async fn metrics(call: Call) -> Result<Json<Metrics>, E2bError> {
    let usage = Usage::of(&call.handle).await?;
    Ok(Json(Metrics {
        ts: usage.at.as_second(),
        cpu_count: whole_cpus(usage.cpus),
        cpu_used_pct: usage.cpu_percent,
        mem_total: usage.stats.memory_limit,
        mem_used: usage.stats.memory_anon,
        mem_cache: usage.cache(),
        mem_total_mib: usage.stats.memory_limit >> 20,
        mem_used_mib: usage.stats.memory_anon >> 20,
        disk_used: usage.stats.disk_exclusive,
        disk_total: usage.stats.disk_limit,
    }))
}
