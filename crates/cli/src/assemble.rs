//! Puts a host together from a configuration: store, pool, templates, engines.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use roost_disk::{FullQuotas, Pool, PoolConfig, Templates, provide_folder, put_aside};
use roost_engine::Engine;
use roost_engine_gvisor::{GvisorConfig, GvisorEngine};
use roost_engine_native::{NativeConfig, NativeEngine};
use roost_host::{Host, HostConfig, Parts};
use roost_model::{IdlePolicy, Limits, SshView};
use roost_store::SqliteStore;

use crate::config::ServeConfig;
use crate::data_folder::DataFolder;

const GUEST: &[u8] = include_bytes!(env!("ROOST_GUEST_BIN"));
const KEEPER: &[u8] = include_bytes!(env!("ROOST_KEEP_BIN"));
const LAUNCHER: &[u8] = include_bytes!(env!("ROOST_LAUNCH_BIN"));
/// Each is a process of a few hundred kilobytes that saves a create the start of one.
const LAUNCHERS_IN_RESERVE: usize = 4;
/// Creates and wakes that come one after the other find it; made once there was a sandbox on gVisor.
const SENTRIES_IN_RESERVE: usize = 1;

/// A host with the engines that it must close when everything is taken down.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) host: Host,
    pub(crate) engines: Engines,
    pub(crate) network: roost_net::Config,
}

/// What isolates sandboxes here.
#[derive(Debug)]
pub(crate) struct Engines {
    native: NativeEngine,
    gvisor: GvisorEngine,
}

impl Engines {
    async fn open(config: &ServeConfig, folder: &DataFolder) -> anyhow::Result<Self> {
        let guest = unpack(&folder.path, "roost-guest", &guest_program()?)?;
        // Where `make up` puts them; a host's own are found without.
        let brought = |name: &str| Some(folder.path.join(name)).filter(|path| path.exists());
        let native = NativeConfig {
            tag: folder.instance.clone(),
            launcher: unpack(&folder.path, "roost-launch", LAUNCHER)?,
            guest: guest.clone(),
            reserve: LAUNCHERS_IN_RESERVE,
            criu: brought("criu"),
            lazy_pages: config.lazy_pages,
            cache: folder.path.join("cache"),
        };
        let gvisor = GvisorConfig {
            tag: folder.instance.clone(),
            keeper: unpack(&folder.path, "roost-keep", KEEPER)?,
            guest,
            runsc: brought("runsc"),
            reserve: SENTRIES_IN_RESERVE,
        };
        Ok(Self {
            native: NativeEngine::open(native).await.context("failed to open the native engine")?,
            gvisor: GvisorEngine::open(gvisor).await.context("failed to open the gVisor engine")?,
        })
    }

    fn all(&self) -> Vec<Arc<dyn Engine>> {
        vec![Arc::new(self.native.clone()), Arc::new(self.gvisor.clone())]
    }

    /// Lets go of what they keep ready. Sandboxes run on.
    pub(crate) async fn close(&self) {
        self.native.close().await;
        self.gvisor.close().await;
    }
}

/// Opens everything and carries all sandboxes to a settled state.
pub(crate) async fn assemble(
    config: &ServeConfig,
    folder: &DataFolder,
    ssh: Option<SshView>,
) -> anyhow::Result<Assembled> {
    let store = SqliteStore::open(&folder.path.join("roost.db")).context("failed to open the store")?;
    let mut pool_config = PoolConfig::new(&folder.path);
    pool_config.size = config.pool_size;
    pool_config.full_quotas = full_quotas(config.full_quotas);
    let pool = tokio::task::spawn_blocking(move || Pool::open(&pool_config))
        .await?
        .context("failed to open the pool of disks")?;
    let templates = Templates::open(&folder.path, &folder.runtime).context("failed to open the templates")?;
    roost_host::raise_tables();
    let engines = Engines::open(config, folder).await?;
    let mut network = roost_net::Config::new(&folder.instance, &folder.runtime);
    network.slots = config.network_slots;
    let host_limits = host_limits(&pool)?;
    let parts = Parts {
        config: HostConfig {
            data_dir: folder.path.clone(),
            instance: folder.instance.clone(),
            domain: config.listen.is_some().then(|| config.domain.clone()),
            ssh,
            default_template: config.default_template.clone(),
            template_folders: config.template_folders.clone(),
            default_engine: config.default_engine,
            default_limits: Limits::usual(&host_limits).with(&config.limits),
            host_limits,
            default_idle: IdlePolicy::default(),
            capabilities: config.capabilities.clone(),
        },
        store: Arc::new(store),
        pool,
        templates,
        network: network.clone(),
        engines: engines.all(),
    };
    let memory = parts.config.host_limits.memory;
    let host = Host::open(parts).await.context("failed to open the host")?;
    host.guard_memory(config.memory.policy(memory), Arc::new(crate::memory::read));
    Ok(Assembled { host, engines, network })
}

/// When disks are limited by full qgroups; a test may want them on any kernel.
fn full_quotas(wanted: bool) -> FullQuotas {
    match wanted {
        true if cfg!(feature = "fail-points") && std::env::var_os("ROOST_TEST_FULL_QUOTAS").is_some() => {
            FullQuotas::Always
        }
        true => FullQuotas::WithoutSimple,
        false => FullQuotas::Never,
    }
}

/// The guest of new sandboxes; a test may want an older one.
#[cfg(feature = "fail-points")]
fn guest_program() -> anyhow::Result<Cow<'static, [u8]>> {
    let Some(path) = std::env::var_os("ROOST_TEST_GUEST") else { return Ok(GUEST.into()) };
    let read = fs::read(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
    Ok(read.into())
}

/// The guest of new sandboxes.
#[cfg(not(feature = "fail-points"))]
#[expect(clippy::unnecessary_wraps, reason = "the other one can fail")]
fn guest_program() -> anyhow::Result<Cow<'static, [u8]>> {
    Ok(GUEST.into())
}

/// Writes a program that this binary carries into the data folder, under a name that says which one it is.
///
/// An older one stays beside it: sandboxes that started with it go on with it.
fn unpack(data_dir: &Path, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    let version: String = blake3::hash(content).to_hex().chars().take(16).collect();
    let folder = data_dir.join("bin").join(version);
    let path = folder.join(name);
    match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() == content.len() as u64 => return Ok(path),
        Ok(_) => put_aside(data_dir, &path, &std::io::Error::from(std::io::ErrorKind::InvalidData)),
        Err(_) => {}
    }
    let write = || -> std::io::Result<()> {
        provide_folder(data_dir, &data_dir.join("bin"), 0o755)?;
        provide_folder(data_dir, &folder, 0o755)?;
        let staged = folder.join(format!(".{name}"));
        let mut file = File::create(&staged)?;
        file.write_all(content)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        file.sync_all()?;
        fs::rename(&staged, &path)
    };
    write().with_context(|| format!("failed to write `{}`", path.display()))?;
    Ok(path)
}

/// The most that one sandbox can be given here.
fn host_limits(pool: &Pool) -> anyhow::Result<Limits> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs::read_to_string("/proc/meminfo").context("failed to read /proc/meminfo")?;
    let memory =
        crate::memory::field(&memory, "MemTotal:").context("failed to find the size of memory in /proc/meminfo")?;
    let pids: u64 =
        fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(32768);
    let disk = pool.space().context("failed to read the size of the pool")?.total;
    #[expect(clippy::cast_precision_loss, reason = "no host has 2^52 processors")]
    Ok(Limits { cpus: cpus as f64, memory, disk, pids, images: None })
}
