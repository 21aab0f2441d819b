//! The engine as the layers above see it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use roost_engine::{
    Capabilities, Counters, Dumped, Engine, EngineError, EngineReport, Exited, Presence, Running, StartSpec, Usage,
};
use roost_engine_group::{Groups, PrepareError, Reserve, blocking, group_limits, to_the_end};
use roost_model::{EngineKind, Limits, SandboxId};
use roost_sys::cgroup::{CgroupError, Cgroups, Group, Layout, own_processors};

use crate::filter::Filters;
use crate::launcher::Launchers;
use crate::memory::Memory;
use crate::mother::Mother;
use crate::probe;
use crate::processors::{Processors, confine};
use crate::queues::queued;

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
    /// Control groups are missing.
    #[error("failed to find control groups")]
    Cgroups(#[from] CgroupError),
    /// Control groups cannot be prepared.
    #[error(transparent)]
    Groups(#[from] PrepareError),
    /// The processors of this host are not known.
    #[error("failed to read which processors this daemon may use")]
    Processors(#[source] std::io::Error),
    /// No filter for this processor.
    #[error("failed to compile the system call filter")]
    Filter(#[from] seccompiler::BackendError),
}

/// Runs sandboxes in namespaces of this host's kernel.
#[derive(Debug, Clone)]
pub struct NativeEngine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: NativeConfig,
    pub(crate) groups: Groups,
    pub(crate) filters: Filters,
    pub(crate) mother: Arc<Mother>,
    pub(crate) reserve: Arc<Reserve<Launchers>>,
    pub(crate) memory: Memory,
    pub(crate) processors: Processors,
}

impl NativeEngine {
    /// Prepares this instance's control groups and its reserve of launchers; needs a tokio runtime.
    ///
    /// Sandboxes of an earlier daemon go on undisturbed and are found by their ids; one that it was saving, when CRIU lets it go.
    pub async fn open(config: NativeConfig) -> Result<Self, OpenError> {
        let groups = Groups::prepare(Cgroups::new(Layout::detect()?, &format!("roost-{}", config.tag)))?;
        let mother = Arc::new(Mother::new(config.launcher.clone()));
        let reserve = Reserve::new(Launchers { mother: Arc::clone(&mother) }, groups.cgroups.clone(), config.reserve);
        let filters = Filters::new()?;
        let memory = Memory::open(&config, &mother).await;
        let processors = own_processors().map(Processors::new).map_err(OpenError::Processors)?;
        let inner = Inner { config, groups, filters, mother, reserve, memory, processors };
        if let Err(error) = inner.sweep_pages() {
            tracing::warn!(%error, "failed to look for what servers of pages left");
        }
        inner.reserve.refill();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Ends the reserve and, when no sandbox is left, removes the instance's control groups. Sandboxes run on.
    pub async fn close(&self) {
        self.inner.reserve.close().await;
        self.inner.mother.close().await;
        self.inner.groups.remove_if_empty();
    }
}

impl Inner {
    pub(crate) fn group(&self, id: &SandboxId) -> Group {
        self.groups.group(id)
    }
}

#[async_trait]
impl Engine for NativeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Native
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            freeze: self.inner.groups.cgroups.layout().freezer.is_some(),
            save_memory: self.inner.memory.criu().is_some(),
            live_limits: true,
            survives_daemon: true,
            own_kernel: false,
            tmp_on_disk: true,
            limits_end_all: false,
            counts_processes: true,
            setuid: true,
        }
    }

    async fn start(&self, spec: StartSpec) -> Result<Running, EngineError> {
        let (id, inner) = (spec.id.clone(), Arc::clone(&self.inner));
        to_the_end("start", &id, async move { inner.start(spec).await }).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.groups.kill(id).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError> {
        self.inner.await_earlier_dump(id).await;
        self.inner.groups.inspect(id)
    }

    async fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError> {
        self.inner.groups.exited(id)
    }

    async fn freeze(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.groups.on_group("freeze", id, |group| group.freeze()).await
    }

    async fn thaw(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.groups.on_group("thaw", id, |group| group.thaw()).await
    }

    async fn prepare_dump(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.await_pages(id).await
    }

    async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError> {
        let (id, into, inner) = (id.clone(), into.to_owned(), Arc::clone(&self.inner));
        to_the_end("save memory", &id.clone(), async move { inner.dump(&id, &into, room).await }).await
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
        let processors = self.inner.processors.choose(limits.milli_cpus);
        let set = move |group: Group| {
            group.set_limits(&limits)?;
            confine(&group, &processors);
            Ok(())
        };
        self.inner.groups.on_group("set limits", id, set).await
    }

    async fn set_hostname(&self, id: &SandboxId, hostname: &str) -> Result<(), EngineError> {
        let step = "change the host name";
        let found = self.inner.groups.first(step, id)?;
        let first = found.ok_or_else(|| EngineError::NotRunning { id: id.clone() })?;
        let hostname = hostname.to_owned();
        let renamed = blocking(move || first.set_hostname(hostname)).await;
        renamed.map_err(|source| EngineError::Io { step, id: id.clone(), source })
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError> {
        self.inner.groups.usage(id).await
    }

    async fn queued(&self, id: &SandboxId, enough: u64) -> Result<u64, EngineError> {
        let step = "read the queues of its sockets";
        let Some(first) = self.inner.groups.first(step, id)? else {
            return Err(EngineError::NotRunning { id: id.clone() });
        };
        let sum = blocking(move || queued(|name| first.network_table(name), enough)).await;
        sum.map_err(|source| EngineError::Io { step, id: id.clone(), source })
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EngineError> {
        self.inner.groups.counters(id, Group::counters).await
    }

    async fn sweep(&self, known: &[SandboxId]) -> Result<Vec<String>, EngineError> {
        let swept = self.inner.groups.sweep(known, |name| self.inner.reserve.owns(name)).await;
        swept.map_err(|e| EngineError::Unfit {
            engine: EngineKind::Native,
            what: "list its control groups",
            why: e.to_string(),
        })
    }

    async fn report(&self) -> EngineReport {
        probe::report(&self.inner.config, self.inner.groups.cgroups.layout(), &self.inner.memory)
    }
}
