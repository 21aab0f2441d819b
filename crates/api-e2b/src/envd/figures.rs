//! `/envs` and `/metrics`: what processes of the sandbox are given, and what they use.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use roost_model::Stats;
use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::Call;
use crate::E2b;
use crate::error::E2bError;

/// The time over which the use of the processor is measured.
const WINDOW: Duration = Duration::from_millis(100);

pub(crate) fn routes() -> Router<E2b> {
    Router::new().route("/envs", get(envs)).route("/metrics", get(metrics))
}

async fn envs(call: Call) -> Json<BTreeMap<String, String>> {
    Json(call.handle.view().env)
}

/// What a sandbox uses now.
#[derive(Debug, PartialEq, Serialize)]
struct Metrics {
    /// Seconds since the epoch.
    ts: i64,
    cpu_count: u32,
    /// Of all its processors together: 100 is all that it may use.
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
    let began = Instant::now();
    let before = call.handle.stats().await?;
    sleep(WINDOW).await;
    let after = call.handle.stats().await?;
    let cpus = call.handle.view().limits.cpus;
    Ok(Json(figures(&before, &after, began.elapsed(), cpus, Timestamp::now())))
}

fn figures(before: &Stats, after: &Stats, between: Duration, cpus: f64, now: Timestamp) -> Metrics {
    let used = after.cpu_us.saturating_sub(before.cpu_us) as f64 / 1e6;
    let most = between.as_secs_f64() * cpus;
    let share = if most > 0.0 { (used / most).clamp(0.0, 1.0) } else { 0.0 };
    Metrics {
        ts: now.as_second(),
        cpu_count: cpus.ceil().max(1.0) as u32,
        cpu_used_pct: (share * 10_000.0).round() / 100.0,
        mem_total: after.memory_limit,
        mem_used: after.memory_anon,
        mem_cache: after.memory.saturating_sub(after.memory_anon),
        mem_total_mib: after.memory_limit >> 20,
        mem_used_mib: after.memory_anon >> 20,
        disk_used: after.disk_exclusive,
        disk_total: after.disk_limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(cpu_us: u64) -> Stats {
        Stats {
            cpu_us,
            memory: 30 << 20,
            memory_anon: 10 << 20,
            memory_limit: 512 << 20,
            pids: 3,
            disk_exclusive: 5,
            disk_limit: 7,
            oom_kills: 0,
        }
    }

    #[test]
    fn shares_are_of_what_it_may_use() {
        let now = Timestamp::UNIX_EPOCH;
        let between = Duration::from_millis(100);
        let found = figures(&stats(0), &stats(50_000), between, 2.0, now);
        assert_eq!((found.cpu_used_pct, found.cpu_count), (25.0, 2));
        assert_eq!((found.mem_used_mib, found.mem_cache, found.mem_total_mib), (10, 20 << 20, 512));
        // One that slept and woke counts anew.
        assert_eq!(figures(&stats(9), &stats(0), between, 0.5, now).cpu_used_pct, 0.0);
        assert_eq!(figures(&stats(0), &stats(9_000_000), between, 0.5, now).cpu_used_pct, 100.0);
        assert_eq!(figures(&stats(0), &stats(9), Duration::ZERO, 0.5, now).cpu_count, 1);
    }
}
