//! Two hundred sandboxes at once: all answer, and what they cost in memory.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Sandbox, available_memory, own_memory, resident_memory};
use tokio::sync::Semaphore;

const SANDBOXES: usize = 200;
const AT_ONCE: usize = 8;
const PER_SANDBOX: u64 = 2 << 20;
/// A daemon may have 60 MiB in all. Of those 30 are for the pages of its program, of which the build that tests run has more.
const DAEMON: u64 = 30 << 20;

/// Makes all of them, a few at a time.
async fn create_all(daemon: &Arc<Daemon>) -> Result<Vec<Sandbox>> {
    let gate = Arc::new(Semaphore::new(AT_ONCE));
    let mut births = tokio::task::JoinSet::new();
    for number in 0..SANDBOXES {
        let (daemon, gate) = (daemon.clone(), gate.clone());
        births.spawn(async move {
            let _turn = gate.acquire().await?;
            daemon.sandbox(&format!("d{number}")).await
        });
    }
    let mut sandboxes = Vec::new();
    while let Some(born) = births.join_next().await {
        sandboxes.push(born??);
    }
    Ok(sandboxes)
}

/// The largest of a few readings: memory that is being freed in the background shows up late.
async fn settled_memory() -> Result<u64> {
    let mut most = 0;
    for _ in 0..10 {
        most = most.max(available_memory()?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(most)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_sandboxes_answer_and_cost_little() -> Result<()> {
    let daemon = Arc::new(Daemon::start().await?);
    // One first, so that what all share (the template's pages, the daemon's own warm-up) is not counted 200 times less
    // than it is or once too often.
    let first = daemon.sandbox("first").await?;
    first.answers().await?;
    let before = settled_memory().await?;

    let began = Instant::now();
    let sandboxes = create_all(&daemon).await?;
    eprintln!("{SANDBOXES} made in {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    for sandbox in &sandboxes {
        sandbox.answers().await?;
    }
    eprintln!("all answered in {:.1} s", began.elapsed().as_secs_f64());

    let after = settled_memory().await?;
    let each = before.saturating_sub(after) / SANDBOXES as u64;
    let mut charged = 0;
    for sandbox in &sandboxes {
        charged += daemon.client().stats(sandbox.name()).await?.memory;
    }
    let own = own_memory(daemon.pid()?)?;
    let all = resident_memory(daemon.pid()?)?;
    eprintln!("memory per sandbox, everything on the host told: {} KiB", each >> 10);
    eprintln!("memory per sandbox, charged to its cgroup: {} KiB", (charged / SANDBOXES as u64) >> 10);
    eprintln!("daemon: {} KiB, and {} KiB with its program", own >> 10, all >> 10);
    ensure!(each <= PER_SANDBOX, "an idle sandbox costs {each} bytes");
    ensure!(own <= DAEMON, "the daemon has {own} bytes");

    let began = Instant::now();
    for sandbox in &sandboxes {
        sandbox.delete().await?;
    }
    eprintln!("all deleted in {:.1} s", began.elapsed().as_secs_f64());
    first.answers().await
}
