//! A host with a real pool, network and store, and an engine that only pretends.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use roost_disk::{Existing, Pool, PoolConfig, Templates, build_mini};
use roost_engine::{Engine, FakeEngine};
use roost_host::{CapabilityPolicy, Host, HostConfig, Parts};
use roost_model::{Capability, CreateSandbox, EventKind, IdlePolicy, Limits, SandboxView};
use roost_store::SqliteStore;

/// Folders and names of one test; takes everything down again, also after a panic.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
    tag: String,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("roost-host-").tempdir_in("/var/tmp").unwrap();
        let tag = folder
            .path()
            .to_string_lossy()
            .bytes()
            .fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)) & 0x00ff_ffff);
        Self { folder, tag: format!("{tag:06x}") }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn runtime(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn network(&self) -> roost_net::Config {
        roost_net::Config::new(&self.tag, self.runtime())
    }

    pub(crate) async fn host(&self, engine: &FakeEngine) -> Host {
        for folder in [self.data(), self.runtime()] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let mut config = PoolConfig::new(self.data());
        config.size = Some(512 << 20);
        let templates = Templates::open(&self.data(), &self.runtime()).unwrap();
        if templates.list().unwrap().is_empty() {
            build_mini(&templates, &"mini".parse().unwrap(), Existing::Refuse, &|_| ()).unwrap();
        }
        let limits = Limits { cpus: 2.0, memory: 1 << 30, disk: 512 << 20, pids: 1000, images: None };
        let parts = Parts {
            config: HostConfig {
                data_dir: self.data(),
                instance: self.tag.clone(),
                domain: None,
                ssh: None,
                default_template: "base".to_owned(),
                template_folders: Vec::new(),
                default_engine: roost_model::EngineChoice::Auto,
                default_limits: Limits::default(),
                host_limits: limits,
                capabilities: CapabilityPolicy { default: BTreeSet::new(), allowed: Capability::ALL.into() },
                default_idle: IdlePolicy::default(),
            },
            store: Arc::new(SqliteStore::open(&self.data().join("roost.db")).unwrap()),
            pool: Pool::open(&config).unwrap(),
            templates,
            network: self.network(),
            engines: vec![Arc::new(engine.clone()) as Arc<dyn Engine>],
        };
        Host::open(parts).await.unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let network = roost_net::destroy(&self.network());
        let templates = Templates::unmount_all(&self.runtime());
        let pool = Pool::unmount(&self.data());
        if !std::thread::panicking() {
            network.unwrap();
            templates.unwrap();
            pool.unwrap();
        }
    }
}

/// The runtime, and with it every actor, ends before the bench is taken down.
pub(crate) fn run(test: impl AsyncFnOnce(&Bench, FakeEngine)) {
    let bench = Bench::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(test(&bench, FakeEngine::default()));
}

pub(crate) fn named(name: &str) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), ..CreateSandbox::default() }
}

/// Waits on the event log until a sandbox has had this event.
pub(crate) async fn wait_for(host: &Host, sandbox: &SandboxView, kind: EventKind) {
    let mut reader = host.events().follow(0, Some(sandbox.id.clone()));
    let wait = async { while reader.next().await.unwrap().kind != kind {} };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the event comes");
}
