//! The peers, driven by their command-line tools on the same root as the sandboxes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Whether a tool is installed.
pub fn installed(tool: impl AsRef<OsStr>) -> bool {
    let version = Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Runs a command that must succeed and returns how long it took.
pub fn timed(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let output = command.stderr(Stdio::piped()).output().with_context(|| format!("failed to start {command:?}"))?;
    let took = began.elapsed();
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(took)
}

/// What a command prints, whether or not it succeeds.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.with_context(|| format!("failed to start {command:?}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A path as the text that runc's configuration needs.
fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not text")
}

/// Bundles for runc with its default configuration, but for the root and the command.
#[derive(Debug)]
pub struct Bundles(tempfile::TempDir);

impl Bundles {
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::Builder::new().prefix("roost-bench-").tempdir()?))
    }

    pub fn make(&self, name: &str, root: &Path, command: &[&str]) -> Result<PathBuf> {
        let folder = self.0.path().join(name);
        std::fs::create_dir(&folder)?;
        timed(Command::new("runc").args(["spec", "--bundle"]).arg(&folder))?;
        let file = folder.join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(command);
        config["root"] = json!({"path": text(root)?, "readonly": true});
        std::fs::write(&file, serde_json::to_vec(&config)?)?;
        Ok(folder)
    }
}

/// runc, and a container of it that lasts.
#[derive(Debug)]
pub struct Runc {
    once: PathBuf,
    container: String,
    runs: usize,
    _bundles: Bundles,
}

impl Runc {
    /// Prepares bundles on `root` and starts the container that `exec` is measured in.
    pub fn new(root: &Path) -> Result<Self> {
        let bundles = Bundles::new()?;
        let once = bundles.make("once", root, &["/bin/true"])?;
        let lasting = bundles.make("lasting", root, &["/bin/sleep", "1000000"])?;
        let runc = Self { once, container: format!("roost-bench-{}", std::process::id()), runs: 0, _bundles: bundles };
        let mut start = Command::new("runc");
        start.args(["run", "--detach", "--bundle"]).arg(lasting).arg(&runc.container);
        // The container keeps these open for as long as it lives.
        let status = start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        ensure!(status.success(), "{start:?} failed");
        Ok(runc)
    }

    /// From nothing to the end of `/bin/true` in a new container.
    pub fn run(&mut self) -> Result<Duration> {
        self.runs += 1;
        let name = format!("{}-{}", self.container, self.runs);
        timed(Command::new("runc").args(["run", "--bundle"]).arg(&self.once).arg(name))
    }

    /// `/bin/true` in a container that runs.
    pub fn exec(&self) -> Result<Duration> {
        timed(Command::new("runc").args(["exec", &self.container, "/bin/true"]))
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        let removed = Command::new("runc").args(["delete", "--force", &self.container]).status();
        if !removed.is_ok_and(|status| status.success()) {
            eprintln!("failed to remove runc's container {}", self.container);
        }
    }
}

/// runsc, driven like runc.
#[derive(Debug)]
pub struct Runsc {
    program: PathBuf,
    once: PathBuf,
    runs: usize,
    state: tempfile::TempDir,
    _bundles: Bundles,
}

impl Runsc {
    /// Prepares a bundle on `root`.
    pub fn new(program: PathBuf, root: &Path) -> Result<Self> {
        let bundles = Bundles::new()?;
        let once = bundles.make("once", root, &["/bin/echo", "here"])?;
        let state = tempfile::Builder::new().prefix("roost-bench-runsc-").tempdir()?;
        Ok(Self { program, once, runs: 0, state, _bundles: bundles })
    }

    /// From nothing to the end of a command in a new container, and to its first output.
    pub fn run(&mut self) -> Result<(Duration, Duration)> {
        self.runs += 1;
        let mut command = Command::new(&self.program);
        // No network: it takes the namespace of a program started by hand for the host's, and refuses.
        command.args(["--platform=systrap", "--network=none", "--overlay2=none", "--ignore-cgroups", "--root"]);
        command.arg(self.state.path()).args(["run", "--bundle"]).arg(&self.once).arg(format!("once-{}", self.runs));
        let began = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().context("no output to read")?);
        std::io::BufRead::read_line(&mut output, &mut line)?;
        let spoke = began.elapsed();
        let status = child.wait()?;
        let ran = began.elapsed();
        ensure!(status.success() && line == "here\n", "{command:?} ended with {status} and said {line:?}");
        Ok((ran, spoke))
    }
}

/// From nothing to the end of `/bin/true` under bubblewrap: namespaces only, no limits, no network, no filter.
pub fn bubblewrap(root: &Path) -> Result<Duration> {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--ro-bind", text(root)?, "/"]);
    command.args(["--proc", "/proc", "--dev", "/dev", "/bin/true"]);
    timed(&mut command)
}
