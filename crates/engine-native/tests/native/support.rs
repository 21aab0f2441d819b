//! A native engine of its own, with roots made of busybox, and a way to run commands in them.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use roost_engine::conformance::Fixture;
use roost_engine::{DiskSource, Engine, EngineError, NetworkPlug, Running, StartSpec, UID_RANGES};
use roost_engine_native::{NativeConfig, NativeEngine};
use roost_model::{Limits, SandboxId};
use roost_wire::client::{Connection, ExecFrame};
use roost_wire::{Attach, ExecStart, GUEST_PORT, GuestConfig, Key, Program};
use tokio::net::TcpStream;

/// Ranges of host uids differ from test program to test program, so that they can run side by side.
static NEXT_RANGE: AtomicU32 = AtomicU32::new(0);
static NEXT_TAG: AtomicU32 = AtomicU32::new(0);

type Netns = Arc<Mutex<Option<OwnedFd>>>;

/// The sandbox's address, and its gateway's, which leads back inside.
const ADDRESSES: &str =
    "ip link set lo up && ip address add 10.0.0.2/32 dev lo && ip route add local 10.0.0.1/32 dev lo src 10.0.0.2";

/// Keeps the namespace, so that tests can dial the guest from within, and brings its loopback up.
#[derive(Debug)]
struct Loopback(Netns);

#[async_trait]
impl NetworkPlug for Loopback {
    async fn plug(&self, netns: OwnedFd) -> Result<(), EngineError> {
        let inside = netns.try_clone().unwrap();
        let up = || Command::new("sh").args(["-c", ADDRESSES]).status().unwrap();
        assert!(within(inside, up).await.success());
        *self.0.lock().unwrap() = Some(netns);
        Ok(())
    }
}

/// Runs `work` in a thread that has entered the namespace.
async fn within<T: Send + 'static>(netns: OwnedFd, work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| {
        std::thread::spawn(move || {
            roost_sys::netns::enter(netns.as_fd()).unwrap();
            work()
        })
        .join()
        .unwrap()
    })
    .await
    .unwrap()
}

/// An engine with everything it needs in a temporary folder; whatever it started ends with it.
pub(crate) struct Bench {
    pub(crate) engine: NativeEngine,
    pub(crate) config: NativeConfig,
    folder: tempfile::TempDir,
    sandboxes: Mutex<HashMap<SandboxId, (Netns, Key)>>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with_reserve(1).await
    }

    pub(crate) async fn with_reserve(reserve: usize) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self::open(folder, reserve, criu(), env!("CARGO_TARGET_TMPDIR").into()).await
    }

    /// With a CRIU that gives up, saying `error`, as often as there are lines in the file whose path comes with it.
    pub(crate) async fn with_criu_that_fails(error: &str) -> (Self, PathBuf) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let own = folder.path().join("criu");
        assert!(Command::new("cp").arg("-rL").args([criu(), own.clone()]).status().unwrap().success());
        std::fs::rename(own.join("loader"), own.join("real-loader")).unwrap();
        // It is seen in another place than here, and so is what lies beside it.
        let script = format!(
            "#!/bin/sh\nhere=${{0%/*}}\ncase \"$*\" in *swrk*) if [ -s $here/failures ]; then\n\
             sed -i 1d $here/failures\necho '(00.01) Error (x.c:1): {error}' > /run/work/log\nexit 1\nfi;; esac\n\
             exec $here/real-loader \"$@\"\n"
        );
        let failures = own.join("failures");
        std::fs::write(&failures, "").unwrap();
        std::fs::write(own.join("loader"), script).unwrap();
        std::fs::set_permissions(own.join("loader"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let cache = folder.path().join("cache");
        (Self::open(folder, 0, own, cache).await, failures)
    }

    async fn open(folder: tempfile::TempDir, reserve: usize, criu: PathBuf, cache: PathBuf) -> Self {
        make_root(&folder.path().join("template"));
        let tag = format!("t{}-{}", std::process::id(), NEXT_TAG.fetch_add(1, Ordering::Relaxed));
        let config = NativeConfig {
            tag,
            launcher: std::env::var_os("ROOST_LAUNCHER")
                .map_or_else(|| env!("CARGO_BIN_EXE_roost-launch").into(), PathBuf::from),
            guest: guest(),
            reserve,
            criu: Some(criu),
            lazy_pages: true,
            cache,
        };
        let engine = NativeEngine::open(config.clone()).await.unwrap();
        Self { engine, config, folder, sandboxes: Mutex::default() }
    }

    pub(crate) fn spec(&self) -> StartSpec {
        let id = SandboxId::generate();
        let key = Key::from_bytes([7; 32]);
        let subvolume = self.folder.path().join(id.as_str());
        std::fs::create_dir_all(subvolume.join("root")).unwrap();
        let netns = Netns::default();
        self.sandboxes.lock().unwrap().insert(id.clone(), (Arc::clone(&netns), key.clone()));
        let range = (std::process::id() * 37 + NEXT_RANGE.fetch_add(1, Ordering::Relaxed)) % UID_RANGES;
        StartSpec {
            guest_config: GuestConfig::new(id.as_str(), "box", key).encode().unwrap(),
            id,
            hostname: "box".into(),
            disk: DiskSource::Layers { lower: self.folder.path().join("template"), subvolume },
            lasting: true,
            limits: Limits { cpus: 2.0, memory: 256 << 20, disk: 1 << 30, pids: 128, images: None },
            capabilities: std::collections::BTreeSet::new(),
            uid_range: range,
            network: Arc::new(Loopback(netns)),
        }
    }

    pub(crate) async fn start(&self) -> SandboxId {
        let spec = self.spec();
        let id = spec.id.clone();
        self.engine.start(spec).await.unwrap();
        id
    }

    /// The sandbox's own folder on the host.
    pub(crate) fn disk(&self, id: &SandboxId) -> PathBuf {
        self.folder.path().join(id.as_str())
    }

    pub(crate) async fn connect(&self, id: &SandboxId) -> Connection<TcpStream> {
        let (netns, key) = {
            let sandboxes = self.sandboxes.lock().unwrap();
            let (netns, key) = &sandboxes[id];
            (netns.lock().unwrap().as_ref().unwrap().try_clone().unwrap(), key.clone())
        };
        let stream = within(netns, || std::net::TcpStream::connect(("127.0.0.1", GUEST_PORT)).unwrap()).await;
        stream.set_nonblocking(true).unwrap();
        Connection::new(TcpStream::from_std(stream).unwrap(), &key).unwrap()
    }

    /// Runs a shell command inside; its exit code, and its output with its errors.
    pub(crate) async fn shell(&self, id: &SandboxId, command: &str) -> (i32, String) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let exec = format!("exe_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut start = ExecStart::new(exec, Program::Shell(command.to_owned()));
        start.cwd = Some("/".into());
        let connection = self.connect(id).await;
        let mut stream = match connection.start_and_follow(start, Attach::whole()).await {
            Ok(stream) => stream,
            // A sandbox at its limits may have no room for one more.
            Err(refused) => return (-1, format!("{refused:?}")),
        };
        let mut output = Vec::new();
        while let Some(frame) = stream.next().await {
            match frame.unwrap() {
                ExecFrame::Output { bytes, .. } => output.extend_from_slice(&bytes),
                ExecFrame::Gap(_) => {}
                ExecFrame::End(info) => {
                    let code = info.exit().map_or(-1, |exit| exit.shell_code());
                    return (code, String::from_utf8_lossy(&output).into_owned());
                }
            }
        }
        (-1, String::from_utf8_lossy(&output).into_owned())
    }

    /// Ends everything and checks that nothing is left.
    pub(crate) async fn finish(self) {
        self.engine.close().await;
        self.engine.sweep(&[]).await.unwrap();
        self.engine.close().await;
        assert!(leftovers(&self.config.tag).is_empty(), "left: {:?}", leftovers(&self.config.tag));
    }
}

impl Drop for Bench {
    /// After a failed test: whatever is in groups of this engine's ends, whether the runtime still works or not.
    fn drop(&mut self) {
        let Ok(layout) = roost_sys::cgroup::Layout::detect() else { return };
        let cgroups = roost_sys::cgroup::Cgroups::new(layout, &format!("roost-{}", self.config.tag));
        for name in cgroups.names().unwrap_or_default() {
            let group = cgroups.group(&name);
            group.thaw().ok();
            for pid in group.pids().unwrap_or_default() {
                Command::new("kill").args(["-9", &pid.to_string()]).status().ok();
            }
            group.remove().ok();
        }
        cgroups.remove().ok();
    }
}

/// Groups that carry the tag, in any hierarchy.
pub(crate) fn leftovers(tag: &str) -> Vec<PathBuf> {
    let layout = roost_sys::cgroup::Layout::detect().unwrap();
    let folder = format!("roost-{tag}");
    layout.homes().iter().map(|home| home.mount().join(&folder)).filter(|path| path.exists()).collect()
}

#[async_trait]
impl Fixture for Bench {
    fn engine(&self) -> &dyn Engine {
        &self.engine
    }

    async fn spec(&self) -> StartSpec {
        Bench::spec(self)
    }

    async fn broken_spec(&self) -> StartSpec {
        let mut spec = Bench::spec(self);
        spec.disk = DiskSource::Layers { lower: "/nonexistent/template".into(), subvolume: "/nonexistent/disk".into() };
        spec
    }

    async fn run(&self, id: &SandboxId, _: &Running, command: &str) -> Option<String> {
        Some(self.shell(id, command).await.1)
    }

    async fn reopen(&self) -> Option<Box<dyn Engine>> {
        let config = NativeConfig { reserve: 0, ..self.config.clone() };
        Some(Box::new(NativeEngine::open(config).await.unwrap()))
    }
}

/// A root of busybox, as small as it can be.
fn make_root(root: &Path) {
    for folder in ["bin", "dev/pts", "dev/shm", "etc", "proc", "root", "run", "sys", "tmp", "var/lib"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("busybox is installed");
    std::fs::copy(busybox, root.join("bin/busybox")).unwrap();
    // Not the copy: another test's new process may still hold it open for writing.
    let applets = Command::new(busybox).arg("--list").output().unwrap().stdout;
    for applet in String::from_utf8(applets).unwrap().lines().filter(|name| *name != "busybox") {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    std::fs::write(root.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n").unwrap();
    std::fs::write(root.join("etc/group"), "root:x:0:\nuser:x:1000:\n").unwrap();
    for (name, minor) in [("null", 3), ("zero", 5), ("random", 8), ("urandom", 9)] {
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(1, minor);
        let path = root.join("dev").join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::CharacterDevice, mode, device).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    }
}

/// CRIU as `scripts/criu` brings it.
fn criu() -> PathBuf {
    std::env::var_os("ROOST_CRIU").map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("../criu"), PathBuf::from)
}

/// The guest, built static once per test program.
fn guest() -> PathBuf {
    static GUEST: OnceLock<PathBuf> = OnceLock::new();
    GUEST
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("ROOST_GUEST") {
                return path.into();
            }
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
            let built = Command::new(env!("CARGO"))
                .current_dir(&workspace)
                .args(["build", "--quiet", "--profile", "guest", "-p", "roost-guest", "--target", &target])
                .args(["--target-dir", "target/guest"])
                .env("RUSTFLAGS", "-C target-feature=+crt-static")
                .status()
                .unwrap();
            assert!(built.success(), "the guest builds");
            workspace.join("target/guest").join(target).join("guest/roost-guest").canonicalize().unwrap()
        })
        .clone()
}
