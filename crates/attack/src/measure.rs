//! What is measured while an attack goes on.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::scene::Scene;

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
    let text = std::fs::read_to_string("/proc/meminfo").context("failed to read the host's memory")?;
    of_the_kernel(&text).context("failed to find the kernel's part in the host's memory")
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
        assert!(kernel_memory().unwrap() > 1 << 20);
    }
}
