//! The limits of a sandbox's control group, and the wider memory limit for saves and restores.
//!
//! The sentry keeps a table of every object that it saves or restores, which can be larger than all of its memory
//! otherwise. So the group's limit is raised for that time:
//!
//! ```text
//! limit in force -> noted and raised -> the sentry saves or restores -> lowered as far as its use allows
//!                                                                     -> once a second, until the noted limit is in force
//! ```
//!
//! The note is on the group itself, so the next daemon carries on where a daemon died.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roost_engine_group::{blocking, group_limits};
use roost_model::{Limits, SandboxId, chain};
use roost_sys::cgroup::{Group, GroupLimits};

use crate::engine::Inner;

/// What sentry, gofer and keeper need beside what the sandbox was promised.
const OWN_MEMORY: u64 = 96 << 20;
/// Threads of the sentry's own, and how many of the host's stand for one inside.
const OWN_THREADS: u64 = 256;
const THREADS_PER_THREAD: u64 = 3;
/// How many times a limit the sentry may use while it saves or restores, and how many bytes beyond that.
const WIDER: u64 = 4;
const WIDER_BY: u64 = 512 << 20;
/// The time between two attempts to put a limit back.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the limits of the group, which leave room for the processes around the sandbox.
///
/// Threads inside are not counted by the host's: a sentry that cannot have one more of its own dies.
pub(crate) fn outer(limits: &Limits) -> GroupLimits {
    let inner = group_limits(limits);
    GroupLimits {
        memory: inner.memory.saturating_add(OWN_MEMORY),
        pids: inner.pids.saturating_mul(THREADS_PER_THREAD).saturating_add(OWN_THREADS),
        ..inner
    }
}

/// Raises the memory limit of a group for a save or a restore. Where that fails, the usual limit has to do.
pub(crate) fn widen(group: &Group) {
    if let Err(error) = group.widen_memory(|limit| limit.saturating_mul(WIDER).saturating_add(WIDER_BY)) {
        tracing::warn!(error = %chain(&error), "failed to raise a memory limit for a save or a restore");
    }
}

/// Puts the limit back as far as the group's use allows. Returns whether nothing is left to do.
pub(crate) fn narrow(group: &Group) -> bool {
    group.narrow_memory().unwrap_or_else(|error| {
        // A group that ended meanwhile has no limit to put back.
        if group.exists() {
            tracing::warn!(error = %chain(&error), "failed to put a memory limit back");
        }
        true
    })
}

/// The sandboxes whose limit a task puts back, so that each has one task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrowing(Arc<Mutex<HashSet<SandboxId>>>);

impl Narrowing {
    fn begin(&self, id: &SandboxId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone())
    }

    fn end(&self, id: &SandboxId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Inner {
    /// Puts a raised limit of a sandbox that runs back, in a task of its own if that takes a while.
    ///
    /// A frozen sandbox gives no memory back, so its next thaw calls this again.
    pub(crate) fn narrow_soon(&self, id: &SandboxId) {
        let group = self.groups.group(id);
        if !group.is_widened().unwrap_or(false) || !self.narrowing.begin(id) {
            return;
        }
        let (narrowing, id) = (self.narrowing.clone(), id.clone());
        tokio::spawn(async move {
            loop {
                let there = group.clone();
                let done = blocking(move || Ok(there.is_frozen().unwrap_or(true) || narrow(&there))).await;
                if done.unwrap_or(true) {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            narrowing.end(&id);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_limits_leave_room_for_the_engine() {
        let limits = Limits { memory: 128 << 20, pids: 10, ..Limits::default() };
        let outer = outer(&limits);
        assert_eq!((outer.memory, outer.pids), ((128 + 96) << 20, 286));
    }

    #[test]
    fn sandbox_has_one_task_that_narrows_it() {
        let (narrowing, id) = (Narrowing::default(), SandboxId::generate());
        assert!(narrowing.begin(&id));
        assert!(!narrowing.clone().begin(&id));
        narrowing.end(&id);
        assert!(narrowing.begin(&id));
    }
}
