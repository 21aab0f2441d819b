//! The engine as the layers above see it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use roost_engine::{
    Capabilities, Counters, Dumped, Engine, EngineError, EngineReport, Exited, Presence, Running, StartSpec, Step,
    Usage,
};
use roost_engine_group::{Groups, PrepareError, Reserve, blocking, to_the_end};
use roost_model::{EngineKind, Limits, SandboxId};
use roost_sys::cgroup::{CgroupError, Cgroups, Group, Layout};

use crate::control::{Place, is_broken};
use crate::keeper::Keepers;
use crate::limits::Narrowing;
use crate::tool::Tool;
use crate::{limits, probe, work};

/// How long a sentry that has broken off takes to be gone.
const LAST_BREATH: Duration = Duration::from_secs(2);

/// Starting a sentry keeps a processor busy for a tenth of a second.
const FIRST_ANSWER: Duration = Duration::from_millis(500);

/// How a gVisor engine is set up.
#[derive(Debug, Clone)]
pub struct GvisorConfig {
    /// The instance's tag; control groups are named after it.
    pub tag: String,
    /// The keeper's program.
    pub keeper: PathBuf,
    /// The guest's program, static; it appears read-only in every sandbox.
    pub guest: PathBuf,
    /// runsc, or a folder with it; the host's own where there is none.
    pub runsc: Option<PathBuf>,
    /// How many sentries wait for a sandbox, once there was one; each costs memory.
    pub reserve: usize,
}

/// Why the gVisor engine cannot be opened here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Control groups are missing.
    #[error("failed to find control groups")]
    Cgroups(#[from] CgroupError),
    /// Control groups cannot be prepared.
    #[error(transparent)]
    Groups(#[from] PrepareError),
}

/// Runs sandboxes on gVisor's kernel.
#[derive(Debug, Clone)]
pub struct GvisorEngine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: GvisorConfig,
    pub(crate) groups: Groups,
    /// runsc, or why there is none.
    pub(crate) tool: Result<Tool, String>,
    /// Sentries made ahead; none without runsc.
    pub(crate) reserve: Option<Arc<Reserve<Keepers>>>,
    /// Sandboxes whose raised memory limit a task puts back.
    pub(crate) narrowing: Narrowing,
}

impl GvisorEngine {
    /// Prepares this instance's control groups and looks for runsc; needs a tokio runtime.
    ///
    /// Opens without runsc too, and says so: sandboxes of an earlier daemon go on undisturbed and are found by their ids.
    pub async fn open(config: GvisorConfig) -> Result<Self, OpenError> {
        let groups = Groups::prepare(Cgroups::new(Layout::detect()?, &format!("roost-{}-gvisor", config.tag)))?;
        let tool = Tool::find(config.runsc.as_deref()).await;
        let reserve = tool.as_ref().ok().map(|tool| {
            let (program, guest, runsc) = (config.keeper.clone(), config.guest.clone(), tool.program.clone());
            let memory = AtomicU64::new(Limits::default().memory);
            Reserve::new(Keepers { program, guest, runsc, memory }, groups.cgroups.clone(), config.reserve)
        });
        Ok(Self { inner: Arc::new(Inner { config, groups, tool, reserve, narrowing: Narrowing::default() }) })
    }

    /// Makes what shall wait, without waiting for a reason, and resolves when it waits.
    pub async fn ready(&self) {
        self.inner.get_ready();
        if let Some(reserve) = &self.inner.reserve {
            reserve.settled().await;
        }
    }

    /// Ends the reserve and, when no sandbox is left, removes the instance's control groups. Sandboxes run on.
    pub async fn close(&self) {
        if let Some(reserve) = &self.inner.reserve {
            reserve.close().await;
        }
        self.inner.groups.remove_if_empty();
    }
}

impl Inner {
    /// Gets ready for the next one, which comes where there were some before.
    fn get_ready(&self) {
        if let Some(reserve) = &self.reserve {
            reserve.refill();
        }
    }

    /// The same, once whoever waits for a sandbox has had its first answer from it.
    fn get_ready_soon(&self) {
        let Some(reserve) = self.reserve.clone() else { return };
        tokio::spawn(async move {
            tokio::time::sleep(FIRST_ANSWER).await;
            reserve.refill();
        });
    }

    fn owns(&self, name: &str) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.owns(name))
    }

    pub(crate) fn tool(&self, what: Step) -> Result<&Tool, EngineError> {
        let unfit = |why: &String| EngineError::Unfit { engine: EngineKind::Gvisor, what, why: why.clone() };
        self.tool.as_ref().map_err(unfit)
    }

    /// Does something with the place of a sandbox that runs.
    pub(crate) async fn in_place<T: Send + 'static>(
        &self,
        step: Step,
        id: &SandboxId,
        work: impl FnOnce(Place) -> io::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let none = || EngineError::NotRunning { id: id.clone() };
        let first = self.groups.first(step, id)?.ok_or_else(none)?;
        match blocking(move || Place::of(&first)?.map(work).transpose()).await {
            Ok(done) => done.ok_or_else(none),
            Err(source) => Err(self.failed(step, id, source).await),
        }
    }

    /// Why a talk with a sentry failed: a sentry that breaks off is at its end, mostly.
    pub(crate) async fn failed(&self, step: Step, id: &SandboxId, source: io::Error) -> EngineError {
        let ends = is_broken(&source) && self.ends(id).await;
        if ends { EngineError::NotRunning { id: id.clone() } } else { EngineError::Io { step, id: id.clone(), source } }
    }

    /// Waits for what was killed to be gone, which it cannot be as long as it stands still.
    async fn ends(&self, id: &SandboxId) -> bool {
        let Ok(exited) = self.groups.exited(id) else { return false };
        let thawed = self.groups.on_group("thaw", id, |group| group.thaw()).await;
        thawed.is_ok() && tokio::time::timeout(LAST_BREATH, exited).await.is_ok()
    }
}

#[async_trait]
impl Engine for GvisorEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Gvisor
    }

    fn capabilities(&self) -> Capabilities {
        let runs = self.inner.tool.is_ok();
        Capabilities {
            freeze: self.inner.groups.cgroups.layout().freezer.is_some(),
            save_memory: runs,
            live_limits: false,
            survives_daemon: true,
            own_kernel: runs,
            tmp_on_disk: false,
            limits_end_all: true,
            counts_processes: false,
            setuid: false,
        }
    }

    fn unfit(&self) -> Option<String> {
        self.inner.tool.as_ref().err().cloned()
    }

    async fn start(&self, spec: StartSpec) -> Result<Running, EngineError> {
        let (id, inner) = (spec.id.clone(), Arc::clone(&self.inner));
        to_the_end("start", &id, async move {
            let started = inner.start(spec, None).await;
            inner.get_ready_soon();
            started
        })
        .await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.narrowing.forget(id);
        self.inner.groups.kill(id).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError> {
        let seen = self.inner.groups.inspect(id)?;
        if seen != Presence::Running {
            return Ok(seen);
        }
        self.inner.narrow_soon(id);
        // A daemon that died while it saved leaves a sentry that runs, with nothing running inside.
        match self.inner.in_place("look for processes", id, |place| place.may_stand_still()).await {
            Ok(true) => Ok(Presence::Frozen),
            Ok(false) => Ok(Presence::Running),
            Err(EngineError::NotRunning { .. }) => Ok(Presence::Absent),
            Err(error) => Err(error),
        }
    }

    async fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError> {
        self.inner.groups.exited(id)
    }

    async fn freeze(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.inner.groups.on_group("freeze", id, |group| group.freeze()).await
    }

    async fn thaw(&self, id: &SandboxId) -> Result<(), EngineError> {
        // Whoever waits for it waits for this alone.
        self.inner.groups.on_group("thaw", id, |group| group.thaw()).await?;
        self.inner.in_place("thaw", id, |place| place.catch_up()).await?;
        self.inner.narrow_soon(id);
        Ok(())
    }

    async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError> {
        let (id, into, inner) = (id.clone(), into.to_owned(), Arc::clone(&self.inner));
        to_the_end("save memory", &id.clone(), async move {
            let dumped = inner.dump(&id, &into, room).await;
            inner.get_ready();
            dumped
        })
        .await
    }

    async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError> {
        let (id, image, inner) = (spec.id.clone(), image.to_owned(), Arc::clone(&self.inner));
        to_the_end("restore memory", &id, async move {
            let restored = inner.restore(spec, &image).await;
            inner.get_ready_soon();
            restored
        })
        .await
    }

    fn image_version(&self) -> Option<String> {
        self.inner.tool.as_ref().ok().map(Tool::image_version)
    }

    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), EngineError> {
        let limits = limits::outer(limits);
        let set = move |group: Group| group.set_limits(&limits).and_then(|()| group.forget_widening());
        self.inner.groups.on_group("set limits", id, set).await
    }

    async fn set_hostname(&self, id: &SandboxId, hostname: &str) -> Result<(), EngineError> {
        let (step, hostname) = ("change the host name", hostname.to_owned());
        let stands_still = self.inner.groups.inspect(id)? == Presence::Frozen;
        let work = move |place: Place| {
            if stands_still { place.want_hostname(&hostname) } else { place.connect()?.set_hostname(&hostname) }
        };
        self.inner.in_place(step, id, work).await
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError> {
        let mut usage = self.inner.groups.usage(id).await?;
        // The kernel did not count it, where it left that to the engine.
        usage.oom_kills += u64::from(self.inner.narrowing.has_ended(id));
        Ok(usage)
    }

    async fn queued(&self, _id: &SandboxId, _enough: u64) -> Result<u64, EngineError> {
        Ok(0)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EngineError> {
        self.inner.groups.counters(id, work::counters).await
    }

    async fn sweep(&self, known: &[SandboxId]) -> Result<Vec<String>, EngineError> {
        let swept = self.inner.groups.sweep(known, |name| self.inner.owns(name)).await;
        swept.map_err(|e| EngineError::Unfit {
            engine: EngineKind::Gvisor,
            what: "list its control groups",
            why: e.to_string(),
        })
    }

    async fn report(&self) -> EngineReport {
        probe::report(&self.inner.config, self.inner.groups.cgroups.layout(), self.inner.tool.as_ref())
    }
}
