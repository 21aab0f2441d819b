//! Ephemeral commands: made, run, gone, on every way out.
#![forbid(unsafe_code)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::SandboxFilter;
use roost_e2e::Daemon;
use roost_model::{CreateSandbox, RunRequest, StartExec};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

/// Waits until no sandbox is left; termination after a lost client takes the daemon a moment.
async fn wait_until_empty(daemon: &Daemon) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let living = daemon.client().all_sandboxes(&SandboxFilter::default()).await?;
        let disks: Vec<_> = std::fs::read_dir(daemon.data_dir().join("pool/sandboxes"))?.flatten().collect();
        if living.is_empty() && disks.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "left behind: {living:?} {disks:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Starts `roost run` with something endless and waits for its first line.
async fn start_endless(daemon: &Daemon) -> Result<Child> {
    let mut child = daemon
        .roost(&["run", "mini", "--", "sh", "-c", "echo going; while :; do sleep 1; done"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    assert_eq!(lines.next_line().await?.as_deref(), Some("going"));
    Ok(child)
}

async fn signal(child: &Child, name: &str) -> Result<()> {
    let pid = child.id().context("it has ended")?.to_string();
    ensure!(tokio::process::Command::new("kill").args([name, &pid]).status().await?.success());
    Ok(())
}

#[tokio::test]
async fn the_code_and_the_streams_are_passed_on() -> Result<()> {
    let daemon = Daemon::start().await?;
    let output = daemon.roost(&["run", "mini", "--", "sh", "-c", "echo out; echo err >&2; exit 9"]).output().await?;
    assert_eq!(output.status.code(), Some(9));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (b"out\n".as_slice(), b"err\n".as_slice()));
    // The sandbox is gone before the command's end is told.
    assert!(daemon.client().all_sandboxes(&SandboxFilter::default()).await?.is_empty());

    let request = RunRequest {
        sandbox: CreateSandbox { template: Some("mini".to_owned()), ..CreateSandbox::default() },
        exec: StartExec { shell: Some("echo by api".to_owned()), ..StartExec::default() },
    };
    assert_eq!(daemon.client().run(&request).await?.stdout, "by api\n");
    wait_until_empty(&daemon).await
}

#[tokio::test]
async fn commands_that_cannot_start_leave_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    for (command, code) in [("no-such-command", 127), ("/etc/passwd", 126)] {
        let output = daemon.roost(&["run", "mini", "--", command]).output().await?;
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let unknown = daemon.roost(&["run", "no-such-template", "--", "true"]).output().await?;
    assert_eq!(unknown.status.code(), Some(125));
    wait_until_empty(&daemon).await
}

#[tokio::test]
async fn an_interrupt_leaves_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    let mut child = start_endless(&daemon).await?;
    signal(&child, "-INT").await?;
    let status = child.wait().await?;
    assert_eq!(status.code(), Some(130));
    wait_until_empty(&daemon).await
}

#[tokio::test]
async fn a_killed_client_leaves_nothing() -> Result<()> {
    let daemon = Daemon::start().await?;
    let mut child = start_endless(&daemon).await?;
    child.kill().await?;
    wait_until_empty(&daemon).await
}

#[tokio::test]
async fn a_killed_daemon_leaves_nothing_after_its_restart() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let mut child = start_endless(&daemon).await?;
    daemon.kill9()?;
    child.kill().await?;
    daemon.start_again().await?;
    wait_until_empty(&daemon).await
}
