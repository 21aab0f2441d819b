//! Sandboxes on gVisor, turn by turn with `runsc run`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_model::{CreateSandbox, EngineKind, Level, PoolView, SetPool};

use crate::figures::{Figures, Parts, Series};
use crate::memory::Rounds;
use crate::peers::Runsc;
use crate::rounds::{echo, template_root};
use crate::workload::Server;

pub(crate) const POOL: &str = "create from a pool and first output";
pub(crate) const CREATE: &str = "create and first output, no pool";
pub(crate) const RUNSC: &str = "runsc run /bin/echo";
pub(crate) const RUNSC_OUTPUT: &str = "runsc run /bin/echo: until its output";
pub(crate) const AWAKE: &str = "answer of one that is awake";
pub(crate) const RAM: &str = "ram wake to first answer";
pub(crate) const DISK_SUSPEND: &str = "64 MB: suspend to disk";
pub(crate) const DISK_WAKE: &str = "64 MB: disk wake to first answer";
pub(crate) const MEMORY: &str = "memory of an idle sandbox, MiB";
pub(crate) const OWN_MEMORY: &str = "memory of an idle sandbox, page cache aside, MiB";

pub(crate) const ENGINE: &str = "gvisor";
const SIZE: u32 = 64;
const WAITING: u32 = 1;
/// In which what was ended is gone, and what is made ahead is there.
const SETTLE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: f64 = (1 << 20) as f64;

/// Where a daemon finds the peer's program, which it uses itself.
async fn program(client: &Client) -> Result<PathBuf> {
    let brought = Path::new(&client.info().await?.data_dir).join("runsc/runsc");
    Ok(if brought.exists() { brought } else { PathBuf::from("runsc") })
}

/// Measures everything; the sandboxes made for it are gone afterwards, and the pool is as it was.
pub(crate) async fn measure(client: &Client, template: &str, large: &str, rounds: Rounds) -> Result<Figures> {
    let name = format!("bench-gvisor-{}", std::process::id());
    // Somebody has to stand on the template for it to be mounted.
    create(client, template, &name).await?;
    let before = pool_of(client, template).await?.map_or((0, 0), |pool| (pool.min, pool.max));
    let measured = measure_beside(client, template, large, &name, rounds).await;
    set_pool(client, template, before).await?;
    for sandbox in client.all_sandboxes(&roost_client::SandboxFilter::default()).await? {
        if sandbox.name.as_str().starts_with(&name) {
            client.delete_sandbox(sandbox.id.as_str()).await.context("failed to remove a sandbox of the benchmark")?;
        }
    }
    measured
}

async fn measure_beside(client: &Client, template: &str, large: &str, name: &str, rounds: Rounds) -> Result<Figures> {
    let mut figures = Figures::default();
    let mut peer = Runsc::new(program(client).await?, &template_root(client, template).await?)?;
    births(client, template, name, rounds, &mut peer, &mut figures).await?;
    let server = Server::start_on(client, large, &format!("{name}-server"), SIZE, Some(ENGINE)).await?;
    sleeps(client, &server, rounds, &mut figures).await?;
    Ok(figures)
}

/// Without a pool, by the peer, and with a pool, one after the other in each round; nothing is made or ended beside them.
async fn births(
    client: &Client,
    template: &str,
    name: &str,
    Rounds { warmup, count }: Rounds,
    peer: &mut Runsc,
    figures: &mut Figures,
) -> Result<()> {
    let mut series = [POOL, CREATE, RUNSC, RUNSC_OUTPUT, MEMORY, OWN_MEMORY].map(Series::new);
    for round in 0..warmup + count {
        let fresh_name = format!("{name}-{round}-b");
        let fresh = born(client, template, &fresh_name).await?;
        let used = client.stats(&fresh_name).await?;
        client.delete_sandbox(&fresh_name).await?;
        let (ran, spoke) = peer.run()?;
        let pooled_name = format!("{name}-{round}-a");
        set_pool(client, template, (WAITING, WAITING)).await?;
        let taken = full(client, template).await?;
        let pooled = born(client, template, &pooled_name).await?;
        ensure!(pool_of(client, template).await?.is_some_and(|pool| pool.taken > taken), "nothing was taken");
        // What takes its place is there before it is ended, and has ended before the next round.
        full(client, template).await?;
        set_pool(client, template, (0, 0)).await?;
        empty(client, template).await?;
        client.delete_sandbox(&pooled_name).await?;
        tokio::time::sleep(SETTLE).await;
        if round >= warmup {
            for (series, duration) in series.iter_mut().zip([pooled, fresh, ran, spoke]) {
                series.add(duration);
            }
            series[4].push(used.memory as f64 / MIB);
            series[5].push(used.memory_anon as f64 / MIB);
        }
    }
    figures.series.extend(series);
    Ok(())
}

async fn sleeps(
    client: &Client,
    server: &Server,
    Rounds { warmup, count }: Rounds,
    figures: &mut Figures,
) -> Result<()> {
    let mut series = [AWAKE, RAM, DISK_SUSPEND, DISK_WAKE].map(Series::new);
    let mut parts = Parts::default();
    for round in 0..warmup + count {
        let awake = server.request()?;
        client.suspend_sandbox(&server.name, Level::Ram).await?;
        let ram = server.request()?;
        let began = Instant::now();
        let slept = client.suspend_sandbox(&server.name, Level::Disk).await?;
        let suspended = began.elapsed();
        // Until a sentry waits for it.
        tokio::time::sleep(SETTLE).await;
        let began = Instant::now();
        let woke = client.wake_sandbox(&server.name).await?;
        server.request()?;
        let disk = began.elapsed();
        // A disk wake leaves work behind, the next sentry above all; a sleep in ram is not measured in its shadow.
        tokio::time::sleep(SETTLE).await;
        if round >= warmup {
            for (series, duration) in series.iter_mut().zip([awake, ram, suspended, disk]) {
                series.add(duration);
            }
            parts.add("suspend to disk", &slept);
            parts.add("disk wake", &woke);
        }
    }
    figures.series.extend(series);
    figures.parts.extend(parts.series());
    Ok(())
}

async fn create(client: &Client, template: &str, name: &str) -> Result<()> {
    let request = CreateSandbox {
        name: Some(name.to_owned()),
        template: Some(template.to_owned()),
        engine: Some(ENGINE.to_owned()),
        ..CreateSandbox::default()
    };
    client.create_sandbox(&request).await.context("failed to create a sandbox")?;
    Ok(())
}

async fn born(client: &Client, template: &str, name: &str) -> Result<Duration> {
    let began = Instant::now();
    create(client, template, name).await?;
    echo(client, name).await?;
    Ok(began.elapsed())
}

async fn set_pool(client: &Client, template: &str, (min, max): (u32, u32)) -> Result<()> {
    let wanted = SetPool { min, max, engine: Some(ENGINE.to_owned()) };
    client.set_pool(template, &wanted).await.context("failed to set the pool").map(drop)
}

async fn pool_of(client: &Client, template: &str) -> Result<Option<PoolView>> {
    let pools = client.list_pools().await?;
    Ok(pools.into_iter().find(|pool| pool.template == template && pool.engine == EngineKind::Gvisor))
}

/// Waits until the pool is full and at rest; returns how many were taken so far.
async fn full(client: &Client, template: &str) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match pool_of(client, template).await? {
            Some(pool) if pool.ready >= WAITING && pool.coming == 0 => return Ok(pool.taken),
            pool => ensure!(Instant::now() < deadline, "the pool does not fill: {pool:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until nothing waits in it and nothing is made for it.
async fn empty(client: &Client, template: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Some(pool) = pool_of(client, template).await?.filter(|pool| pool.ready > 0 || pool.coming > 0) {
        ensure!(Instant::now() < deadline, "the pool does not empty: {pool:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
