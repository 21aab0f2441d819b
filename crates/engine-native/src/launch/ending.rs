//! Processes that were killed and have not come to their end yet.

use std::fs;

/// Whether a process is on its way out, or gone.
///
/// The first of a sandbox ends only after all others, and those that CRIU holds end only when it lets go of them: it would
/// wait for the first, and the first for them.
pub fn is_ending(pid: u32) -> bool {
    const EXITING: u32 = 0x4;
    const KILL: u64 = 1 << 8;
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    // Its name may hold anything, brackets and spaces included; the flags are the seventh word behind it.
    let stat = read("stat");
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u32>().ok());
    let status = read("status");
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    flags.is_none_or(|flags| flags & EXITING != 0) || pending.is_none_or(|mask| mask & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lives_does_not_end_and_whoever_was_waited_for_has() {
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(is_ending(child.id()));
    }
}
