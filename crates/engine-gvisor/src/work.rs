//! What a sandbox has used for itself, apart from what its kernel uses.

use std::fs;

use roost_sys::cgroup::{CgroupError, Group, GroupCounters};
use roost_sys::process::cpu_time;

/// What runsc calls the process of the sentry.
const SENTRY: &[u8] = b"runsc-sandbox";

/// What the group has used, without the sentry's CPU time.
///
/// A sentry looks a thousand times a second for the quickest way to its stubs, and so takes several hundredths of a core where
/// nothing at all happens inside. What runs inside runs in the stubs, and so does a part of each of its system calls.
pub(crate) fn counters(group: &Group) -> Result<GroupCounters, CgroupError> {
    // Read first, so that it is no more than its part of the whole.
    let sentry = group.pids()?.into_iter().find(|pid| is_sentry(*pid)).and_then(|pid| cpu_time(pid).ok());
    let used = group.counters()?;
    let own = sentry.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    Ok(GroupCounters { cpu_us: used.cpu_us.saturating_sub(own), ..used })
}

/// Nothing that runs inside can give its host process a name.
fn is_sentry(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(SENTRY))
}
