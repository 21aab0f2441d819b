//! The sandboxes of a benchmark.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, SandboxFilter};
use roost_model::{CreateSandbox, LimitsRequest, SetPool, StartExec};
use tokio::task::JoinSet;

/// How many are made or removed at once where nobody measures.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// Where it takes place.
pub(crate) struct Scene<'a> {
    pub(crate) client: &'a Client,
    pub(crate) template: &'a str,
    /// What the names of all its sandboxes start with.
    name: String,
    tell: &'a (dyn Fn(&str) + Sync),
}

impl<'a> Scene<'a> {
    pub(crate) fn new(client: &'a Client, template: &'a str, tell: &'a (dyn Fn(&str) + Sync)) -> Self {
        Self { client, template, name: format!("bench-{}", std::process::id()), tell }
    }

    pub(crate) fn tell(&self, what: &str) {
        (self.tell)(what);
    }

    pub(crate) fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    /// Makes a sandbox; `memory` in megabytes is what it must have room for beside the ordinary.
    pub(crate) async fn create(&self, name: &str, memory: u64) -> Result<()> {
        let limits = LimitsRequest { memory: Some((2 * memory + 512) * MIB), ..LimitsRequest::default() };
        create(self.client, self.template, name, (memory > 0).then_some(limits)).await
    }

    /// Makes one and has it answer; the time of both.
    pub(crate) async fn create_and_ask(&self, name: &str) -> Result<Duration> {
        let began = Instant::now();
        self.create(name, 0).await?;
        self.ask(name).await?;
        Ok(began.elapsed())
    }

    /// The time to the output of a command, which wakes the sandbox if it sleeps.
    pub(crate) async fn ask(&self, name: &str) -> Result<Duration> {
        ask(self.client, name).await
    }

    /// Runs a line of shell that must succeed.
    pub(crate) async fn run(&self, name: &str, line: &str) -> Result<()> {
        let argv = ["/bin/sh", "-c", line].map(str::to_owned).into();
        let done = self.client.run_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
        ensure!(done.exit_code == 0, "`{line}` failed: {}", done.stderr.trim());
        Ok(())
    }

    /// Starts a process that holds so many megabytes of random bytes in its memory, and waits until it has them.
    pub(crate) async fn hold_memory(&self, name: &str, megabytes: u64) -> Result<()> {
        let argv = ["/bin/sh", "-c", &holding(megabytes)].map(str::to_owned).into();
        self.client.start_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
        self.run(name, "until [ -e /tmp/full ]; do sleep 0.05; done; rm /tmp/full").await
    }

    /// Makes so many, a few at once, and does something with each.
    pub(crate) async fn make_many<F, W>(&self, names: impl Iterator<Item = String>, and_then: F) -> Result<()>
    where
        F: Fn(Client, String) -> W,
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let mut names = names;
        let mut births = JoinSet::new();
        loop {
            while births.len() < AT_ONCE
                && let Some(name) = names.next()
            {
                let (client, template) = (self.client.clone(), self.template.to_owned());
                let then = and_then(client.clone(), name.clone());
                births.spawn(async move {
                    create(&client, &template, &name, None).await?;
                    then.await
                });
            }
            let Some(born) = births.join_next().await else { return Ok(()) };
            born??;
        }
    }

    /// Has a pool of this many while `work` is done.
    pub(crate) async fn with_pool<T>(&self, size: u32, work: impl Future<Output = Result<T>>) -> Result<T> {
        let before = self.client.pool(self.template).await?;
        self.set_pool(size, size).await?;
        let done = work.await;
        self.set_pool(before.min, before.max).await?;
        done
    }

    pub(crate) async fn set_pool(&self, min: u32, max: u32) -> Result<()> {
        self.client.set_pool(self.template, &SetPool { min, max, engine: None }).await?;
        Ok(())
    }

    /// Waits until the pool is at rest and full.
    pub(crate) async fn pool_is_full(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pool = self.client.pool(self.template).await?;
            if pool.ready == pool.target && pool.coming == 0 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the pool does not fill: {pool:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Removes everything that has a name of ours.
    pub(crate) async fn remove_all(&self) -> Result<()> {
        let all = self.client.all_sandboxes(&SandboxFilter::default()).await?;
        let ours = all.into_iter().filter(|sandbox| sandbox.name.as_str().starts_with(&self.name));
        let mut ends = JoinSet::new();
        for sandbox in ours {
            while ends.len() >= AT_ONCE
                && let Some(ended) = ends.join_next().await
            {
                ended??;
            }
            let client = self.client.clone();
            ends.spawn(async move { client.delete_sandbox(sandbox.id.as_str()).await });
        }
        while let Some(ended) = ends.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// A line of shell that holds so many megabytes of random bytes, in a sandbox and in a peer's container; `/tmp/full` is there once
/// it has them.
pub(crate) fn holding(megabytes: u64) -> String {
    let bytes = megabytes * MIB;
    format!("(head -c {bytes} /dev/urandom; echo >/tmp/full; exec sleep 1000000) | tail -c {bytes}")
}

/// Makes a sandbox.
pub(crate) async fn create(client: &Client, template: &str, name: &str, limits: Option<LimitsRequest>) -> Result<()> {
    let (name, template) = (Some(name.to_owned()), Some(template.to_owned()));
    let request = CreateSandbox { name, template, limits, ..CreateSandbox::default() };
    client.create_sandbox(&request).await.context("failed to create a sandbox")?;
    Ok(())
}

/// The time to the output of a command: the clock stops at output, not at a promise of it.
pub(crate) async fn ask(client: &Client, name: &str) -> Result<Duration> {
    let argv = ["/bin/echo", "here"].map(str::to_owned).into();
    let began = Instant::now();
    let output = client.run_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
    ensure!(output.stdout == "here\n", "the sandbox printed {:?}", output.stdout);
    Ok(began.elapsed())
}
