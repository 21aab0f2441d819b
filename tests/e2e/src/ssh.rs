//! OpenSSH's own clients against a daemon, with keys and settings of a test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::{Daemon, Options};

/// What has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon that listens for SSH, a folder with keys, and settings by which clients use them.
#[derive(Debug)]
pub struct SshDaemon {
    /// The daemon.
    pub daemon: Daemon,
    folder: tempfile::TempDir,
    port: String,
}

impl SshDaemon {
    /// Starts a daemon and lets a key in that may do everything.
    pub async fn start(base: bool) -> Result<Self> {
        let arguments = ["--ssh-listen", "127.0.0.1:0"].map(str::to_owned).to_vec();
        let daemon = Daemon::with(Options { base, arguments, ..Options::default() }).await?;
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))?;
        let port = port_of(&daemon).await?;
        let started = Self { daemon, folder, port };
        started.make_key("key").await?;
        started.let_in("key", &[]).await?;
        started.configure()?;
        Ok(started)
    }

    /// The settings of every client: nothing of this machine's own is read or written.
    fn configure(&self) -> Result<()> {
        let known = self.path("known_hosts");
        let text = format!(
            "Host sandbox\n  HostName 127.0.0.1\n  Port {}\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking accept-new\n  IdentitiesOnly yes\n  IdentityAgent none\n  LogLevel ERROR\n  \
             PasswordAuthentication no\n",
            self.port,
            known.display(),
        );
        Ok(fs::write(self.path("config"), text)?)
    }

    /// A path in the folder of keys.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The port that the daemon listens on for SSH.
    pub fn port(&self) -> &str {
        &self.port
    }

    /// Takes the daemon's present port; it has another after each start.
    pub async fn started_again(&mut self) -> Result<()> {
        self.port = port_of(&self.daemon).await?;
        self.configure()
    }

    /// Makes a pair of keys.
    pub async fn make_key(&self, name: &str) -> Result<()> {
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(self.path(name));
        let made = command.stdin(Stdio::null()).output().await.context("failed to start ssh-keygen")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Ok(())
    }

    /// Lets a key in, with more arguments of `roost key add`.
    pub async fn let_in(&self, name: &str, arguments: &[&str]) -> Result<String> {
        let file = self.path(&format!("{name}.pub"));
        let file = file.to_str().context("a path that is not text")?;
        self.daemon.roost_ok(&[&["key", "add", file], arguments].concat()).await
    }

    /// A client program with this test's settings and key.
    pub fn client(&self, program: &str) -> Command {
        self.client_as(program, "key")
    }

    /// The same with another key.
    pub fn client_as(&self, program: &str, key: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-F").arg(self.path("config")).arg("-i").arg(self.path(key));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// What `ssh` is for programs that start it themselves.
    pub fn ssh_line(&self) -> String {
        format!("ssh -F {} -i {}", self.path("config").display(), self.path("key").display())
    }

    /// `ssh` into a sandbox.
    pub fn ssh(&self, user: &str, arguments: &[&str]) -> Command {
        let mut command = self.client("ssh");
        command.arg(format!("{user}@sandbox")).args(arguments);
        command
    }

    /// Runs `ssh` into a sandbox to its end and returns what it printed; anything but success is an error.
    pub async fn ssh_ok(&self, user: &str, command: &str) -> Result<String> {
        let output = ended(&mut self.ssh(user, &[command])).await?;
        ok(&output).with_context(|| format!("`ssh {user}@… {command}`"))
    }
}

async fn port_of(daemon: &Daemon) -> Result<String> {
    let ssh = daemon.client().info().await?.ssh.context("the daemon does not listen for SSH")?;
    Ok(ssh.address.rsplit_once(':').context("an address without a port")?.1.to_owned())
}

/// Runs a client to its end.
pub async fn ended(command: &mut Command) -> Result<Output> {
    let output = command.output();
    tokio::time::timeout(PATIENCE, output).await.context("a client does not end")?.context("failed to start a client")
}

/// What a client printed, if it succeeded.
pub fn ok(output: &Output) -> Result<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "ended with {}: {}", output.status, text(&output.stderr));
    Ok(text(&output.stdout))
}

/// What a client said beside its output.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The hash of a file.
pub fn hash(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path)?)?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// Writes a file of so many bytes that no compression makes small.
pub fn noise(path: &Path, bytes: u64) -> Result<()> {
    use std::io::{Read, Write};
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"noise");
    let mut source = hasher.finalize_xof().take(bytes);
    let mut file = fs::File::create(path)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        let count = source.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        file.write_all(&piece[..count])?;
    }
}
