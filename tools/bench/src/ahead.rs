//! Sandboxes that were made ahead, and many that are made, used and gone one after the other.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_model::{CreateBatch, SetPool, Task, TaskCommand};

use crate::figures::{Figures, Series};
use crate::memory::Rounds;
use crate::peers::Runc;
use crate::rounds::{RUNC_RUN, create, echo, template_root};

pub(crate) const POOL: &str = "roost: create from a pool and first output";
pub(crate) const RUN: &str = "roost: one of a batch of `true` runs";
pub(crate) const RUNC_LOOP: &str = "runc run /bin/true, one of a loop";

const WAITING: u32 = 4;
/// A batch is measured in so many parts, with the peer's loop after each.
const PARTS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures both; everything made for it is gone afterwards, and the pool is as it was.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds, runs: usize) -> Result<Figures> {
    let lasting = format!("bench-{}", std::process::id());
    create(client, template, &lasting).await?;
    let measured = measure_beside(client, template, &lasting, rounds, runs).await;
    client.delete_sandbox(&lasting).await.context("failed to remove the benchmark's own sandbox")?;
    measured
}

async fn measure_beside(
    client: &Client,
    template: &str,
    lasting: &str,
    rounds: Rounds,
    runs: usize,
) -> Result<Figures> {
    let mut runc = Runc::new(&template_root(client, template).await?)?;
    let before = client.pool(template).await?;
    let set = |min, max| SetPool { min, max, engine: None };
    client.set_pool(template, &set(WAITING, WAITING)).await?;
    let pooled = measure_pool(client, template, lasting, rounds, &mut runc).await;
    client.set_pool(template, &set(before.min, before.max)).await?;
    let mut series = pooled?;
    series.extend(measure_batch(client, template, runs, &mut runc).await?);
    Ok(Figures { series, parts: Vec::new() })
}

async fn measure_pool(
    client: &Client,
    template: &str,
    lasting: &str,
    Rounds { warmup, count }: Rounds,
    runc: &mut Runc,
) -> Result<Vec<Series>> {
    let mut series = [POOL, RUNC_RUN].map(Series::new);
    for round in 0..warmup + count {
        let pool = full(client, template).await?;
        let name = format!("{lasting}-{round}");
        let began = Instant::now();
        create(client, template, &name).await?;
        echo(client, &name).await?;
        let created = began.elapsed();
        ensure!(client.pool(template).await?.taken == pool + 1, "it was not taken from the pool");
        full(client, template).await?;
        let ran = runc.run()?;
        client.delete_sandbox(&name).await?;
        if round >= warmup {
            series[0].add(created);
            series[1].add(ran);
        }
    }
    Ok(series.into())
}

/// Waits until the pool is at rest and full; returns how many were taken so far.
pub(crate) async fn full(client: &Client, template: &str) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pool = client.pool(template).await?;
        if pool.ready == pool.target && pool.coming == 0 {
            return Ok(pool.taken);
        }
        ensure!(Instant::now() < deadline, "the pool does not fill: {pool:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn measure_batch(client: &Client, template: &str, runs: usize, runc: &mut Runc) -> Result<Vec<Series>> {
    let mut series = [RUN, RUNC_LOOP].map(Series::new);
    let part = u32::try_from((runs / PARTS).max(1))?;
    for _ in 0..PARTS {
        series[0].add(batch(client, template, part).await? / part);
        let peers = (part / 10).max(1);
        let began = Instant::now();
        for _ in 0..peers {
            runc.run()?;
        }
        series[1].add(began.elapsed() / peers);
    }
    Ok(series.into())
}

/// Runs `true` so many times; the clock stops when the last result has arrived.
async fn batch(client: &Client, template: &str, runs: u32) -> Result<Duration> {
    let task = Task {
        id: None,
        command: TaskCommand::Argv(vec!["/bin/true".to_owned()]),
        env: BTreeMap::new(),
        stdin: None,
        files: Vec::new(),
        timeout: None,
    };
    let tasks = vec![task; usize::try_from(runs)?];
    // Much of a run is waiting for the kernel; this many keep the processors busy meanwhile.
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parallel = Some(u32::try_from(processors * 8)?);
    let request = CreateBatch { template: Some(template.to_owned()), tasks, parallel, ..CreateBatch::default() };
    let began = Instant::now();
    let batch = client.create_batch(&request, None).await?;
    let mut results = client.batch_results(batch.id.as_str(), 0, true).await?;
    let mut succeeded = 0;
    while let Some(result) = results.next().await? {
        ensure!(result.succeeded(), "a run failed: {result:?}");
        succeeded += 1;
    }
    let took = began.elapsed();
    ensure!(succeeded == runs, "{succeeded} of {runs} runs have results");
    client.delete_batch(batch.id.as_str()).await?;
    Ok(took)
}
