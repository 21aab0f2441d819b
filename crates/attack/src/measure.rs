//! What is measured while an attack goes on.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

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

/// Returns the memory that the host has available, in bytes.
pub(crate) fn host_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|rest| rest.split_whitespace().next()).unwrap_or("0").parse()?;
    Ok(kib << 10)
}
