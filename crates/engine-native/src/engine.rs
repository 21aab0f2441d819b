//! The engine as the layers above see it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use roost_engine::{
    Capabilities, Counters, Dumped, Engine, EngineError, EngineReport, Exited, Presence, Running, StartSpec, Step,
    Usage,
};
use roost_model::{EngineKind, Limits, SandboxId};
use roost_sys::cgroup::{CgroupError, Cgroups, Group, GroupLimits, Layout};

use crate::launcher::Reserve;
use crate::memory::Memory;
use crate::watch::{Watcher, handle_on, open_member};
use crate::{filter, probe};

/// A sandbox whose processes do not end within this time after `SIGKILL` hangs in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How a native engine is set up.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    /// The instance's tag; control groups are named after it.
    pub tag: String,
    /// The launcher's program.
    pub launcher: PathBuf,
    /// The guest's program, static; it appears read-only in every sandbox.
    pub guest: PathBuf,
    /// How many launchers wait in reserve; each is a small process.
    pub reserve: usize,
    /// CRIU: a program, or a folder with `loader`, `lib` and `criu.bin`; the host's own where there is none.
    pub criu: Option<PathBuf>,
    /// Whether large sandboxes may run before all their memory is there; sets `vm.unprivileged_userfaultfd` on the host.
    pub lazy_pages: bool,
    /// A folder for what was found out about this host; it may be emptied at any time.
    pub cache: PathBuf,
}

/// Why the native engine cannot be opened here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Control groups are missing or cannot be prepared.
    #[error("failed to prepare control groups")]
    Cgroups(#[from] CgroupError),
    /// No filter for this processor.
    #[error("failed to compile the system call filter")]
    Filter(#[from] seccompiler::BackendError),
    /// Orphaned sandboxes would not come to this process.
    #[error("failed to become the reaper of orphaned processes")]
    Subreaper(#[source] io::Error),
}

/// Runs sandboxes in namespaces of this host's kernel.
#[derive(Debug, Clone)]
pub struct NativeEngine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: NativeConfig,
    pub(crate) cgroups: Cgroups,
    pub(crate) filters: Vec<Vec<u64>>,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) watcher: Watcher,
    pub(crate) memory: Memory,
}

impl NativeEngine {
    /// Prepares this instance's control groups and its reserve of launchers; needs a tokio runtime.
    ///
    /// Sandboxes of an earlier daemon go on undisturbed and are found by their ids.
    pub async fn open(config: NativeConfig) -> Result<Self, OpenError> {
        let cgroups = Cgroups::new(Layout::detect()?, &format!("roost-{}", config.tag));
        cgroups.prepare()?;
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own)).map_err(|e| OpenError::Subreaper(e.into()))?;
        let reserve = Reserve::new(config.launcher.clone(), cgroups.clone(), config.reserve);
        let filters = filter::programs()?;
        let memory = Memory::open(&config).await;
        let inner = Inner { config, cgroups, filters, reserve, watcher: Watcher::default(), memory };
        inner.await_earlier_dumps().await;
        if let Err(error) = inner.sweep_pages() {
            tracing::warn!(%error, "failed to look for what servers of pages left");
        }
        inner.reserve.refill();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Ends the reserve and, when no sandbox is left, removes the instance's control groups. Sandboxes run on.
    pub async fn close(&self) {
        self.inner.reserve.close().await;
        match self.inner.cgroups.names() {
            Ok(names) if names.is_empty() => {
                self.inner.cgroups.remove().ok();
            }
            _ => {}
        }
    }
}

impl Inner {
    pub(crate) fn group(&self, id: &SandboxId) -> Group {
        self.cgroups.group(id.as_str())
    }

    /// Ends everything in the group called `name` and removes it.
    pub(crate) async fn clear(&self, name: &str) -> io::Result<()> {
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

    async fn on_group<T: Send + 'static>(
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
async fn to_the_end<T: Send + 'static>(
    step: Step,
    id: &SandboxId,
    work: impl Future<Output = Result<T, EngineError>> + Send + 'static,
) -> Result<T, EngineError> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(e) => Err(EngineError::Io { step, id: id.clone(), source: io::Error::other(e) }),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

pub(crate) fn group_limits(limits: &Limits) -> GroupLimits {
    // Limits are checked at the border; a nonsensical number becomes the smallest or largest the kernel takes.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "casts of floats saturate")]
    let milli_cpus = (limits.cpus * 1000.0).round() as u64;
    GroupLimits { memory: limits.memory, milli_cpus, pids: limits.pids }
}

#[async_trait]
impl Engine for NativeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            freeze: self.inner.cgroups.layout().freezer.is_some(),
            save_memory: self.inner.memory.criu().is_some(),
            live_limits: true,
            survives_daemon: true,
        }
    }

    async fn start(&self, spec: StartSpec) -> Result<Running, EngineError> {
        let (id, inner) = (spec.id.clone(), Arc::clone(&self.inner));
        to_the_end("start", &id, async move { inner.start(spec).await }).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.clear(id.as_str()).await.map_err(|source| EngineError::Io {
            step: "end all processes",
            id: id.clone(),
            source,
        })
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError> {
        let failed = |source| EngineError::Io { step: "look for processes", id: id.clone(), source };
        let group = self.inner.group(id);
        if self.inner.watcher.find(id.as_str(), &group).map_err(failed)?.is_none() {
            return Ok(Presence::Absent);
        }
        match group.is_frozen() {
            Ok(true) => Ok(Presence::Frozen),
            Ok(false) => Ok(Presence::Running),
            Err(_) if !group.exists() => Ok(Presence::Absent),
            Err(e) => Err(failed(io::Error::other(e))),
        }
    }

    async fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError> {
        let found = self.inner.watcher.find(id.as_str(), &self.inner.group(id));
        match found {
            Ok(Some(first)) => Ok(Box::pin(first.gone())),
            Ok(None) => Ok(Box::pin(std::future::ready(()))),
            Err(source) => Err(EngineError::Io { step: "look for processes", id: id.clone(), source }),
        }
    }

    async fn freeze(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.on_group("freeze", id, |group| group.freeze()).await
    }

    async fn thaw(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.on_group("thaw", id, |group| group.thaw()).await
    }

    async fn prepare_dump(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.await_pages(id).await
    }

    async fn dump(&self, id: &SandboxId, into: &Path) -> Result<Dumped, EngineError> {
        let (id, into, inner) = (id.clone(), into.to_owned(), Arc::clone(&self.inner));
        to_the_end("save memory", &id.clone(), async move { inner.dump(&id, &into).await }).await
    }

    async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError> {
        let (id, image, inner) = (spec.id.clone(), image.to_owned(), Arc::clone(&self.inner));
        to_the_end("restore memory", &id, async move { inner.restore(spec, &image).await }).await
    }

    fn image_version(&self) -> Option<String> {
        self.inner.memory.image_version()
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), EngineError> {
        let limits = group_limits(limits);
        self.inner.on_group("set limits", id, move |group| group.set_limits(&limits)).await
    }

    async fn set_hostname(&self, id: &SandboxId, hostname: &str) -> Result<(), EngineError> {
        let failed = |source| EngineError::Io { step: "change the host name", id: id.clone(), source };
        let found = self.inner.watcher.find(id.as_str(), &self.inner.group(id)).map_err(failed)?;
        let first = found.ok_or_else(|| EngineError::NotRunning { id: id.clone() })?;
        let hostname = hostname.to_owned();
        blocking(move || first.set_hostname(hostname)).await.map_err(failed)
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError> {
        let usage = self.inner.on_group("read usage", id, |group| group.usage()).await?;
        Ok(Usage {
            cpu_us: usage.cpu_us,
            memory: usage.memory,
            memory_anon: usage.memory.saturating_sub(usage.file_cache),
            pids: usage.pids,
            oom_kills: usage.oom_kills,
        })
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EngineError> {
        let used = self.inner.on_group("read counters", id, |group| group.counters()).await?;
        Ok(Counters { cpu_us: used.cpu_us, disk: used.disk, network: used.network })
    }

    async fn sweep(&self, known: &[SandboxId]) -> Result<Vec<String>, EngineError> {
        let names = self.inner.cgroups.names().map_err(|e| EngineError::Unfit {
            engine: EngineKind::Native,
            what: "list its control groups",
            why: e.to_string(),
        })?;
        let mut removed = Vec::new();
        for name in names {
            if known.iter().any(|id| id.as_str() == name) || self.inner.reserve.owns(&name) {
                continue;
            }
            match self.inner.clear(&name).await {
                Ok(()) => removed.push(name),
                Err(error) => {
                    tracing::warn!(%error, group = %name, "failed to remove a leftover group")
                }
            }
        }
        Ok(removed)
    }

    async fn report(&self) -> EngineReport {
        probe::report(&self.inner.config, self.inner.cgroups.layout(), &self.inner.memory)
    }
}
