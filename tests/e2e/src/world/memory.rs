//! Memory of processes and of the host.

use std::fs;

use anyhow::{Context, Result};

fn kilobytes(file: &str, key: &str) -> Result<u64> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read `{file}`"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key} in `{file}`"))?;
    let number = line.split_whitespace().next().with_context(|| format!("{key} is empty in `{file}`"))?;
    Ok(number.parse::<u64>()? * 1024)
}

/// Bytes of memory a process has now.
pub fn resident_memory(pid: u32) -> Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// Bytes of memory a process has now for itself, without what it shares with the files it maps: its program above all.
pub fn own_memory(pid: u32) -> Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// The most bytes of memory a process has had since [`reset_peak_memory`].
pub fn peak_memory(pid: u32) -> Result<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmHWM:")
}

/// Starts the count of [`peak_memory`] anew.
pub fn reset_peak_memory(pid: u32) -> Result<()> {
    let file = format!("/proc/{pid}/clear_refs");
    fs::write(&file, "5").with_context(|| format!("failed to write `{file}`"))
}

/// Bytes of memory the host could still give out.
pub fn available_memory() -> Result<u64> {
    kilobytes("/proc/meminfo", "MemAvailable:")
}
