//! Checkpoints as an attack on the host's disk: a sandbox that keeps rewriting its disk between them.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_client::ClientError;
use roost_e2e::{Daemon, Options, Sandbox};
use roost_model::{CheckpointView, CreateCheckpoint, CreateSandbox, EngineKind, ErrorCode, Level, LimitsRequest};

const MIB: u64 = 1 << 20;
/// What each checkpoint retains when the disk is rewritten after it.
const FILL: u64 = 40 * MIB;
/// What checkpoints may take: the budget of 128 MiB less the memory limit of 64 MiB.
const MOST: u64 = 64 * MIB;

async fn sandbox(daemon: &Daemon) -> Result<Sandbox> {
    let limits = LimitsRequest {
        memory: Some(64 * MIB),
        disk: Some(96 * MIB),
        images: Some(128 * MIB),
        ..LimitsRequest::default()
    };
    let request = CreateSandbox {
        name: Some("box".to_owned()),
        template: Some("mini".to_owned()),
        limits: Some(limits),
        ..CreateSandbox::default()
    };
    daemon.sandbox_with(request).await
}

/// Replaces the content of the sandbox's disk; fails where its limit is reached.
fn rewrite() -> String {
    format!("rm -f /root/fill; dd if=/dev/urandom of=/root/fill bs=1M count={} conv=fsync", FILL / MIB)
}

async fn from_inside(sandbox: &Sandbox) -> Result<String> {
    sandbox.sh_ok("until id=$(roost-guest checkpoint 2>/dev/null); do sleep 0.2; done; echo $id").await
}

async fn checkpoints(daemon: &Daemon) -> Result<Vec<CheckpointView>> {
    Ok(daemon.client().list_checkpoints("box").await?)
}

fn files_only() -> CreateCheckpoint {
    CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() }
}

fn is_over_budget<T>(outcome: Result<T, ClientError>) -> Result<()> {
    let error = outcome.err().context("a checkpoint above the budget was made")?;
    ensure!(error.code() == Some(ErrorCode::ImageBudgetExceeded), "{error}");
    Ok(())
}

#[tokio::test]
async fn rewritten_disk_counts_for_checkpoints_under_full_quotas() -> Result<()> {
    let environment = vec![("ROOST_TEST_FULL_QUOTAS".to_owned(), "1".to_owned())];
    let options = Options { engine: Some(EngineKind::Native), environment, ..Options::default() };
    let daemon = Daemon::with(options).await?;
    let sandbox = sandbox(&daemon).await?;
    let mut made = Vec::new();
    for _ in 0..4 {
        sandbox.root_ok(&rewrite()).await?;
        made.push(from_inside(&sandbox).await?);
        let left = checkpoints(&daemon).await?;
        let taken: u64 = left.iter().map(|checkpoint| checkpoint.bytes.disk_exclusive + checkpoint.bytes.memory).sum();
        ensure!(taken <= MOST, "checkpoints take {taken} bytes: {left:?}");
    }
    let left: Vec<String> = checkpoints(&daemon).await?.iter().map(|checkpoint| checkpoint.id.to_string()).collect();
    ensure!(!left.is_empty() && left.len() <= 2 && made.ends_with(&left), "{left:?} of {made:?}");

    // Those of a client give way to nothing, and are refused.
    let client = daemon.client();
    for _ in 0..2 {
        client.create_checkpoint("box", &files_only()).await?;
        sandbox.root_ok(&rewrite()).await?;
    }
    is_over_budget(client.create_checkpoint("box", &files_only()).await)?;
    is_over_budget(client.create_checkpoint("box", &CreateCheckpoint::default()).await)?;
    // All the same it can sleep and go back.
    sandbox.suspend(Level::Disk).await?;
    sandbox.answers().await?;
    let first = checkpoints(&daemon).await?.first().context("no checkpoint is left")?.id.clone();
    sandbox.restore(&first).await?;
    sandbox.answers().await
}

#[tokio::test]
async fn rewritten_disk_is_on_its_limit_under_simple_quotas() -> Result<()> {
    let daemon = Daemon::with(Options { engine: Some(EngineKind::Native), ..Options::default() }).await?;
    let checks = daemon.roost(&["doctor"]).output().await?;
    if !String::from_utf8_lossy(&checks.stdout).contains("simple quotas") {
        return Ok(());
    }
    let sandbox = sandbox(&daemon).await?;
    for _ in 0..2 {
        sandbox.root_ok(&rewrite()).await?;
        from_inside(&sandbox).await?;
    }
    // The disk pays for both contents that its checkpoints hold, and has no room for a third.
    ensure!(sandbox.root_ok(&rewrite()).await.is_err(), "the disk holds more than its limit");
    assert_eq!(checkpoints(&daemon).await?.len(), 2);
    sandbox.answers().await
}
