//! A daemon of a test's own.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roost_client::Client;
use roost_model::{CreateSandbox, Doctoring, EngineAbilities, EngineKind};

use crate::sandbox::Sandbox;
use crate::world::{leftovers, lose_what_runs};
use crate::{binary, templates, tools};

/// A daemon that has not answered by then has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_TAIL: usize = 60;
/// Every test whose sandboxes ask for no engine runs on the one that this variable names.
const ENGINE: &str = "ROOST_E2E_ENGINE";

/// How a daemon of a test differs from the ordinary one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Listen on a free TCP port of the loopback too.
    pub tcp: bool,
    /// Have template `base`.
    pub base: bool,
    /// The engine of sandboxes that ask for none; that of `ROOST_E2E_ENGINE`, or the daemon's own choice, if there is none.
    pub engine: Option<EngineKind>,
    /// The size of its pool; large enough for every test if absent.
    pub pool_size: Option<String>,
    /// A packed data folder that it starts with, in the place of an empty one.
    pub data: Option<PathBuf>,
    /// The `roost` it is started from until [`Daemon::upgrade`], in the place of the one under test.
    pub older: Option<PathBuf>,
    /// A packed guest that its sandboxes get until then, in the place of the one that `roost` carries.
    pub older_guest: Option<PathBuf>,
    /// The template of sandboxes that ask for none; `mini` if nothing is said.
    pub template: Option<String>,
    /// A network namespace that it takes for the host's; the real one if absent.
    pub network: Option<PathBuf>,
    /// More arguments of `roost serve`.
    pub arguments: Vec<String>,
    /// More of its environment.
    pub environment: Vec<(String, String)>,
}

/// A running `roost serve` in a folder of its own; dropping it takes down everything it made.
#[derive(Debug)]
pub struct Daemon {
    binary: PathBuf,
    root: Option<tempfile::TempDir>,
    data_dir: PathBuf,
    listen: Option<String>,
    options: Options,
    fail_point: Option<String>,
    child: Option<Child>,
}

impl Daemon {
    /// Starts a daemon that has template `mini`.
    pub async fn start() -> Result<Self> {
        Self::with(Options::default()).await
    }

    /// Starts a daemon that has templates `mini` and `base`.
    pub async fn start_with_base() -> Result<Self> {
        Self::with(Options { base: true, ..Options::default() }).await
    }

    /// Starts a daemon.
    pub async fn with(options: Options) -> Result<Self> {
        // On the disk, where /tmp may be memory.
        let root = tempfile::Builder::new().prefix("roost-e2e-").tempdir_in("/var/tmp")?;
        // While this process lives, nobody may take it for something left behind (`scripts/sweep-tests`).
        fs::write(root.path().join("test.pid"), std::process::id().to_string())?;
        let data_dir = root.path().join("data");
        register(&data_dir)?;
        match &options.data {
            Some(packed) => unpack(packed, root.path())?,
            None => fs::create_dir(&data_dir)?,
        }
        let listen = if options.tcp { Some(free_address()?) } else { None };
        let binary = options.older.clone().map_or_else(binary::roost_binary, Ok)?;
        // Without it the daemon builds `mini` itself, which takes a second.
        if !data_dir.join("templates/mini").exists() {
            templates::link_from_cache("mini", &data_dir)?;
        }
        if options.base {
            ensure!(templates::link_from_cache("base", &data_dir)?, "no template `base`: run scripts/template-cache");
        }
        tools::link_into(&data_dir)?;
        if let Some(packed) = &options.older_guest {
            unpack(packed, root.path())?;
        }
        let mut daemon = Self { binary, root: Some(root), data_dir, listen, options, fail_point: None, child: None };
        daemon.launch().await?;
        if daemon.client().template("mini").await.is_err() {
            daemon.roost_ok(&["template", "build", "mini"]).await?;
        }
        Ok(daemon)
    }

    async fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path())?;
        let child = self
            .program()
            .args(["serve", "--pool-size", self.options.pool_size.as_deref().unwrap_or("6g")])
            .args(["--default-template", self.options.template.as_deref().unwrap_or("mini"), "--listen"])
            .arg(self.listen.as_deref().unwrap_or("none"))
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(default_engine(self.options.engine))
            .args(&self.options.arguments)
            .envs(self.options.environment.iter().map(|(name, value)| (name, value)))
            .envs(self.fail_point.iter().map(|point| ("ROOST_FAIL_POINT", point)))
            .envs(self.older_guest().map(|guest| ("ROOST_TEST_GUEST", guest)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C at the terminal is for the tests, which then take the daemon down in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start `{}`", self.binary.display()))?;
        self.child = Some(child);
        self.wait_until_ready().await
    }

    /// The program, to be run in the network of the daemon.
    fn program(&self) -> Command {
        let Some(network) = &self.options.network else { return binary::command(&self.binary) };
        let mut command = binary::command(Path::new("nsenter"));
        command.arg(format!("--net={}", network.display())).arg(&self.binary);
        command
    }

    fn older_guest(&self) -> Option<PathBuf> {
        let root = self.root.as_ref().filter(|_| self.options.older_guest.is_some())?;
        Some(root.path().join("roost-guest"))
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let client = self.client();
        loop {
            if client.health().await.is_ok() {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                bail!("the daemon ended with {status}; its log ends:\n{}", self.log_tail());
            }
            if Instant::now() > deadline {
                let at = self.child.as_ref().map(|child| threads_at(child.id())).unwrap_or_default();
                bail!("the daemon does not answer; its threads are at:\n{at}\nits log ends:\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A client of its unix socket.
    pub fn client(&self) -> Client {
        Client::unix(self.socket())
    }

    /// Its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.data_dir.join("run/roost.sock")
    }

    /// Its TCP address, if it was told to listen.
    pub fn address(&self) -> Option<&str> {
        self.listen.as_deref()
    }

    /// The binary that it runs.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its data folder.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The tag in the names of everything it makes on the host.
    pub async fn instance(&self) -> Result<String> {
        Ok(self.client().info().await?.instance)
    }

    /// Its pid.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the daemon does not run")?.id())
    }

    /// Kills it without a warning, as a crash would.
    pub fn kill9(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Asks it to end and waits until it has.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status()?;
        ensure!(asked.success(), "failed to signal the daemon");
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        ensure!(status.success(), "the daemon ended with {status}; its log ends:\n{}", self.log_tail());
        Ok(())
    }

    /// Starts it again after [`Daemon::kill9`] or [`Daemon::stop`].
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the daemon still runs");
        self.launch().await
    }

    /// Changes its environment, from its next start on.
    pub fn set_environment(&mut self, environment: Vec<(String, String)>) {
        self.options.environment = environment;
    }

    /// Lets its pool grow to this size from the next start on.
    pub fn set_pool_size(&mut self, size: &str) {
        self.options.pool_size = Some(size.to_owned());
    }

    /// Ends it as [`Daemon::stop`] does, and starts the `roost` under test with a guest of its own in its place.
    pub async fn upgrade(&mut self) -> Result<()> {
        self.stop().await?;
        self.binary = binary::roost_binary()?;
        self.options.older_guest = None;
        self.launch().await
    }

    /// Starts it again, to be killed by itself when it passes a fail point, `name` or `name:n`, for the n-th time.
    ///
    /// The binary must have been built with the feature `fail-points`.
    pub async fn start_again_failing_at(&mut self, point: &str) -> Result<()> {
        self.fail_point = Some(point.to_owned());
        let started = self.start_again().await;
        self.fail_point = None;
        started
    }

    /// Waits until it has ended by a `SIGKILL` that nobody sent from here.
    pub async fn wait_until_killed(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        let status = loop {
            let ended = self.child.as_mut().context("the daemon does not run")?.try_wait()?;
            match ended {
                Some(status) => break status,
                None => ensure!(Instant::now() < deadline, "the daemon was not killed"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        self.child = None;
        ensure!(status.signal() == Some(9), "the daemon ended with {status}");
        Ok(())
    }

    /// Kills it without a warning and starts it again.
    pub async fn crash_and_restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.start_again().await
    }

    /// What a reboot of the host does to it: nothing that ran is left, only its data folder. Then starts it again.
    pub async fn reboot(&mut self) -> Result<()> {
        let instance = self.instance().await?;
        self.kill9()?;
        lose_what_runs(&instance, &self.data_dir)?;
        // A loop device is let go of in the kernel's own time.
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let left = leftovers(&instance, &self.data_dir);
            if left.is_empty() {
                return self.start_again().await;
            }
            ensure!(Instant::now() < deadline, "the reboot left {left:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether the engine of sandboxes that ask for none can do something; if not, says that the test does without.
    ///
    /// For tests that any engine runs: they go by what an engine declares, never by its name.
    pub async fn can(&self, what: &str, able: impl Fn(&EngineAbilities) -> bool) -> Result<bool> {
        let chosen = std::env::var(ENGINE).unwrap_or_else(|_| "native".to_owned());
        let report = self.client().doctor(Doctoring::Look).await?;
        let engine = report.engines.iter().find(|engine| engine.engine.as_str() == chosen);
        let able = able(&engine.with_context(|| format!("the doctor does not know engine `{chosen}`"))?.abilities);
        if !able {
            eprintln!("skipped: engine `{chosen}` has not {what}");
        }
        Ok(able)
    }

    /// Makes a sandbox of template `mini`.
    pub async fn sandbox(&self, name: &str) -> Result<Sandbox> {
        self.sandbox_of("mini", name).await
    }

    /// Makes a sandbox of a template.
    pub async fn sandbox_of(&self, template: &str, name: &str) -> Result<Sandbox> {
        self.sandbox_with(CreateSandbox {
            name: Some(name.to_owned()),
            template: Some(template.to_owned()),
            ..CreateSandbox::default()
        })
        .await
    }

    /// Makes a sandbox as the request says.
    pub async fn sandbox_with(&self, request: CreateSandbox) -> Result<Sandbox> {
        Sandbox::create(self.client(), request).await
    }

    /// Checks that nothing is kept in these folders of its pool; what is deleted goes in the background.
    pub async fn keeps_nothing_in(&self, folders: &[&str]) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        for folder in folders {
            // Images lie beside the pool, with a staging folder of their own that stays.
            let path = if folder.starts_with("images") { self.data_dir.clone() } else { self.data_dir.join("pool") };
            let path = path.join(folder);
            loop {
                let names = fs::read_dir(&path)?.flatten().map(|entry| entry.file_name());
                let left: Vec<_> = names.filter(|name| name != ".staging").collect();
                if left.is_empty() {
                    break;
                }
                ensure!(Instant::now() < deadline, "{left:?} stay in `{}`", path.display());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }

    /// The command-line client, set up to talk to this daemon.
    pub fn roost(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = binary::command(&self.binary);
        command.args(arguments).env("ROOST_SOCKET", self.socket()).stdin(Stdio::null());
        command.into()
    }

    /// Runs the command-line client and returns what it printed; anything but success is an error.
    pub async fn roost_ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.roost(arguments).output().await?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`roost {}` ended with {}: {errors}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Ends it and takes everything it made down, as dropping does, but shows the result.
    pub fn take_down(&mut self) -> Result<()> {
        self.kill9()?;
        let output = self.program().arg("down").arg("--data-dir").arg(&self.data_dir).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`roost down` ended with {}: {errors}", output.status);
        Ok(())
    }

    /// Waits until its log says something.
    pub async fn logs(&self, words: &str) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !fs::read_to_string(self.log_path())?.contains(words) {
            ensure!(Instant::now() < deadline, "its log never said `{words}`:\n{}", self.log_tail());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.data_dir.with_file_name("daemon.log")
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The test harness shows this only if the test failed.
        eprintln!("the daemon's log ends:\n{}", self.log_tail());
        let taken_down = self.take_down();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = self.root.take();
        if let Some(folder) = folder
            && mounts.contains(&format!(" {}/", folder.path().display()))
        {
            // Removing the folder would reach through the mount: leave it for a person to look at.
            eprintln!("something is still mounted below {}", folder.keep().display());
        }
        match taken_down {
            Err(error) if std::thread::panicking() => eprintln!("failed to take the daemon down: {error:#}"),
            Err(error) => panic!("failed to take the daemon down: {error:#}"),
            Ok(()) => {}
        }
    }
}

/// Names the daemon of this test in the list of the run, for the leak check (`tools/leak-check`).
fn register(data_dir: &Path) -> Result<()> {
    let Some(run) = std::env::var_os("ROOST_TEST_RUN") else { return Ok(()) };
    let variable = |name| std::env::var(name).unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    let line = format!("{}\t{}::{test}\n", data_dir.display(), variable("NEXTEST_BINARY_ID"));
    let list = File::options().create(true).append(true).open(Path::new(&run).join("instances"));
    list.and_then(|mut list| list.write_all(line.as_bytes()))
        .context("failed to name this daemon in the list of the run")
}

/// Unpacks what an earlier version has left: a data folder, which is called `data`, or a program.
fn unpack(packed: &Path, into: &Path) -> Result<()> {
    let unpacked = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(into).output()?;
    let errors = String::from_utf8_lossy(&unpacked.stderr);
    ensure!(unpacked.status.success(), "failed to unpack `{}`: {errors}", packed.display());
    Ok(())
}

/// What the kernel says each thread of a process is at, with the system call and the way there.
fn threads_at(pid: u32) -> String {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let about = |thread: fs::DirEntry| {
        let [name, call, stack] =
            ["comm", "syscall", "stack"].map(|file| fs::read_to_string(thread.path().join(file)).unwrap_or_default());
        let stack: Vec<_> = stack.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        format!("{} in call {} at {}", name.trim(), call.trim(), stack.join(" < "))
    };
    threads.map(about).collect::<Vec<_>>().join("\n")
}

/// An address of the loopback at which nobody listens now.
pub(crate) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?.to_string())
}

fn default_engine(wanted: Option<EngineKind>) -> Option<String> {
    let wanted = wanted.map(|engine| engine.to_string()).or_else(|| std::env::var(ENGINE).ok());
    wanted.map(|engine| format!("--default-engine={engine}"))
}
