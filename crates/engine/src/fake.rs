//! An engine without a kernel: for tests of the layers above, never in the product.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use roost_model::{EngineKind, Limits, SandboxId, SavedProcess};
use tokio::sync::watch;

use crate::{
    Capabilities, Counters, Dumped, Engine, EngineError, EngineReport, Exited, GuestLink, Presence, Running, StartSpec,
    Usage,
};

/// The one file of an image that a fake makes.
const IMAGE: &str = "fake.img";

/// Remembers what it was told and does what a real engine would seem to do.
#[derive(Debug, Clone, Default)]
pub struct FakeEngine {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    running: HashMap<SandboxId, Fake>,
    fail_next_start: Option<String>,
    refuse_next_dump: Option<String>,
    starts: u64,
}

#[derive(Debug)]
struct Fake {
    frozen: bool,
    counters: Counters,
    /// Dropped when the sandbox ends, which every watcher notices.
    alive: watch::Sender<()>,
}

impl FakeEngine {
    /// Lets the next start fail with this reason.
    pub fn fail_next_start(&self, why: &str) {
        self.lock().fail_next_start = Some(why.to_owned());
    }

    /// Lets the next dump be refused with this reason.
    pub fn refuse_next_dump(&self, why: &str) {
        self.lock().refuse_next_dump = Some(why.to_owned());
    }

    /// Ends a sandbox as if its processes had died.
    pub fn crash(&self, id: &SandboxId) {
        self.lock().running.remove(id);
    }

    /// Lets a sandbox seem to have used this much more.
    pub fn use_up(&self, id: &SandboxId, more: Counters) {
        if let Some(fake) = self.lock().running.get_mut(id) {
            fake.counters.cpu_us += more.cpu_us;
            fake.counters.disk += more.disk;
            fake.counters.network += more.network;
        }
    }

    /// How many starts it has seen.
    pub fn starts(&self) -> u64 {
        self.lock().starts
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_frozen(&self, id: &SandboxId, frozen: bool) -> Result<(), EngineError> {
        let mut inner = self.lock();
        let fake = inner.running.get_mut(id).ok_or_else(|| EngineError::NotRunning { id: id.clone() })?;
        fake.frozen = frozen;
        Ok(())
    }
}

#[async_trait]
impl Engine for FakeEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Fake
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            freeze: true,
            save_memory: true,
            live_limits: true,
            survives_daemon: false,
            own_kernel: false,
            tmp_on_disk: true,
            limits_end_all: false,
            counts_processes: true,
            setuid: true,
        }
    }

    async fn start(&self, spec: StartSpec) -> Result<Running, EngineError> {
        let mut inner = self.lock();
        inner.starts += 1;
        if let Some(detail) = inner.fail_next_start.take() {
            return Err(EngineError::Failed { step: "start", id: spec.id, detail });
        }
        inner
            .running
            .insert(spec.id, Fake { frozen: false, counters: Counters::default(), alive: watch::Sender::new(()) });
        Ok(Running { link: GuestLink::Slot, parts_us: Vec::new() })
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.lock().running.remove(id);
        Ok(())
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError> {
        Ok(match self.lock().running.get(id) {
            None => Presence::Absent,
            Some(fake) if fake.frozen => Presence::Frozen,
            Some(_) => Presence::Running,
        })
    }

    async fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError> {
        let watcher = self.lock().running.get(id).map(|fake| fake.alive.subscribe());
        Ok(Box::pin(async move {
            if let Some(mut watcher) = watcher {
                while watcher.changed().await.is_ok() {}
            }
        }))
    }

    async fn freeze(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.set_frozen(id, true)
    }

    async fn thaw(&self, id: &SandboxId) -> Result<(), EngineError> {
        self.set_frozen(id, false)
    }

    async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError> {
        let refused = {
            let mut inner = self.lock();
            match inner.running.get(id) {
                Some(fake) if fake.frozen => inner.refuse_next_dump.take(),
                _ => return Err(EngineError::NotRunning { id: id.clone() }),
            }
        };
        if let Some(why) = refused {
            return Err(EngineError::NotSaved { id: id.clone(), process: Some("fake (1)".into()), why });
        }
        let bytes = u64::try_from(id.as_str().len()).unwrap_or_default();
        if bytes > room {
            let why = format!("its image would take more than {room} bytes");
            return Err(EngineError::NotSaved { id: id.clone(), process: None, why });
        }
        let written = std::fs::write(into.join(IMAGE), id.as_str());
        written.map_err(|source| EngineError::Io { step: "save memory", id: id.clone(), source })?;
        let processes = vec![SavedProcess { pid: 1, name: "fake".into() }];
        Ok(Dumped { bytes, not_kept: Vec::new(), processes, parts_us: Vec::new() })
    }

    async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError> {
        if !image.join(IMAGE).exists() {
            return Err(EngineError::ImageUnfit { id: spec.id, why: format!("`{IMAGE}` is missing") });
        }
        self.start(spec).await
    }

    fn image_version(&self) -> Option<String> {
        Some("fake 1".to_owned())
    }

    async fn set_limits(&self, id: &SandboxId, _limits: &Limits) -> Result<(), EngineError> {
        if self.lock().running.contains_key(id) { Ok(()) } else { Err(EngineError::NotRunning { id: id.clone() }) }
    }

    async fn set_hostname(&self, id: &SandboxId, _hostname: &str) -> Result<(), EngineError> {
        if self.lock().running.contains_key(id) { Ok(()) } else { Err(EngineError::NotRunning { id: id.clone() }) }
    }

    async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError> {
        if self.lock().running.contains_key(id) {
            Ok(Usage { pids: 1, ..Usage::default() })
        } else {
            Err(EngineError::NotRunning { id: id.clone() })
        }
    }

    async fn queued(&self, _id: &SandboxId, _enough: u64) -> Result<u64, EngineError> {
        Ok(0)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters, EngineError> {
        let found = self.lock().running.get(id).map(|fake| fake.counters);
        found.ok_or_else(|| EngineError::NotRunning { id: id.clone() })
    }

    async fn sweep(&self, known: &[SandboxId]) -> Result<Vec<String>, EngineError> {
        let mut inner = self.lock();
        let strange: Vec<SandboxId> = inner.running.keys().filter(|id| !known.contains(id)).cloned().collect();
        for id in &strange {
            inner.running.remove(id);
        }
        Ok(strange.iter().map(ToString::to_string).collect())
    }

    async fn report(&self) -> EngineReport {
        EngineReport { engine: EngineKind::Fake, checks: Vec::new() }
    }
}
