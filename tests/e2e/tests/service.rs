//! Roost as an installed service: a test in the place of systemd, `make install` into a folder, and the Debian package.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{EventsFilter, Upload, WriteOptions};
use roost_e2e::docs::root;
use roost_e2e::{Daemon, Options, first_pid, roost_binary};
use roost_model::{EventKind, ExecState};
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);
/// After so long without a word systemd would take the daemon for dead.
const WATCHDOG: Duration = Duration::from_millis(600);
/// A silence that a healthy daemon on a busy machine does not reach.
const LONG_WATCHDOG: Duration = Duration::from_secs(6);
/// The exit code of a command of ours that failed.
const ROOST_FAILED: i32 = 125;

/// Hears what a daemon tells the service manager.
struct Manager {
    heard: mpsc::UnboundedReceiver<String>,
    place: PathBuf,
    _folder: tempfile::TempDir,
}

impl Manager {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let place = folder.path().join("notify");
        let socket = UnixDatagram::bind(&place)?;
        let (tell, heard) = mpsc::unbounded_channel();
        // It always listens, as systemd does.
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count) = socket.recv(&mut buffer).await
                && tell.send(String::from_utf8_lossy(&buffer[..count]).into_owned()).is_ok()
            {}
        });
        Ok(Self { heard, place, _folder: folder })
    }

    /// Starts the daemon as the unit does.
    async fn start(&self) -> Result<Daemon> {
        let environment = vec![
            ("NOTIFY_SOCKET".to_owned(), self.place.display().to_string()),
            ("WATCHDOG_USEC".to_owned(), WATCHDOG.as_micros().to_string()),
        ];
        Daemon::with(Options { environment, ..Options::default() }).await
    }

    async fn hears(&mut self) -> Result<String> {
        tokio::time::timeout(PATIENCE, self.heard.recv()).await.context("not a word")?.context("nobody listens")
    }

    /// Waits for a word; before it only signs of life may come.
    async fn hears_of(&mut self, word: &str) -> Result<()> {
        loop {
            let heard = self.hears().await?;
            if heard.starts_with(word) {
                return Ok(());
            }
            ensure!(heard == "WATCHDOG=1", "heard {heard:?} and waited for {word}");
        }
    }

    /// What was said and not heard yet is forgotten.
    fn forget(&mut self) {
        while self.heard.try_recv().is_ok() {}
    }
}

fn signal(pid: u32, name: &str) -> Result<()> {
    ensure!(Command::new("kill").args([name, &pid.to_string()]).status()?.success(), "failed to send {name}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_unit_leaves_sandboxes_running_and_a_dead_daemon_is_silent() -> Result<()> {
    let mut manager = Manager::new()?;
    let mut daemon = manager.start().await?;
    manager.hears_of("READY=1").await?;
    manager.hears_of("WATCHDOG=1").await?;

    let sandbox = daemon.sandbox("box").await?;
    let exec = sandbox.spawn("sleep 1000").await?;
    sandbox.sh_ok("echo before > /root/file").await?;
    ensure!(!sandbox.sh_ok("env").await?.contains("NOTIFY_SOCKET"), "a sandbox sees the manager's socket");
    let first = first_pid(&daemon.instance().await?, sandbox.id())?;

    // `systemctl restart` with KillMode=process: one process is asked to end, and another started.
    daemon.stop().await?;
    manager.hears_of("STOPPING=1").await?;
    ensure!(Path::new(&format!("/proc/{first}")).exists(), "the sandbox ended with the unit");
    manager.forget();
    daemon.start_again().await?;
    manager.hears_of("READY=1").await?;
    assert_eq!(first_pid(&daemon.instance().await?, sandbox.id())?, first);
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "before");
    let found = daemon.client().exec("box", exec.id.as_str()).await?;
    ensure!(found.status == ExecState::Running, "{:?}", found.status);

    // A daemon that stands still says nothing, so systemd ends it and starts the next.
    let pid = daemon.pid()?;
    signal(pid, "-STOP")?;
    while !fs::read_to_string(format!("/proc/{pid}/status"))?.contains("(stopped)") {}
    // What was on its way when it stopped is here after the first of these, and nothing comes during the second.
    drop(tokio::time::timeout(WATCHDOG, manager.hears_of("nothing of the kind")).await);
    let silence = tokio::time::timeout(2 * WATCHDOG, manager.hears()).await;
    ensure!(silence.is_err(), "it was taken for alive: {silence:?}");
    daemon.kill9()?;
    daemon.start_again().await?;
    manager.hears_of("READY=1").await?;
    assert_eq!(first_pid(&daemon.instance().await?, sandbox.id())?, first);
    Ok(())
}

/// The pid of the daemon itself, which holds the lock of its data folder.
fn holder(daemon: &Daemon) -> Result<u32> {
    Ok(fs::read_to_string(daemon.data_dir().join("lock"))?.trim().parse()?)
}

/// Waits until another process than `last` serves the data folder.
async fn successor(daemon: &Daemon, last: u32) -> Result<u32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pid = holder(daemon).unwrap_or(last);
        if pid != last && daemon.client().health().await.is_ok() {
            return Ok(pid);
        }
        ensure!(Instant::now() < deadline, "no daemon follows process {last}:\n{}", daemon.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn supervised_daemon_is_started_again_after_a_crash_and_after_a_hang() -> Result<()> {
    let mut daemon = Daemon::with(Options {
        arguments: vec!["--supervise".to_owned()],
        environment: vec![("WATCHDOG_USEC".to_owned(), LONG_WATCHDOG.as_micros().to_string())],
        ..Options::default()
    })
    .await?;
    let sandbox = daemon.sandbox("box").await?;
    let exec = sandbox.spawn("sleep 1000").await?;
    let first = first_pid(&daemon.instance().await?, sandbox.id())?;

    let mut pid = holder(&daemon)?;
    for cause in ["-KILL", "-STOP"] {
        signal(pid, cause)?;
        pid = successor(&daemon, pid).await?;
        assert_eq!(first_pid(&daemon.instance().await?, sandbox.id())?, first, "the sandbox went on");
        let found = daemon.client().exec("box", exec.id.as_str()).await?;
        ensure!(found.status == ExecState::Running, "{:?}", found.status);
    }
    let events = daemon.client().list_events(&EventsFilter::default()).await?;
    let restarts: Vec<_> = events.iter().filter(|event| event.kind == EventKind::DaemonRestarted).collect();
    assert_eq!(restarts.len(), 2, "{events:?}");
    ensure!(restarts.iter().all(|event| event.sandbox.is_none() && event.reason.is_some()), "{restarts:?}");
    ensure!(
        daemon.roost_ok(&["events", "--no-follow"]).await?.contains("daemon_restarted"),
        "the command line shows them"
    );

    daemon.stop().await?;
    ensure!(!Path::new(&format!("/proc/{pid}")).exists(), "the daemon outlived its supervisor");
    // A stop in order is no reason for an event.
    daemon.start_again().await?;
    let events = daemon.client().list_events(&EventsFilter::default()).await?;
    assert_eq!(events.iter().filter(|event| event.kind == EventKind::DaemonRestarted).count(), 2);
    Ok(())
}

#[tokio::test]
async fn supervised_daemon_that_cannot_start_is_not_started_again() -> Result<()> {
    let daemon = Daemon::start().await?;
    let data = daemon.data_dir().display().to_string();
    let output = daemon.roost(&["serve", "--supervise", "--listen", "none", "--data-dir", &data]).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(ROOST_FAILED), "{}: {errors}", output.status);
    ensure!(errors.contains("is in use by a running daemon"), "{errors}");
    Ok(())
}

/// Runs a script of the repository with the binary under test.
fn script(name: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Result<String> {
    let mut command = Command::new(root().join("scripts").join(name));
    command.args(arguments).env("ROOST", roost_binary()?).env("SUDO", "");
    for variable in ["DESTDIR", "PREFIX", "SYSCONFDIR"] {
        command.env_remove(variable);
    }
    let output = command.envs(environment.iter().copied()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "scripts/{name} ended with {}: {errors}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn files_in(folder: &Path) -> Result<Vec<String>> {
    let output = Command::new("find").arg(folder).args(["-type", "f", "-printf", "/%P\\n"]).output()?;
    let mut files: Vec<String> = String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
    files.sort();
    Ok(files)
}

#[test]
fn an_installation_is_whole_and_leaves_nothing_when_it_goes() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let destination = [("DESTDIR", folder.path()), ("PREFIX", Path::new("/opt/roost"))];
    script("install", &["install"], &destination)?;
    let there = files_in(folder.path())?;
    for expected in [
        "/etc/default/roost",
        "/opt/roost/bin/roost",
        "/opt/roost/lib/systemd/system/roost.service",
        "/opt/roost/lib/sysctl.d/60-roost.conf",
        "/opt/roost/share/bash-completion/completions/roost",
        "/opt/roost/share/zsh/site-functions/_roost",
        "/opt/roost/share/fish/vendor_completions.d/roost.fish",
        "/opt/roost/share/man/man1/roost.1",
        "/opt/roost/share/man/man1/roost-checkpoint-rm.1",
        "/opt/roost/share/doc/roost/examples/roost.toml",
    ] {
        ensure!(there.iter().any(|file| file == expected), "{expected} is missing: {there:?}");
    }

    // systemd itself finds nothing wrong with the unit; it wants to see the program that is started.
    let unit = fs::read_to_string(folder.path().join("opt/roost/lib/systemd/system/roost.service"))?;
    ensure!(unit.contains("ExecStart=/opt/roost/bin/roost serve"), "{unit}");
    for needed in ["Type=notify", "WatchdogSec=", "KillMode=process", "Delegate=yes", "Restart=always"] {
        ensure!(unit.contains(needed), "the unit does not say {needed}");
    }
    let copy = folder.path().join("roost.service");
    fs::write(&copy, unit.replace("/opt/roost/bin", &folder.path().join("opt/roost/bin").display().to_string()))?;
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output()?;
    let words = String::from_utf8_lossy(&verified.stderr).into_owned();
    ensure!(verified.status.success() && !words.contains("roost.service"), "systemd-analyze: {words}");
    fs::remove_file(&copy)?;

    // What somebody changed stays as it is.
    let settings = folder.path().join("etc/default/roost");
    fs::write(&settings, "ROOST_LOG=json\n")?;
    script("install", &["install"], &destination)?;
    script("install", &["uninstall"], &destination)?;
    assert_eq!(files_in(folder.path())?, ["/etc/default/roost"]);
    assert_eq!(fs::read_to_string(&settings)?, "ROOST_LOG=json\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_package_installs_works_and_goes_again_in_a_real_debian() -> Result<()> {
    let folder = tempfile::tempdir_in("/var/tmp")?;
    let package = script("deb", &[&folder.path().display().to_string()], &[("DEB_COMPRESSION", Path::new("gzip"))])?;
    let unpacked = folder.path().join("root");
    ensure!(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked).status()?.success());

    ensure!(unpacked.join("usr/share/man/man1/roost-create.1.gz").exists(), "the package has no manual pages");

    // What is in the package serves.
    let mut daemon =
        Daemon::with(Options { base: true, older: Some(unpacked.join("usr/bin/roost")), ..Options::default() }).await?;
    let sandbox = daemon.sandbox_of("base", "debian").await?;
    let content = Upload::bytes(fs::read(&package)?);
    daemon.client().write_file("debian", "/tmp/roost.deb", content, &WriteOptions::default()).await?;
    // Its dependencies are checked by apt on a host, and not downloaded here.
    sandbox.root_ok("dpkg --force-depends -i /tmp/roost.deb 2>&1").await?;
    let version = sandbox.sh_ok("roost version; dpkg-query -W -f '${Version} ${Status}' roost").await?;
    ensure!(version.contains("roost  ") && version.contains("install ok installed"), "{version}");
    let conffiles = sandbox.sh_ok("dpkg-query -W -f '${Conffiles}' roost").await?;
    ensure!(conffiles.contains("/etc/default/roost"), "{conffiles}");
    sandbox.sh_ok("test -s /usr/lib/systemd/system/roost.service").await?;
    let owner = sandbox.sh_ok("stat -c %U:%G:%a /usr/bin/roost /usr/share/doc/roost").await?;
    ensure!(owner.lines().all(|line| line == "root:root:755"), "{owner}");
    // Again, as an upgrade does; then away, first with the settings and the data kept.
    sandbox.root_ok("dpkg --force-depends -i /tmp/roost.deb 2>&1").await?;
    sandbox.root_ok("mkdir -p /var/lib/roost && touch /var/lib/roost/kept && dpkg -r roost 2>&1").await?;
    sandbox.sh_ok("! command -v roost && test -e /etc/default/roost").await?;
    sandbox.root_ok("test -e /var/lib/roost/kept && dpkg -P roost 2>&1 && ! test -e /var/lib/roost").await?;
    daemon.take_down()
}
