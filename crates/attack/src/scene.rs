//! The sandboxes of the attacks, and the attacking program in them and on the host.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use roost_client::{Client, ClientError, ExecEvent, SandboxFilter, Upload, WriteOptions};
use roost_intruder::Thing;
use roost_model::{CreateSandbox, EngineKind, ExecOutput, Fork, IdleRequest, Level, LimitsRequest, Span, StartExec};
use tempfile::TempPath;
use tokio::process::Command;

use crate::{Life, Plan};

/// Where the program is in each sandbox.
const PROGRAM: &str = "/tmp/roost-intruder";
/// An answer that takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What an attacker took by then is all that it gets.
const TAKING: Duration = Duration::from_secs(30);
/// The daemon removes the sandboxes after this time, should this process be killed.
const TIME_TO_LIVE: Duration = Duration::from_secs(3600);
/// Memory of an attacker.
pub(crate) const ATTACKERS_MEMORY: u64 = 256 << 20;

/// The place of the attacks.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) client: &'a Client,
    plan: &'a Plan,
    tell: Tell<'a>,
    /// Names of all sandboxes of this scene begin with it.
    prefix: String,
    made: AtomicU32,
    /// The program, for the needs of the host.
    host_program: TempPath,
}

struct Tell<'a>(&'a (dyn Fn(&str) + Sync));

impl std::fmt::Debug for Tell<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Tell")
    }
}

impl<'a> Scene<'a> {
    pub(crate) fn new(client: &'a Client, plan: &'a Plan, tell: &'a (dyn Fn(&str) + Sync)) -> Result<Self> {
        let mut file = tempfile::Builder::new().prefix("roost-intruder-").tempfile()?;
        file.write_all(&plan.program)?;
        file.as_file().set_permissions(Permissions::from_mode(0o700))?;
        // A program that is open for writing cannot be started.
        let host_program = file.into_temp_path();
        let prefix = format!("attack-{}-", std::process::id());
        Ok(Self { client, plan, tell: Tell(tell), prefix, made: AtomicU32::new(0), host_program })
    }

    pub(crate) fn tell(&self, what: &str) {
        (self.tell.0)(what);
    }

    fn new_name(&self) -> String {
        format!("{}{}", self.prefix, self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a sandbox with the program in it.
    pub(crate) async fn create(&self, engine: EngineKind, memory: u64) -> Result<String> {
        let name = self.new_name();
        let limits =
            LimitsRequest { memory: Some(memory), pids: Some(512), disk: Some(512 << 20), ..LimitsRequest::default() };
        let request = CreateSandbox {
            name: Some(name.clone()),
            template: self.plan.template.clone(),
            engine: Some(engine.to_string()),
            limits: Some(limits),
            idle: Some(IdleRequest { after: Some(Span::NEVER), ..IdleRequest::default() }),
            ttl: Some(Span::from(TIME_TO_LIVE)),
            ..CreateSandbox::default()
        };
        self.client.create_sandbox(&request).await.context("failed to create a sandbox for the attacks")?;
        let options = WriteOptions { mode: Some(0o755), ..WriteOptions::default() };
        let program = Upload::bytes(self.plan.program.clone());
        let written = self.client.write_file(&name, PROGRAM, program, &options).await;
        written.context("failed to bring the attacking program into a sandbox")?;
        Ok(name)
    }

    /// Makes an attacker. `parent` is a sandbox with the program, for forks.
    pub(crate) async fn attacker(&self, engine: EngineKind, life: Life, parent: &str) -> Result<String> {
        match life {
            Life::Start => self.create(engine, ATTACKERS_MEMORY).await,
            Life::Restore => {
                let name = self.create(engine, ATTACKERS_MEMORY).await?;
                self.client.suspend_sandbox(&name, Level::Disk).await.context("failed to put an attacker to disk")?;
                self.client.wake_sandbox(&name).await.context("failed to wake an attacker")?;
                Ok(name)
            }
            Life::Fork => {
                let wanted = Fork { count: None, names: Some(vec![self.new_name()]), from: None };
                let born = self.client.fork_sandbox(parent, &wanted).await.context("failed to fork an attacker")?;
                let child = born.into_iter().next().and_then(|child| child.sandbox);
                Ok(child.context("a fork of an attacker was not born")?.name.to_string())
            }
        }
    }

    /// Starts an attack that goes on until its sandbox is removed. Returns how many things it took, and why no more.
    pub(crate) async fn take(&self, sandbox: &str, thing: Thing) -> Result<(u64, String)> {
        let start = self.program(&["take", thing.name()], "root");
        let mut session = self.client.open_exec(sandbox, &start).await?;
        let mut said = Vec::new();
        let wait = async {
            loop {
                match session.next().await? {
                    Some(ExecEvent::Output { bytes, .. }) => {
                        said.extend_from_slice(&bytes);
                        if said.ends_with(b"\n") {
                            return Ok::<(), ClientError>(());
                        }
                    }
                    Some(ExecEvent::Exit(_)) | None => return Ok(()),
                    Some(_) => {}
                }
            }
        };
        let outcome = tokio::time::timeout(TAKING, wait).await;
        let said = String::from_utf8_lossy(&said);
        let taken =
            said.split_once('\t').and_then(|(count, until)| Some((count.parse().ok()?, until.trim().to_owned())));
        Ok(match (taken, outcome) {
            (Some(taken), _) => taken,
            (None, Ok(Ok(()))) => (0, said.trim().to_owned()),
            (None, Ok(Err(error))) => (0, format!("the sandbox ended: {error}")),
            (None, Err(_)) => (0, "the attack took longer than its time".to_owned()),
        })
    }

    /// Starts a server in a sandbox.
    pub(crate) async fn serve(&self, sandbox: &str, port: u16) -> Result<()> {
        let start = self.program(&["serve", &port.to_string()], "root");
        self.client.start_exec(sandbox, &start).await?;
        let deadline = Instant::now() + PATIENCE;
        while self.client.connect_port(sandbox, port).await.is_err() {
            ensure!(Instant::now() < deadline, "the server in the neighbour does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Runs the program in a sandbox to its end.
    pub(crate) async fn run(&self, sandbox: &str, words: &[&str]) -> Result<ExecOutput> {
        let start = self.program(words, "root");
        let run = tokio::time::timeout(PATIENCE, self.client.run_exec(sandbox, &start)).await;
        Ok(run.with_context(|| format!("`{}` does not end in a sandbox", words.join(" ")))??)
    }

    fn program(&self, words: &[&str], user: &str) -> StartExec {
        let argv = std::iter::once(&PROGRAM).chain(words).map(|word| (*word).to_owned()).collect();
        StartExec { argv, user: Some(user.to_owned()), ..StartExec::default() }
    }

    /// Asks for a little of a thing in a sandbox. The error is the kernel's.
    pub(crate) async fn need_of(&self, sandbox: &str, thing: Thing) -> Result<(), String> {
        match self.run(sandbox, &["need", thing.name()]).await {
            Ok(output) if output.exit_code == 0 => Ok(()),
            Ok(output) => Err(output.stderr.trim().to_owned()),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    /// Asks for a little of a thing on the host.
    pub(crate) async fn need_of_host(&self, thing: Thing) -> Result<(), String> {
        let mut command = Command::new(&self.host_program);
        command.args(["need", thing.name()]).kill_on_drop(true);
        match tokio::time::timeout(PATIENCE, command.output()).await {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("it does not end".to_owned()),
        }
    }

    pub(crate) async fn remove(&self, sandbox: &str) -> Result<()> {
        match self.client.delete_sandbox(sandbox).await {
            Ok(()) => Ok(()),
            Err(error) => bail!("failed to remove `{sandbox}`: {error}"),
        }
    }

    /// Removes every sandbox of this scene.
    pub(crate) async fn remove_all(&self) -> Result<()> {
        let all = self.client.all_sandboxes(&SandboxFilter::default()).await?;
        for sandbox in all.iter().filter(|sandbox| sandbox.name.as_str().starts_with(&self.prefix)) {
            self.remove(sandbox.name.as_str()).await?;
        }
        Ok(())
    }
}
