//! Sandboxes that sleep: what a request that wakes one costs, and what a thousand of them cost while nobody asks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::Client;
use roost_model::{Level, StartExec};
use tokio::task::JoinSet;

use crate::figures::{Figures, Series};
use crate::memory::Rounds;
use crate::proxied;
use crate::rounds::create;

pub(crate) const AWAKE: &str = "request through the proxy, awake";
pub(crate) const ASLEEP: &str = "request through the proxy, asleep in ram";
pub(crate) const MEMORY: &str = "asleep in ram: memory of the host for each (MiB)";
pub(crate) const PROCESSOR: &str = "asleep in ram: the daemon's processor time (% of a core)";

const PORT: u16 = 8080;
const SERVE: &str = "mkdir -p /srv && echo here >/srv/index.html && exec httpd -p 8080 -h /srv";
/// How many are made at once.
const AT_ONCE: usize = 8;
/// How long the daemon is watched, so many times.
const WATCHED: Duration = Duration::from_secs(5);
const TIMES: usize = 6;
/// Linux counts processor time in these, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Measures both; the sandboxes made for it are gone afterwards.
pub(crate) async fn measure(client: &Client, template: &str, rounds: Rounds, sleepers: usize) -> Result<Figures> {
    let name = format!("bench-asleep-{}", std::process::id());
    create(client, template, &name).await?;
    let measured = measure_beside(client, template, &name, rounds, sleepers).await;
    let all = client.all_sandboxes(&roost_client::SandboxFilter::default()).await?;
    for sandbox in all.iter().filter(|sandbox| sandbox.name.as_str().starts_with(&name)) {
        client.delete_sandbox(sandbox.id.as_str()).await.context("failed to remove a sandbox of the benchmark")?;
    }
    measured
}

async fn measure_beside(
    client: &Client,
    template: &str,
    name: &str,
    rounds: Rounds,
    sleepers: usize,
) -> Result<Figures> {
    let mut series = requests(client, name, rounds).await?;
    client.suspend_sandbox(name, Level::Ram).await?;
    series.extend(many(client, template, name, sleepers).await?);
    Ok(Figures { series, parts: Vec::new() })
}

async fn requests(client: &Client, name: &str, Rounds { warmup, count }: Rounds) -> Result<Vec<Series>> {
    let argv = ["/bin/sh", "-c", SERVE].map(str::to_owned).into();
    let served = client.run_exec(name, &StartExec { argv, ..StartExec::default() }).await?;
    ensure!(served.stderr.is_empty(), "the server did not start: {}", served.stderr);
    let mut series = [AWAKE, ASLEEP].map(Series::new);
    for round in 0..warmup + count {
        let awake = proxied::request(name, PORT, "here\n")?;
        client.suspend_sandbox(name, Level::Ram).await?;
        let asleep = proxied::request(name, PORT, "here\n")?;
        if round >= warmup {
            series[0].add(awake);
            series[1].add(asleep);
        }
    }
    Ok(series.into())
}

async fn many(client: &Client, template: &str, name: &str, sleepers: usize) -> Result<Vec<Series>> {
    let mut series = [MEMORY, PROCESSOR].map(Series::new);
    let before = available_memory().await?;
    let mut names = (0..sleepers).map(|number| format!("{name}-{number}"));
    let mut births = JoinSet::new();
    loop {
        while births.len() < AT_ONCE
            && let Some(name) = names.next()
        {
            let (client, template) = (client.clone(), template.to_owned());
            births.spawn(async move {
                create(&client, &template, &name).await?;
                client.suspend_sandbox(&name, Level::Ram).await?;
                anyhow::Ok(())
            });
        }
        let Some(born) = births.join_next().await else { break };
        born??;
    }
    let taken = before.saturating_sub(available_memory().await?);
    series[0].push(taken as f64 / (1 << 20) as f64 / sleepers.max(1) as f64);
    let daemon = tokio::net::UnixStream::connect(proxied::socket()).await?.peer_cred()?;
    let pid = daemon.pid().context("the daemon has no pid")?;
    for _ in 0..TIMES {
        let (began, used) = (Instant::now(), processor_time(pid)?);
        tokio::time::sleep(WATCHED).await;
        series[1].push((processor_time(pid)? - used) / began.elapsed().as_secs_f64() * 100.0);
    }
    Ok(series.into())
}

/// The largest of a few readings: memory that is being freed in the background shows up late.
async fn available_memory() -> Result<u64> {
    let mut most = 0;
    for _ in 0..20 {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        most = most.max(kibibytes << 10);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(most)
}

/// Seconds that a process has computed.
fn processor_time(pid: i32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("failed to read the daemon's times")?;
    let (_, after_name) = text.rsplit_once(')').context("the daemon's times are not readable")?;
    let ticks: Vec<f64> = after_name.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}
