//! All sandboxes of an engine, as groups of processes.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use roost_engine::{Counters, EngineError, Exited, Presence, Step, Usage};
use roost_model::{Limits, SandboxId};
use roost_sys::cgroup::{CgroupError, Cgroups, Group, GroupCounters, GroupLimits};

use crate::watch::{First, Watcher, handle_on, open_member};

/// A sandbox whose processes do not end within this time after `SIGKILL` hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// The groups of one engine of one instance, and the first processes in them.
#[derive(Debug)]
pub struct Groups {
    /// The control groups.
    pub cgroups: Cgroups,
    /// The first processes.
    pub watcher: Watcher,
}

impl Groups {
    /// Makes the instance's folders; what is in them already stays.
    ///
    /// Orphaned first processes come to this process from here on, to be reaped.
    pub fn prepare(cgroups: Cgroups) -> Result<Self, PrepareError> {
        cgroups.prepare()?;
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).map_err(|e| PrepareError::Subreaper(e.into()))?;
        Ok(Self { cgroups, watcher: Watcher::default() })
    }

    /// The group of a sandbox, whether it exists or not.
    pub fn group(&self, id: &SandboxId) -> Group {
        self.cgroups.group(id.as_str())
    }

    /// The first process of a sandbox, if it runs.
    pub fn first(&self, step: Step, id: &SandboxId) -> Result<Option<First>, EngineError> {
        let found = self.watcher.find(id.as_str(), &self.group(id));
        found.map_err(|source| EngineError::Io { step, id: id.clone(), source })
    }

    /// Ends everything in the group called `name` and removes it.
    pub async fn clear(&self, name: &str) -> io::Result<()> {
        let group = self.cgroups.group(name);
        if let Some(first) = self.watcher.find(name, &group)? {
            if group.is_frozen().unwrap_or(false) {
                let group = group.clone();
                blocking(move || doom_frozen(&group)).await?;
            }
            first.kill()?;
            // v1 keeps frozen processes where they are, killed or not.
            if group.exists() {
                group.thaw().map_err(io::Error::other)?;
            }
            tokio::time::timeout(KILL_TIMEOUT, first.gone()).await?;
        }
        blocking(move || {
            end_members(&group)?;
            group.remove().map_err(io::Error::other)
        })
        .await
    }

    /// Ends everything of a sandbox.
    pub async fn kill(&self, id: &SandboxId) -> Result<(), EngineError> {
        let cleared = self.clear(id.as_str()).await;
        cleared.map_err(|source| EngineError::Io { step: "end all processes", id: id.clone(), source })
    }

    /// Is it running, frozen or absent?
    pub fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError> {
        let step = "look for processes";
        if self.first(step, id)?.is_none() {
            return Ok(Presence::Absent);
        }
        let group = self.group(id);
        match group.is_frozen() {
            Ok(true) => Ok(Presence::Frozen),
            Ok(false) => Ok(Presence::Running),
            Err(_) if !group.exists() => Ok(Presence::Absent),
            Err(e) => Err(EngineError::Io { step, id: id.clone(), source: io::Error::other(e) }),
        }
    }

    /// Resolves when the first process is gone; at once if there is none.
    pub fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError> {
        Ok(match self.first("look for processes", id)? {
            Some(first) => Box::pin(first.gone()),
            None => Box::pin(std::future::ready(())),
        })
    }

    /// What it uses now.
    pub async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError> {
        let usage = self.on_group("read usage", id, |group| group.usage()).await?;
        Ok(Usage {
            cpu_us: usage.cpu_us,
            memory: usage.memory,
            memory_anon: usage.memory.saturating_sub(usage.file_cache),
            pids: usage.pids,
            oom_kills: usage.oom_kills,
            pids_refused: usage.pids_refused,
            sockets: usage.sockets,
        })
    }

    /// What it has used so far, as its engine reads it.
    pub async fn counters(
        &self,
        id: &SandboxId,
        read: impl FnOnce(&Group) -> Result<GroupCounters, CgroupError> + Send + 'static,
    ) -> Result<Counters, EngineError> {
        let used = self.on_group("read counters", id, move |group| read(&group)).await?;
        Ok(Counters { cpu_us: used.cpu_us, disk: used.disk, network: used.network })
    }

    /// Clears every group that is neither of a `known` sandbox nor `kept`; returns their names.
    pub async fn sweep(&self, known: &[SandboxId], kept: impl Fn(&str) -> bool) -> Result<Vec<String>, CgroupError> {
        let mut removed = Vec::new();
        for name in self.cgroups.names()? {
            if known.iter().any(|id| id.as_str() == name) || kept(&name) {
                continue;
            }
            match self.clear(&name).await {
                Ok(()) => removed.push(name),
                Err(error) => tracing::warn!(%error, group = %name, "failed to remove a leftover group"),
            }
        }
        Ok(removed)
    }

    /// Removes the instance's own folders when no group is left in them.
    pub fn remove_if_empty(&self) {
        if self.cgroups.names().is_ok_and(|names| names.is_empty()) {
            self.cgroups.remove().ok();
        }
    }

    /// Does something with the group of a sandbox that runs.
    pub async fn on_group<T: Send + 'static>(
        &self,
        step: Step,
        id: &SandboxId,
        work: impl FnOnce(Group) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, EngineError> {
        let group = self.group(id);
        let done = blocking(move || {
            if !group.exists() {
                return Ok(None);
            }
            work(group).map(Some).map_err(io::Error::other)
        });
        match done.await {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(EngineError::NotRunning { id: id.clone() }),
            Err(source) => Err(EngineError::Io { step, id: id.clone(), source }),
        }
    }
}

/// Why groups cannot be used here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// Control groups are missing or cannot be prepared.
    #[error("failed to prepare control groups")]
    Cgroups(#[from] CgroupError),
    /// Orphaned sandboxes would not come to this process.
    #[error("failed to become the reaper of orphaned processes")]
    Subreaper(#[source] io::Error),
}

/// Sends every frozen process its end before they are thawed.
///
/// With the first process alone the others would go on for a moment, and change a disk whose processes are already saved.
fn doom_frozen(group: &Group) -> io::Result<()> {
    let handles: Vec<(u32, OwnedFd)> =
        group.pids().map_err(io::Error::other)?.into_iter().filter_map(|pid| Some((pid, handle_on(pid)?))).collect();
    // Looked at again: a number may have come to mean another process before its handle was opened.
    let still = group.pids().map_err(io::Error::other)?;
    for (_, handle) in handles.iter().filter(|(pid, _)| still.contains(pid)) {
        // It may have been killed by somebody else just now.
        rustix::process::pidfd_send_signal(handle, rustix::process::Signal::KILL).ok();
    }
    Ok(())
}

/// What is left without a first process: a launch that broke off.
fn end_members(group: &Group) -> io::Result<()> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let pids = group.pids().map_err(io::Error::other)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in pids {
            if let Some(pidfd) = open_member(pid, group)? {
                // It may end by itself just now.
                rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).ok();
            }
        }
        group.thaw().map_err(io::Error::other)?;
        if Instant::now() > deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs in a task of its own: a caller that stops waiting must not leave a launch half-way.
pub async fn to_the_end<T: Send + 'static>(
    step: Step,
    id: &SandboxId,
    work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(e) => Err(EngineError::Io { step, id: id.clone(), source: io::Error::other(e) }),
    }
}

/// Runs what may block on a thread for that.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// A sandbox's limits, in the words of control groups.
pub fn group_limits(limits: &Limits) -> GroupLimits {
    // Limits are checked at the border; a nonsensical number becomes the smallest or largest the kernel takes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    let milli_cpus = (limits.cpus * 1000.0).round() as u64;
    GroupLimits { memory: limits.memory, milli_cpus, pids: limits.pids }
}
