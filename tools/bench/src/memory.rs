//! Measures what keeps memory: suspend and wake, checkpoints, forks.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use roost_client::Client;
use roost_model::{CreateCheckpoint, Fork, Level};
use tokio::task::JoinSet;

use crate::figures::{Figures, Parts, Series};
use crate::paused::Paused;
use crate::workload::Server;

pub(crate) const AWAKE: &str = "answer of one that is awake";
pub(crate) const RAM: &str = "ram wake to first answer";
pub(crate) const RAM_CALLED: &str = "ram wake by a call of its own, first answer";
pub(crate) const RUNC_RAM: &str = "runc resume to first answer";
pub(crate) const RAM_EXEC: &str = "ram wake, exec that asks";
pub(crate) const RUNC_RAM_EXEC: &str = "runc resume, runc exec that asks";
pub(crate) const DISK_SUSPEND: &str = "64 MB: suspend to disk";
pub(crate) const DISK_WAKE: &str = "64 MB: wake to first answer";
pub(crate) const DISK_BOTH: &str = "64 MB: suspend to disk + wake to first answer";
pub(crate) const LARGE_SUSPEND: &str = "512 MB: suspend to disk";
pub(crate) const LARGE_WAKE: &str = "512 MB: wake to first answer";
pub(crate) const CHECKPOINT_PAUSE: &str = "files-only checkpoint, 200 MB dirty: pause";
pub(crate) const CHECKPOINT_SEEN: &str = "files-only checkpoint: stood still, seen inside";
pub(crate) const FORK: &str = "fork of running 64 MB: child's first answer";
pub(crate) const FORK_TEN: &str = "fork of running 64 MB: ten children's answers";

const SMALL: u32 = 64;
const LARGE: u32 = 512;
const CHILDREN: u32 = 10;
/// A new file each time: one that is emptied and written again is written out when it is closed.
const DIRTY: &str = "rm -f /var/tmp/dirty && head -c 200M /dev/urandom >/var/tmp/dirty";

/// How often to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rounds {
    pub(crate) warmup: usize,
    pub(crate) count: usize,
}

/// Whose turn it is, and what was found.
#[derive(Debug)]
struct Bench<'a> {
    client: &'a Client,
    rounds: Rounds,
    figures: Figures,
}

/// Measures everything; the sandboxes made for it are gone afterwards.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds) -> Result<Figures> {
    let name = format!("bench-memory-{}", std::process::id());
    let mut bench = Bench { client, rounds, figures: Figures::default() };
    let measured = bench.all(template, &name).await;
    for sandbox in client.all_sandboxes(&roost_client::SandboxFilter::default()).await? {
        if sandbox.name.as_str().starts_with(&name) {
            client.delete_sandbox(sandbox.id.as_str()).await.context("failed to remove a sandbox of the benchmark")?;
        }
    }
    measured.map(|()| bench.figures)
}

impl Bench<'_> {
    async fn all(&mut self, template: &str, name: &str) -> Result<()> {
        let small = Server::start(self.client, template, name, SMALL).await?;
        let root = crate::rounds::template_root(self.client, template).await?;
        self.ram(&small, &root).await?;
        self.disk(&small, [DISK_SUSPEND, DISK_WAKE], Some(DISK_BOTH)).await?;
        self.forks(&small, 1, FORK).await?;
        self.forks(&small, CHILDREN, FORK_TEN).await?;
        self.checkpoints(&small).await?;
        self.client.delete_sandbox(&small.name).await?;
        let large = Server::start(self.client, template, &format!("{name}-large"), LARGE).await?;
        self.disk(&large, [LARGE_SUSPEND, LARGE_WAKE], None).await
    }

    /// Whether each round counts.
    fn turns(&self) -> impl Iterator<Item = bool> + use<> {
        let Rounds { warmup, count } = self.rounds;
        (0..warmup + count).map(move |round| round >= warmup)
    }

    /// Wakes from a frozen state, turn by turn with runc.
    async fn ram(&mut self, server: &Server, root: &Path) -> Result<()> {
        let mut peer = Paused::start(root, SMALL)?;
        let mut line = server.line().await?;
        let mut series = [AWAKE, RAM, RAM_CALLED, RUNC_RAM, RAM_EXEC, RUNC_RAM_EXEC].map(Series::new);
        let mut parts = Parts::default();
        for counts in self.turns() {
            let began = Instant::now();
            server.check(&line.ask("/").await?)?;
            let awake = began.elapsed();
            // Whatever reaches for it wakes it: a line for a program inside does.
            let slept = self.client.suspend_sandbox(&server.name, Level::Ram).await?;
            let began = Instant::now();
            server.check(&line.ask("/").await?)?;
            let asked = began.elapsed();
            self.client.suspend_sandbox(&server.name, Level::Ram).await?;
            let began = Instant::now();
            let woke = self.client.wake_sandbox(&server.name).await?;
            server.check(&line.ask("/").await?)?;
            let called = began.elapsed();
            let peer_asked = peer.resume_and_ask()?;
            self.client.suspend_sandbox(&server.name, Level::Ram).await?;
            let began = Instant::now();
            self.client.wake_sandbox(&server.name).await?;
            server.answers().await?;
            let executed = began.elapsed();
            let peer_executed = peer.resume_and_exec()?;
            if counts {
                record(&mut series, [awake, asked, called, peer_asked, executed, peer_executed]);
                parts.add("suspend to ram", &slept);
                parts.add("ram wake", &woke);
            }
        }
        self.keep(series, parts);
        Ok(())
    }

    async fn disk(&mut self, server: &Server, names: [&str; 2], both: Option<&str>) -> Result<()> {
        let mut series: Vec<Series> = names.into_iter().chain(both).map(Series::new).collect();
        let mut parts = Parts::default();
        for counts in self.turns() {
            let began = Instant::now();
            let slept = self.client.suspend_sandbox(&server.name, Level::Disk).await?;
            let suspended = began.elapsed();
            let woke = self.client.wake_sandbox(&server.name).await?;
            server.answers().await?;
            let answered = began.elapsed();
            if counts {
                record(&mut series, [suspended, answered - suspended, answered]);
                parts.add(names[0], &slept);
                parts.add(names[1], &woke);
            }
        }
        self.keep(series, parts);
        Ok(())
    }

    async fn forks(&mut self, parent: &Server, count: u32, what: &str) -> Result<()> {
        let mut series = [Series::new(what)];
        let mut parts = Parts::default();
        let names: Vec<String> = (0..count).map(|number| format!("{}-{number}", parent.name)).collect();
        for counts in self.turns() {
            let wanted = Fork { names: Some(names.clone()), ..Fork::default() };
            let began = Instant::now();
            let forks = self.client.fork_sandbox(&parent.name, &wanted).await?;
            let mut asked = JoinSet::new();
            for name in &names {
                let child = parent.fork(name);
                asked.spawn(async move { child.answers().await });
            }
            while let Some(answered) = asked.join_next().await {
                answered??;
            }
            let took = began.elapsed();
            for name in &names {
                self.client.delete_sandbox(name).await?;
            }
            if counts {
                record(&mut series, [took]);
                forks.iter().filter_map(|fork| fork.receipt.as_ref()).for_each(|receipt| parts.add(what, receipt));
            }
        }
        self.keep(series, parts);
        Ok(())
    }

    async fn checkpoints(&mut self, server: &Server) -> Result<()> {
        let mut series = [CHECKPOINT_PAUSE, CHECKPOINT_SEEN].map(Series::new);
        let mut parts = Parts::default();
        for counts in self.turns() {
            server.run(["/bin/sh", "-c", DIRTY].map(str::to_owned)).await?;
            server.ask("/watch").await?;
            let wanted = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
            let made = self.client.create_checkpoint(&server.name, &wanted).await?;
            let seen: f64 = server.ask("/stood-still").await?.parse().context("the server tells no time")?;
            self.client.delete_checkpoint(&server.name, made.checkpoint.id.as_str()).await?;
            let paused = made.receipt.paused_ms.context("the receipt tells no pause")?;
            if counts {
                record(&mut series, [paused, seen].map(|time| Duration::from_secs_f64(time / 1e3)));
                parts.add("files-only checkpoint", &made.receipt);
            }
        }
        self.keep(series, parts);
        Ok(())
    }

    fn keep(&mut self, series: impl IntoIterator<Item = Series>, parts: Parts) {
        self.figures.series.extend(series);
        self.figures.parts.extend(parts.series());
    }
}

fn record<const COUNT: usize>(series: &mut [Series], durations: [Duration; COUNT]) {
    for (series, duration) in series.iter_mut().zip(durations) {
        series.add(duration);
    }
}
