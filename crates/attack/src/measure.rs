//! The measurements that are taken while an attack goes on.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::scene::Scene;

/// The kernel counts in pages of this size wherever Roost runs.
const PAGE: u64 = 4096;
/// Commands that are timed; an odd number has a middle.
const COMMANDS: usize = 9;

/// Returns the median time of a command in a sandbox, in milliseconds.
pub(crate) async fn latency_ms(scene: &Scene<'_>, sandbox: &str) -> Result<f64> {
    let mut times = Vec::with_capacity(COMMANDS);
    for _ in 0..COMMANDS {
        times.push(command(scene, sandbox).await?);
    }
    times.sort();
    Ok(times.get(COMMANDS / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3))
}

/// Runs one command that must succeed, and returns its time.
pub(crate) async fn command(scene: &Scene<'_>, sandbox: &str) -> Result<Duration> {
    let began = Instant::now();
    let output = scene.run(sandbox, &["nothing"]).await?;
    ensure!(output.exit_code == 0, "a command in the neighbour ended with {}: {}", output.exit_code, output.stderr);
    Ok(began.elapsed())
}

/// Returns the memory that the host's kernel uses for itself, in bytes: neither free, nor of files, nor of processes.
///
/// The memory of processes is on their control groups. The kernel's own is not in all cases, so it is watched here.
pub(crate) fn kernel_memory() -> Result<u64> {
    let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("failed to read `{path}`"));
    let used =
        of_the_kernel(&read("/proc/meminfo")?).context("failed to find the kernel's part in the host's memory")?;
    // Each processor keeps free pages of its own, on large hosts more than a gigabyte, and gives them back slowly.
    Ok(used.saturating_sub(kept_by_processors(&read("/proc/zoneinfo")?) * PAGE))
}

/// The number of free pages that processors keep for themselves.
fn kept_by_processors(zoneinfo: &str) -> u64 {
    let counts = zoneinfo.lines().filter_map(|line| line.trim().strip_prefix("count:"));
    counts.filter_map(|count| count.trim().parse::<u64>().ok()).sum()
}

fn of_the_kernel(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.strip_prefix(':')?.split_whitespace().next()?.parse().ok()
    };
    let others =
        ["MemFree", "Buffers", "Cached", "SwapCached", "AnonPages", "SReclaimable"].map(|name| kib(name).unwrap_or(0));
    Some(kib("MemTotal")?.saturating_sub(others.iter().sum()) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_kernel_is_the_rest() {
        let meminfo = "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 50 kB\nCached: 150 kB\nSwapCached: 0 kB\n\
                       AnonPages: 200 kB\nSReclaimable: 100 kB\nSUnreclaim: 80 kB\n";
        assert_eq!(of_the_kernel(meminfo), Some(200 << 10));
        assert_eq!(of_the_kernel(""), None);
        let zoneinfo = "Node 0, zone Normal\n  pages free 77\n  pagesets\n    cpu: 0\n              count:    12\n\
                        \u{20}             high:     99\n    cpu: 1\n              count:    30\n";
        assert_eq!(kept_by_processors(zoneinfo), 42);
        assert!(kernel_memory().unwrap() > 1 << 20);
    }
}
