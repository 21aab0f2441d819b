//! What a person waits for: `ssh web@host true`, beside the same of a plain `sshd` on the same machine, in turn.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_model::{AddKey, Level};

use crate::figures::{Figures, Series};
use crate::memory::Rounds;
use crate::peers::timed;
use crate::rounds::create;

pub(crate) const TRUE: &str = "roost: ssh web@host true";
pub(crate) const SHARED: &str = "roost: the same on a connection that is open";
pub(crate) const ASLEEP: &str = "roost: the same, of a sandbox asleep in ram";
pub(crate) const SSHD: &str = "sshd: ssh host true";
pub(crate) const SSHD_SHARED: &str = "sshd: the same on a connection that is open";

const SSHD_PROGRAM: &str = "/usr/sbin/sshd";
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures both; the key, the sandbox and the server made for it are gone afterwards.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds) -> Result<Figures> {
    let ssh = client.info().await?.ssh.context("the daemon does not listen for SSH: `--ssh-listen 127.0.0.1:0`")?;
    let folder = tempfile::Builder::new().prefix("roost-bench-ssh-").tempdir()?;
    let key = folder.path().join("key");
    timed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key))?;
    let public_key = fs::read_to_string(key.with_extension("pub"))?;
    let added =
        client.add_key(&AddKey { public_key, name: Some("bench".to_owned()), access: Default::default() }).await?;
    let name = format!("bench-ssh-{}", std::process::id());
    create(client, template, &name).await?;
    let measured = measure_with(client, &name, &ssh.address, folder.path(), rounds).await;
    client.delete_sandbox(&name).await?;
    client.remove_key(added.id.as_str()).await?;
    measured
}

async fn measure_with(
    client: &Client,
    name: &str,
    address: &str,
    folder: &Path,
    Rounds { warmup, count }: Rounds,
) -> Result<Figures> {
    let port = address.rsplit_once(':').context("an address without a port")?.1;
    let sshd = Sshd::start(folder)?;
    let here = Line { folder, user: name.to_owned(), port: port.to_owned() };
    let there = Line { folder, user: sshd.user.clone(), port: sshd.port.to_string() };
    let (here_open, there_open) = (here.open("here")?, there.open("there")?);
    let mut series = [TRUE, SSHD, SHARED, SSHD_SHARED, ASLEEP].map(Series::new);
    for round in 0..warmup + count {
        let durations = [
            timed(&mut here.ssh(None))?,
            timed(&mut there.ssh(None))?,
            timed(&mut here.ssh(Some(&here_open.path)))?,
            timed(&mut there.ssh(Some(&there_open.path)))?,
            {
                client.suspend_sandbox(name, Level::Ram).await?;
                timed(&mut here.ssh(None))?
            },
        ];
        if round >= warmup {
            for (series, duration) in series.iter_mut().zip(durations) {
                series.add(duration);
            }
        }
    }
    Ok(Figures { series: series.into(), parts: Vec::new() })
}

/// How one server is reached.
struct Line<'a> {
    folder: &'a Path,
    user: String,
    port: String,
}

impl Line<'_> {
    fn client(&self) -> Command {
        let mut command = Command::new("ssh");
        let known = format!("UserKnownHostsFile={}", self.folder.join("known_hosts").display());
        command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=accept-new", "-o", &known]);
        command.args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "LogLevel=ERROR", "-i"]);
        command.arg(self.folder.join("key")).args(["-p", &self.port, "-l", &self.user]);
        command
    }

    /// `ssh host true`, on a connection of its own or on one that is open.
    fn ssh(&self, open: Option<&Path>) -> Command {
        let mut command = self.client();
        if let Some(open) = open {
            command.arg("-S").arg(open);
        }
        command.args(["127.0.0.1", "true"]);
        command
    }

    /// A connection that stays open.
    fn open(&self, name: &str) -> Result<Open> {
        let path = self.folder.join(name);
        let mut command = self.client();
        command.arg("-M").arg("-N").arg("-S").arg(&path).arg("127.0.0.1").stdin(Stdio::null());
        let open = Open { process: command.spawn().context("failed to start ssh")?, path };
        wait_for(|| open.path.exists()).context("no connection to share")?;
        Ok(open)
    }
}

struct Open {
    process: Child,
    path: PathBuf,
}

impl Drop for Open {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A plain `sshd` with a configuration and a host key of its own.
struct Sshd {
    process: Child,
    port: u16,
    user: String,
}

impl Sshd {
    fn start(folder: &Path) -> Result<Self> {
        let host_key = folder.join("host_key");
        timed(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&host_key))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = folder.join("sshd_config");
        // A bash that sshd starts first runs what is in its user's `.bashrc`, unless it believes to be in another shell.
        let text = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\nAuthorizedKeysFile {}\nStrictModes no\n\
             UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nMaxStartups 100\nSetEnv SHLVL=1\n",
            host_key.display(),
            folder.join("key.pub").display(),
        );
        fs::write(&config, text)?;
        // It wants this folder and does not make it.
        fs::create_dir_all("/run/sshd").context("failed to make /run/sshd")?;
        let process = Command::new(SSHD_PROGRAM).args(["-D", "-e", "-f"]).arg(&config).stderr(Stdio::null()).spawn();
        let process = process.context("failed to start sshd: scripts/setup sshd")?;
        let user = crate::peers::output_of(Command::new("id").arg("-un"))?.trim().to_owned();
        let started = Self { process, port, user };
        wait_for(|| TcpStream::connect(("127.0.0.1", port)).is_ok()).context("sshd does not listen")?;
        Ok(started)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

fn end(process: &mut Child) {
    // One that has ended by itself needs no more.
    process.kill().ok();
    process.wait().ok();
}

fn wait_for(ready: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        ensure!(Instant::now() < deadline, "it takes too long");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
