//! All attackers at once beside a neighbour that serves requests.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_intruder::Thing;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::measure::{command, kernel_memory};
use crate::report::{Life, SLOWER};
use crate::scene::Scene;
use crate::single::Field;

const PORT: u16 = 8000;
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(100);
/// The kernel gives the memory that it took for the attackers back in this time.
const RECOVERY: Duration = Duration::from_secs(30);
/// Memory that the kernel may have taken meanwhile for the other programs of the host.
const TOLERANCE: u64 = 256 << 20;

/// What the neighbour saw of a crowd of attackers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CrowdReport {
    /// How many attackers there were.
    pub attackers: usize,
    /// For how many seconds.
    pub seconds: u64,
    /// Requests to the neighbour's server.
    pub requests: u64,
    /// The median time of a command in the neighbour, in milliseconds.
    pub command_ms: f64,
    /// The host had its memory back after so many seconds.
    pub recovered_after: Option<f64>,
    /// How neighbour or host were harmed.
    pub faults: Vec<String>,
}

impl fmt::Display for CrowdReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attackers, seconds, requests, command_ms, recovered_after, faults } = self;
        write!(
            formatter,
            "{attackers} attackers for {seconds} s; {requests} requests; a command takes {command_ms:.1} ms"
        )?;
        if let Some(after) = recovered_after {
            write!(formatter, "; memory back after {after:.1} s")?;
        }
        faults.iter().try_for_each(|fault| write!(formatter, "; {fault}"))
    }
}

/// How many attackers there are.
const ATTACKERS: usize = 20;

/// Lets attackers take all `things` at once for so many seconds.
pub(crate) async fn attack(
    scene: &Scene<'_>,
    field: &Field<'_>,
    things: &[Thing],
    seconds: u64,
) -> Result<CrowdReport> {
    let things: Vec<Thing> = things.iter().copied().cycle().take(ATTACKERS).collect();
    scene.tell(&format!("{}: {} attackers at once", field.engine, things.len()));
    scene.serve(&field.neighbour, PORT).await?;
    request(scene, &field.neighbour).await?;
    let memory = kernel_memory()?;
    let mut attackers = Vec::new();
    for _ in &things {
        attackers.push(field.attacker(Life::Start).await?);
    }
    let mut faults = Vec::new();
    let (requests, command_ms) = {
        let takers = things.iter().zip(&attackers).map(|(thing, name)| scene.take(name, *thing));
        let mut takers: Vec<_> = takers.map(Box::pin).collect();
        let taking = async {
            for taker in &mut takers {
                // An attacker may end by its own attack.
                let _outcome = taker.await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            watched = watch(scene, &field.neighbour, Duration::from_secs(seconds), &mut faults) => watched?,
            () = taking => (0, 0.0),
        }
    };
    if command_ms > SLOWER * field.quiet_ms() {
        scene.tell("commands in the neighbour were slow");
    }
    let mut removals = JoinSet::new();
    for name in attackers.clone() {
        let client = scene.client.clone();
        removals.spawn(async move { client.delete_sandbox(&name).await });
    }
    while let Some(removed) = removals.join_next().await {
        removed?.context("failed to remove an attacker")?;
    }
    let recovered_after = recovery(memory).await?;
    if recovered_after.is_none() {
        faults.push(format!("the host does not have its memory back after {} s", RECOVERY.as_secs()));
    }
    Ok(CrowdReport { attackers: attackers.len(), seconds, requests, command_ms, recovered_after, faults })
}

/// Asks the neighbour's server and runs commands there, again and again.
async fn watch(scene: &Scene<'_>, neighbour: &str, time: Duration, faults: &mut Vec<String>) -> Result<(u64, f64)> {
    let (began, mut requests, mut times) = (Instant::now(), 0_u64, Vec::new());
    while began.elapsed() < time {
        requests += 1;
        if let Err(error) = request(scene, neighbour).await {
            faults.push(format!("request {requests} failed after {:.0} s: {error:#}", began.elapsed().as_secs_f64()));
        }
        if requests % 5 == 0 {
            match command(scene, neighbour).await {
                Ok(time) => times.push(time),
                Err(error) => faults.push(format!("{error:#}")),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    times.sort();
    let middle = times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    Ok((requests, middle))
}

async fn request(scene: &Scene<'_>, sandbox: &str) -> Result<()> {
    let ask = async {
        let mut tunnel = scene.client.connect_port(sandbox, PORT).await?;
        tunnel.write_all(b"GET / HTTP/1.1\r\nhost: box\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        tunnel.read_to_end(&mut answer).await?;
        ensure!(answer.ends_with(b"\r\n\r\nwell"), "the server answered {:?}", String::from_utf8_lossy(&answer));
        Ok(())
    };
    tokio::time::timeout(PATIENCE, ask).await.context("no answer in time")?
}

async fn recovery(before: u64) -> Result<Option<f64>> {
    let began = Instant::now();
    loop {
        if kernel_memory()? <= before + TOLERANCE {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
        if began.elapsed() > RECOVERY {
            return Ok(None);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
