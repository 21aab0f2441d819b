//! Sandboxes on gVisor from inside: what its kernel leaves to the guest and the host, and that they see to it.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Options};
use roost_model::{CreateSandbox, EngineKind, EventKind, ExecState, Fork, IdleRequest, Level, State};

const PATIENCE: Duration = Duration::from_secs(20);

async fn on_gvisor() -> Result<Daemon> {
    Daemon::with(Options { engine: Some(EngineKind::Gvisor), ..Options::default() }).await
}

/// gVisor ends every connection when memory is saved, also in the sandbox that goes on. Whoever asked from inside hears of it
/// all the same, and whoever waits outside for a process inside goes on waiting.
#[tokio::test]
async fn a_checkpoint_cuts_nobody_off() -> Result<()> {
    let daemon = on_gvisor().await?;
    let sandbox = daemon.sandbox("box").await?;
    // Asked for from inside: the answer goes to who asked, whose end is waited for outside.
    let id = sandbox.sh_ok("roost-guest checkpoint --comment mine").await?;
    let kept = daemon.client().checkpoint_of("box", &id).await?;
    assert_eq!(kept.comment.as_deref(), Some("mine"));
    sandbox.sh_ok("roost-guest info").await?;

    // And from outside, in the middle of what a process says.
    let talks =
        "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); test $i -gt 100 || touch /root/begun; sleep 0.01; done";
    let (waiting, client) = (sandbox.clone(), daemon.client());
    let heard = tokio::spawn(async move { waiting.sh_ok(talks).await });
    sandbox.becomes_true("test -e /root/begun").await?;
    let work = sandbox.spawn("until test -e /root/go; do sleep 0.01; done; exit 3").await?;
    let (exec, waits) = (work.id.clone(), client.clone());
    let ended = tokio::spawn(async move { waits.wait_exec("box", exec.as_str()).await });
    for _ in 0..3 {
        sandbox.checkpoint().await?;
    }
    sandbox.sh_ok("touch /root/go").await?;
    let ended = ended.await??.status;
    ensure!(matches!(ended, ExecState::Exited { exit_code: 3, .. }), "{ended:?}");
    let lines: Vec<String> = heard.await??.lines().map(str::to_owned).collect();
    assert_eq!(lines, (0..400).map(|number| number.to_string()).collect::<Vec<_>>());
    Ok(())
}

/// A sentry uses several hundredths of a core for itself, which is no work of its sandbox.
#[tokio::test]
async fn with_nothing_to_do_it_falls_asleep_by_itself() -> Result<()> {
    let daemon = on_gvisor().await?;
    let idle = IdleRequest { after: Some(Duration::from_secs(3).into()), ..IdleRequest::default() };
    let wanted = |name: &str| CreateSandbox {
        name: Some(name.to_owned()),
        idle: Some(idle.clone()),
        ..CreateSandbox::default()
    };
    let (quiet, busy) = (daemon.sandbox_with(wanted("quiet")).await?, daemon.sandbox_with(wanted("busy")).await?);
    for _ in 0..10 {
        quiet.spawn("sleep 1000").await?;
    }
    // Far from a core of its own, but work.
    busy.spawn("while :; do sleep 0.1; done").await?;
    let before = quiet.newest_event().await?;
    let slept = quiet.happens_after(before, EventKind::Suspended).await?;
    assert_eq!(slept.state, Some(State::Suspended));
    // What it has used is looked at when its time is up, which may be a moment later.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = daemon.roost_ok(&["why", "busy"]).await?;
        let state = daemon.client().sandbox("busy").await?.state;
        ensure!(state == State::Active, "it was put to sleep at work: {why}");
        if why.contains("keeps awake: cpu, ") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_fork_has_a_boot_id_of_its_own() -> Result<()> {
    let daemon = on_gvisor().await?;
    let parent = daemon.sandbox("parent").await?;
    let boot_id = "cat /proc/sys/kernel/random/boot_id";
    let of_parent = parent.sh_ok(boot_id).await?;
    let (child, _) = parent.fork(&Fork { names: Some(vec!["child".to_owned()]), ..Fork::default() }).await?.remove(0);
    let of_child = child.sh_ok(boot_id).await?;
    assert_ne!(of_parent, of_child);
    assert_eq!(parent.sh_ok(boot_id).await?, of_parent);
    child.suspend(Level::Disk).await?;
    assert_eq!(child.sh_ok(boot_id).await?, of_child);
    Ok(())
}
