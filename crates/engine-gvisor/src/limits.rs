//! The limits of a sandbox's control group, and the wider memory limit for saves and restores.
//!
//! The sentry keeps a table of every object that it saves or restores, which can be larger than all of its memory
//! otherwise. So the group's limit is raised for that time:
//!
//! ```text
//! limit in force -> noted and raised -> the sentry saves or restores -> lowered to its use and some slack
//!                                                                     -> noted limit in force, as soon as the use fits
//!                                                                     -> noted limit in force, after a grace period
//! ```
//!
//! The slack and the grace period are for the sentry, whose tables are garbage now but not yet collected. The grace period
//! is short if memory of processes inside is more than the limit. A sandbox that still uses more after it ends then, as it
//! would have at its limit.
//! The note is on the group itself, so the next daemon carries on where a daemon died.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roost_engine_group::{First, blocking, group_limits};
use roost_model::{Limits, SandboxId, chain};
use roost_sys::cgroup::{CgroupError, Group, GroupLimits};

use crate::engine::Inner;

/// What sentry, gofer and keeper need beside what the sandbox was promised.
const OWN_MEMORY: u64 = 96 << 20;
/// Threads of the sentry's own, and how many of the host's stand for one inside.
const OWN_THREADS: u64 = 256;
const THREADS_PER_THREAD: u64 = 3;
/// How many times a limit the sentry may use while it saves or restores, and how many bytes beyond that.
const WIDER: u64 = 4;
const WIDER_BY: u64 = 512 << 20;
/// Bytes that a group gets beyond its use after a save or a restore, and the part of the sentry's own memory that it gets
/// besides: its heap grows by a third until the garbage of a save is collected.
const SLACK: u64 = 64 << 20;
const SLACK_PART: u64 = 2;
/// The time between two attempts to put a limit back.
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts until a limit is put back by force. Only time in which the sandbox is not frozen counts.
///
/// An idle sentry collects garbage every two minutes, and gives the memory to the host in the seconds after that.
const ATTEMPTS: u32 = 180;
/// The same if memory of the processes inside is more than the limit, which is no garbage.
const ATTEMPTS_OF_TAKERS: u32 = 5;

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

/// Lowers a raised limit to what the group uses now and some slack, and puts it back if that is enough.
///
/// To be called when a save or a restore is done, before processes inside can take more.
pub(crate) fn bound(group: &Group) {
    let slack = |group: &Group| Ok::<_, CgroupError>(SLACK.saturating_add(group.memory()?.anonymous / SLACK_PART));
    if let Err(error) = slack(group).and_then(|slack| group.bound_memory(slack)) {
        warn_unless_gone(group, &error);
    }
    narrow(group);
}

/// Puts the limit back if the group's use fits. Returns whether it is in force.
fn narrow(group: &Group) -> bool {
    group.narrow_memory().unwrap_or_else(|error| {
        warn_unless_gone(group, &error);
        false
    })
}

/// Whether processes inside hold more than the limit to put back.
///
/// Their memory is in a file of the sentry's that is shared memory to the kernel; what the sentry keeps for itself is not.
fn takes_more(group: &Group) -> bool {
    let noted = group.noted_memory().ok().flatten();
    noted.is_some_and(|limit| group.memory().is_ok_and(|memory| memory.shared > limit))
}

/// A group that ended meanwhile has no limit to put back.
fn warn_unless_gone(group: &Group, error: &CgroupError) {
    if group.exists() {
        tracing::warn!(error = %chain(error), "failed to put a memory limit back");
    }
}

/// A sandbox whose limit is raised, or is about to be.
#[derive(Debug, Default)]
pub(crate) struct Raised {
    /// Whether a save goes on, which needs the raised limit. Locked by each change of the limit.
    saving: Mutex<bool>,
    /// Whether a task attends to it.
    attended: AtomicBool,
    /// Attempts to put the limit back so far.
    attempts: AtomicU32,
    /// Whether the sandbox was ended at its limit.
    ended: AtomicBool,
}

impl Raised {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the limit of a sandbox in which nothing runs any more, until [`Raised::end_save`].
    pub(crate) fn begin_save(&self, group: &Group) {
        let mut saving = self.lock();
        *saving = true;
        widen(group);
    }

    /// Lowers the limit to what the sentry needs now. Nothing may run inside yet.
    pub(crate) fn end_save(&self, group: &Group) {
        let mut saving = self.lock();
        bound(group);
        *saving = false;
    }

    fn attempt(&self, group: &Group, first: Option<&First>) -> Attempt {
        let saving = self.lock();
        if *saving {
            return Attempt::NotNow;
        }
        if group.is_frozen().unwrap_or(true) {
            return Attempt::Frozen;
        }
        if narrow(group) {
            self.attempts.store(0, Ordering::Release);
            return Attempt::InForce;
        }
        let most = if takes_more(group) { ATTEMPTS_OF_TAKERS } else { ATTEMPTS };
        if self.attempts.fetch_add(1, Ordering::AcqRel) < most {
            return Attempt::NotNow;
        }
        self.enforce(group, first)
    }

    /// Ends the attendance of a task, unless there is something to do again. Returns whether it did.
    ///
    /// A thaw or a save that came before this saw the task attend, and so started none.
    fn rests(&self, group: &Group) -> bool {
        self.attended.store(false, Ordering::Release);
        let idle = !is_widened(group) || group.is_frozen().unwrap_or(true);
        idle || self.attended.swap(true, Ordering::AcqRel)
    }

    /// Puts the limit back, or ends the sandbox where the kernel leaves that to us.
    fn enforce(&self, group: &Group, first: Option<&First>) -> Attempt {
        match group.enforce_memory() {
            Ok(true) => Attempt::InForce,
            Ok(false) => {
                self.ended.store(true, Ordering::Release);
                match first.map(First::kill) {
                    Some(Ok(())) => Attempt::Ended,
                    _ => Attempt::NotNow,
                }
            }
            Err(error) => {
                warn_unless_gone(group, &error);
                Attempt::NotNow
            }
        }
    }
}

/// The outcome of one attempt to put a limit back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    InForce,
    Ended,
    /// A frozen sandbox gives no memory back.
    Frozen,
    /// A save goes on, or the sandbox uses too much.
    NotNow,
}

/// The sandboxes whose limit is to be put back. Each has one task at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrowing(Arc<Mutex<HashMap<SandboxId, Arc<Raised>>>>);

impl Narrowing {
    fn all(&self) -> MutexGuard<'_, HashMap<SandboxId, Arc<Raised>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sandbox's entry.
    pub(crate) fn of(&self, id: &SandboxId) -> Arc<Raised> {
        Arc::clone(self.all().entry(id.clone()).or_default())
    }

    /// Returns the sandbox's entry if no task attends to it, for a task that does from now on.
    fn begin(&self, id: &SandboxId) -> Option<Arc<Raised>> {
        let raised = self.of(id);
        (!raised.attended.swap(true, Ordering::AcqRel)).then_some(raised)
    }

    /// Whether the entry is still that of the sandbox, which may have ended and started again.
    fn holds(&self, id: &SandboxId, raised: &Arc<Raised>) -> bool {
        self.all().get(id).is_some_and(|known| Arc::ptr_eq(known, raised))
    }

    /// Forgets what is known of a sandbox that ends.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.all().remove(id);
    }

    /// Whether the sandbox was ended because it used more than its limit.
    pub(crate) fn has_ended(&self, id: &SandboxId) -> bool {
        self.all().get(id).is_some_and(|raised| raised.ended.load(Ordering::Acquire))
    }
}

impl Inner {
    /// Puts a raised limit of a sandbox that runs back, in a task of its own if that takes a while.
    ///
    /// Every thaw calls this. The task ends when it finds the sandbox frozen.
    pub(crate) fn narrow_soon(&self, id: &SandboxId) {
        let group = self.groups.group(id);
        if !is_widened(&group) {
            return;
        }
        let Some(raised) = self.narrowing.begin(id) else { return };
        let first = self.groups.first("put a memory limit back", id).ok().flatten();
        tokio::spawn(attend(self.narrowing.clone(), id.clone(), raised, group, first));
    }
}

/// Attempts to put a limit back until it is in force, or the sandbox is frozen.
async fn attend(narrowing: Narrowing, id: SandboxId, raised: Arc<Raised>, group: Group, first: Option<First>) {
    while narrowing.holds(&id, &raised) {
        let (entry, there, end) = (Arc::clone(&raised), group.clone(), first.clone());
        let made = blocking(move || Ok(entry.attempt(&there, end.as_ref()))).await;
        match made.unwrap_or(Attempt::InForce) {
            Attempt::NotNow => tokio::time::sleep(PAUSE).await,
            Attempt::Ended => {
                tracing::warn!(sandbox = %id, "a sandbox used more than its memory limit after a save or a restore, ended it");
                return;
            }
            Attempt::InForce | Attempt::Frozen => {
                if raised.rests(&group) {
                    return;
                }
            }
        }
    }
}

fn is_widened(group: &Group) -> bool {
    group.noted_memory().is_ok_and(|noted| noted.is_some())
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
        let raised = narrowing.begin(&id).unwrap();
        assert!(narrowing.clone().begin(&id).is_none() && narrowing.holds(&id, &raised));
        narrowing.forget(&id);
        assert!(narrowing.begin(&id).is_some() && !narrowing.holds(&id, &raised));
    }
}
