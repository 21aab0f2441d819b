//! Everything that runs inside, as the API and the command line show it, on both engines.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use roost_e2e::{Daemon, Sandbox};
use roost_model::{
    CreateSandbox, ErrorCode, ExecState, IdleRequest, Level, ProcessState, ProcessView, ServiceSpec, State,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until the processes are as wanted; each request looks inside anew.
async fn processes_until(sandbox: &Sandbox, wanted: impl Fn(&[ProcessView]) -> bool) -> Result<Vec<ProcessView>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let list = sandbox.client().processes(sandbox.name()).await?;
        if wanted(&list.items) {
            ensure!(list.state == State::Active && list.level.is_none(), "{list:?}");
            return Ok(list.items);
        }
        ensure!(Instant::now() < deadline, "{list:?}");
    }
}

fn sleeper<'a>(all: &'a [ProcessView], time: &str) -> Option<&'a ProcessView> {
    all.iter().find(|process| process.argv == ["sleep", time])
}

fn sleeps(all: &[ProcessView], time: &str) -> bool {
    sleeper(all, time).is_some_and(|process| process.state == ProcessState::Sleeping)
}

async fn shows_and_signals(engine: &str) -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    let service = ServiceSpec { shell: Some("sleep 2002; true".to_owned()), ..ServiceSpec::default() };
    let wanted = CreateSandbox {
        name: Some("box".to_owned()),
        engine: Some(engine.to_owned()),
        services: [("web".parse()?, service)].into(),
        ..CreateSandbox::default()
    };
    let sandbox = daemon.sandbox_with(wanted).await?;
    let exec = sandbox.spawn("sleep 2001 & while :; do :; done").await?;
    let busy = |all: &[ProcessView]| all.iter().any(|one| one.pid == exec.pid && one.cpu_us > 100_000);
    let all =
        processes_until(&sandbox, |all| ["2001", "2002"].iter().all(|time| sleeps(all, time)) && busy(all)).await?;

    let first = all.first().context("nothing runs")?;
    assert_eq!((first.pid, first.ppid, first.exec.as_ref()), (1, 0, None), "{first:?}");
    let shell = all.iter().find(|one| one.pid == exec.pid).context("no shell")?;
    assert_eq!((shell.state, shell.exec.as_ref(), shell.ppid), (ProcessState::Running, Some(&exec.id), 1));
    assert_eq!((shell.user.as_str(), shell.started_at), (exec.user.as_str(), exec.started_at));
    let child = sleeper(&all, "2001").context("no child")?;
    assert_eq!((child.ppid, child.exec.as_ref(), child.state), (exec.pid, Some(&exec.id), ProcessState::Sleeping));
    assert_eq!((child.threads, child.service.as_ref()), (1, None));
    ensure!(child.rss > 0, "{child:?}");
    let age = Timestamp::now().duration_since(child.started_at).as_secs();
    ensure!((-2..60).contains(&age), "{child:?} started {age} s ago");
    let served = sleeper(&all, "2002").context("no service")?;
    assert_eq!((served.service.as_ref().map(|name| name.as_str()), served.exec.as_ref()), (Some("web"), None));

    // The same for people: a table, a tree, pids alone, JSON.
    let table = daemon.roost_ok(&["ps", "box"]).await?;
    let line = table.lines().find(|line| line.ends_with("  sleep 2001")).context(table.clone())?;
    ensure!(line.contains(exec.id.as_str()) && line.contains("sleeping"), "{table}");
    ensure!(table.lines().any(|line| line.contains("service web") && line.ends_with("sleep 2002")), "{table}");
    let tree = daemon.roost_ok(&["ps", "--tree", "box"]).await?;
    ensure!(tree.lines().any(|line| line.ends_with("└─ sleep 2001")), "{tree}");
    let pids = daemon.roost_ok(&["ps", "-q", "box"]).await?;
    ensure!(pids.lines().any(|line| line == child.pid.to_string()), "{pids}");
    let json: Value = serde_json::from_str(&daemon.roost_ok(&["ps", "--json", "box"]).await?)?;
    ensure!(json["state"] == "active" && json["items"].as_array().is_some_and(|items| items.len() >= 5), "{json}");

    client.signal_process("box", child.pid, "SIGKILL").await?;
    processes_until(&sandbox, |all| sleeper(all, "2001").is_none_or(|one| one.state == ProcessState::Zombie)).await?;
    client.signal_process("box", exec.pid, "15").await?;
    let ended = client.wait_exec("box", exec.id.as_str()).await?;
    ensure!(matches!(ended.status, ExecState::Exited { signal: Some(15), .. }), "{ended:?}");

    for (pid, signal, code) in [
        (exec.pid, "KILL", ErrorCode::ProcessNotFound),
        (0, "KILL", ErrorCode::ProcessNotFound),
        (u32::MAX, "KILL", ErrorCode::ProcessNotFound),
        (served.pid, "NOISE", ErrorCode::BadRequest),
        (1, "KILL", ErrorCode::PermissionDenied),
    ] {
        let refused = client.signal_process("box", pid, signal).await.err().context("not refused")?;
        assert_eq!(refused.code(), Some(code), "{pid} {signal}: {refused}");
    }
    let unknown = client.processes("nope").await.err().and_then(|error| error.code());
    assert_eq!(unknown, Some(ErrorCode::SandboxNotFound));
    sandbox.answers().await
}

#[tokio::test]
async fn processes_are_shown_and_signalled() -> Result<()> {
    shows_and_signals("native").await
}

#[tokio::test]
async fn processes_are_shown_and_signalled_on_gvisor() -> Result<()> {
    shows_and_signals("gvisor").await
}

#[tokio::test]
async fn looking_wakes_nobody_and_a_signal_wakes_what_has_processes() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    let sandbox = daemon.sandbox("box").await?;
    let exec = sandbox.spawn("exec sleep 2003").await?;
    for level in [Level::Ram, Level::Disk] {
        sandbox.suspend(level).await?;
        let list = client.processes("box").await?;
        assert_eq!((list.state, list.level, list.items.len()), (State::Suspended, Some(level), 0));
        let told = daemon.roost(&["ps", "box"]).output().await?;
        let words = String::from_utf8_lossy(&told.stderr);
        ensure!(told.status.success() && told.stdout.is_empty(), "{told:?}");
        ensure!(words.starts_with(&format!("box is suspended ({level}): ")), "{words}");
        assert_eq!(client.sandbox("box").await?.state, State::Suspended);
        client.signal_process("box", exec.pid, "CONT").await?;
        assert_eq!(client.sandbox("box").await?.state, State::Active);
        // Who it is and since when is remembered through the sleep.
        let all = client.processes("box").await?.items;
        let kept = sleeper(&all, "2003").context("it is gone")?;
        assert_eq!((kept.exec.as_ref(), kept.pid, kept.started_at), (Some(&exec.id), exec.pid, exec.started_at));
    }
    sandbox.suspend(Level::Files).await?;
    assert_eq!(client.processes("box").await?.level, Some(Level::Files));
    let refused = client.signal_process("box", exec.pid, "KILL").await.err().context("not refused")?;
    assert_eq!(refused.code(), Some(ErrorCode::ProcessNotFound));
    assert_eq!(client.sandbox("box").await?.state, State::Suspended);
    Ok(())
}

/// Somebody who keeps looking, as often as the page does, is no reason to stay awake.
#[tokio::test]
async fn watching_keeps_nobody_awake() -> Result<()> {
    let daemon = Daemon::start().await?;
    let idle = IdleRequest { after: Some(Duration::from_secs(3).into()), ..IdleRequest::default() };
    let wanted = CreateSandbox { name: Some("box".to_owned()), idle: Some(idle), ..CreateSandbox::default() };
    let sandbox = daemon.sandbox_with(wanted).await?;
    sandbox.sh_ok("for n in 1 2 3 4 5 6 7 8 9 10; do sleep 2004 >/dev/null 2>&1 & done").await?;
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(Duration::from_secs(3));
    loop {
        looks.tick().await;
        let list = sandbox.client().processes("box").await?;
        if list.state == State::Suspended {
            return Ok(());
        }
        let why = sandbox.client().why("box").await?;
        ensure!(Instant::now() < deadline, "it is kept awake: {why:?}");
    }
}
