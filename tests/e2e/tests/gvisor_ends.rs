//! Sandboxes on gVisor whose end nobody asked for: their memory limit, and whatever can be killed of them at any moment.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{Client, ClientError, SandboxFilter};
use roost_e2e::{Daemon, Options, Sandbox, Seed, no_orphans, parts_on_gvisor};
use roost_model::{
    CreateCheckpoint, CreateSandbox, EngineKind, ErrorCode, EventKind, Fork, Level, LimitsRequest, Restore,
    SandboxView, State,
};

/// More memory than the sandbox was promised, and what sentry and gofer have beside it, in files that are memory.
const FILL: &str = "for folder in /dev/shm /tmp /var/tmp; do dd if=/dev/zero of=$folder/big bs=1M count=500; done";

async fn on_gvisor() -> Result<Daemon> {
    Daemon::with(Options { engine: Some(EngineKind::Gvisor), ..Options::default() }).await
}

async fn small_box(daemon: &Daemon) -> Result<Sandbox> {
    let limits = LimitsRequest { memory: Some(256 << 20), ..LimitsRequest::default() };
    let wanted = CreateSandbox { name: Some("box".to_owned()), limits: Some(limits), ..CreateSandbox::default() };
    daemon.sandbox_with(wanted).await
}

/// Reaches the limit; the one who does is told at once that it was its end.
async fn fill(sandbox: &Sandbox) -> Result<()> {
    let filled = tokio::time::timeout(Duration::from_secs(20), sandbox.sh(FILL)).await.context("nobody says so")?;
    ensure!(filled.is_err(), "it outlived its limit");
    Ok(())
}

#[tokio::test]
async fn without_a_checkpoint_the_memory_limit_leaves_its_files() -> Result<()> {
    let daemon = on_gvisor().await?;
    let sandbox = small_box(&daemon).await?;
    sandbox.root_ok("echo kept > /root/file").await?;
    let before = sandbox.newest_event().await?;
    fill(&sandbox).await?;
    let ended = sandbox.happens_after(before, EventKind::Crashed).await?;
    let why = ended.reason.unwrap_or_default();
    ensure!(why.contains("memory limit of 256 MiB"), "{why}");
    let slept = sandbox.happens_after(ended.id, EventKind::Suspended).await?;
    assert_eq!(slept.state, Some(State::Suspended));
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "kept");
    no_orphans(&daemon).await
}

#[tokio::test]
async fn at_its_memory_limit_it_goes_back_to_its_last_checkpoint() -> Result<()> {
    let daemon = on_gvisor().await?;
    let sandbox = small_box(&daemon).await?;
    sandbox.root_ok("echo early > /root/file; echo remembered > /dev/shm/mark").await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    let (checkpoint, _) = sandbox.checkpoint().await?;
    sandbox.root_ok("echo late > /root/file").await?;
    let before = sandbox.newest_event().await?;
    fill(&sandbox).await?;

    let ended = sandbox.happens_after(before, EventKind::Crashed).await?;
    ensure!(ended.reason.is_some_and(|why| why.contains("memory limit")));
    let back = sandbox.happens_after(ended.id, EventKind::Restored).await?;
    ensure!(back.reason.is_some_and(|why| why.contains(checkpoint.as_str())));
    assert_eq!(back.state, Some(State::Active));
    assert_eq!(sandbox.sh_ok("cat /root/file /dev/shm/mark").await?, "early\nremembered");
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, work.status);

    // What it had written since is not lost.
    let kept = daemon.client().list_checkpoints("box").await?;
    let kept = kept.iter().find(|kept| kept.automatic).context("what was replaced is not kept")?;
    let wanted = CreateSandbox { from_checkpoint: Some(kept.id.clone()), ..CreateSandbox::default() };
    assert_eq!(daemon.sandbox_with(wanted).await?.sh_ok("cat /root/file").await?, "late");

    // What leads there again at once does not go on for ever.
    let before = sandbox.newest_event().await?;
    fill(&sandbox).await?;
    let ended = sandbox.happens_after(before, EventKind::Crashed).await?;
    sandbox.happens_after(ended.id, EventKind::Suspended).await?;
    assert_eq!(sandbox.sh_ok("cat /root/file; ls /dev/shm").await?, "early");
    no_orphans(&daemon).await
}

/// What can be killed.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Nobody,
    Daemon,
    /// One of the processes of the host's that a sandbox is made of.
    Part(&'static str),
}

const VICTIMS: [Victim; 8] = [
    Victim::Nobody,
    Victim::Nobody,
    Victim::Nobody,
    Victim::Daemon,
    Victim::Part("runsc-sandbox"),
    Victim::Part("runsc-gofer"),
    Victim::Part("roost-keep"),
    Victim::Part("runsc"),
];
const OPERATIONS: [&str; 10] = [
    "create",
    "exec",
    "suspend ram",
    "suspend disk",
    "suspend files",
    "wake",
    "checkpoint",
    "restore",
    "fork",
    "delete",
];
/// As many as a small machine runs at once without pressure.
const MOST: usize = 4;
/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

async fn operate(client: Client, what: &str, name: &str, seed: u64) -> Result<()> {
    match what {
        "create" => drop(client.create_sandbox(&CreateSandbox::default()).await?),
        "exec" => {
            let sandbox = Sandbox::find(client, name).await?;
            sandbox.sh_ok("cat /root/file; echo more >> /root/more").await?;
        }
        "suspend ram" => drop(client.suspend_sandbox(name, Level::Ram).await?),
        "suspend disk" => drop(client.suspend_sandbox(name, Level::Disk).await?),
        "suspend files" => drop(client.suspend_sandbox(name, Level::Files).await?),
        "wake" => drop(Sandbox::find(client, name).await?.wake().await?),
        "checkpoint" => drop(client.create_checkpoint(name, &CreateCheckpoint::default()).await?),
        "restore" => {
            let checkpoints = client.list_checkpoints(name).await?;
            let Some(chosen) = checkpoints.get(usize::try_from(seed)? % checkpoints.len().max(1)) else {
                return Ok(());
            };
            client.restore_sandbox(name, &Restore { checkpoint: chosen.id.clone() }).await?;
        }
        "fork" => drop(client.fork_sandbox(name, &Fork::default()).await?),
        _ => client.delete_sandbox(name).await?,
    }
    Ok(())
}

/// How long is looked for somebody who is there for a moment only.
const LOOK: Duration = Duration::from_millis(300);

/// Kills it a while from now; `false` if it was not there to be killed. Without the id of a sandbox it is one of the newest.
async fn strike(daemon: &mut Daemon, victim: Victim, instance: &str, sandbox: &str, wait: Duration) -> Result<bool> {
    tokio::time::sleep(wait).await;
    match victim {
        Victim::Nobody => Ok(false),
        Victim::Daemon => daemon.kill9().map(|()| true),
        Victim::Part(name) => {
            let deadline = Instant::now() + LOOK;
            loop {
                if let Some(pid) = parts_on_gvisor(instance, sandbox, name)?.into_iter().max() {
                    return Ok(std::process::Command::new("kill")
                        .args(["-KILL", &pid.to_string()])
                        .status()?
                        .success());
                }
                if Instant::now() > deadline {
                    return Ok(false);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

/// Waits until no sandbox is on its way to another state, and returns all of them.
async fn settled(client: &Client) -> Result<Vec<SandboxView>> {
    let settle = async {
        loop {
            let all = client.all_sandboxes(&SandboxFilter::default()).await?;
            if all.iter().all(|one| matches!(one.state, State::Active | State::Suspended)) {
                return Ok::<_, anyhow::Error>(all);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, settle).await.context("a sandbox does not settle")?
}

/// Gives what is new a file, and checks those that have one.
async fn all_are_well(client: &Client, all: &[SandboxView], known: &mut BTreeSet<String>) -> Result<()> {
    for view in all {
        let sandbox = Sandbox::of(client.clone(), view.clone());
        if known.insert(view.id.to_string()) {
            asked(|| sandbox.root_ok("echo precious > /root/file; touch /root/more")).await?;
        } else {
            let file = asked(|| sandbox.sh_ok("cat /root/file")).await;
            let file = file.with_context(|| format!("`{}`: {view:?}", view.name))?;
            ensure!(file == "precious", "`{}` holds {file}", view.name);
        }
    }
    Ok(())
}

/// Asks, and once more if the sandbox died under the first: whoever is killed takes the rest along in their own time, and until
/// then it seems to be awake.
async fn asked<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    match ask().await {
        Err(error) if error.downcast_ref::<ClientError>().and_then(ClientError::code) == Some(ErrorCode::GuestLost) => {
            ask().await
        }
        first => first,
    }
}

/// Leaves no more than there is room for.
async fn thin_out(client: &Client, all: &[SandboxView]) -> Result<()> {
    for (place, view) in all.iter().enumerate() {
        let checkpoints = client.list_checkpoints(view.name.as_str()).await?;
        for old in checkpoints.iter().take(checkpoints.len().saturating_sub(2)) {
            client.delete_checkpoint(view.name.as_str(), old.id.as_str()).await?;
        }
        if place >= MOST {
            client.delete_sandbox(view.name.as_str()).await?;
        }
    }
    Ok(())
}

/// Sentry, gofer, keeper, runsc and the daemon are killed at random moments of random operations: every operation ends, every
/// sandbox settles with its files, and nothing is left over. `ROOST_E2E_FULL` makes it
/// 500 operations, `ROOST_E2E_SEED` others.
#[tokio::test]
async fn whatever_is_killed_sandboxes_settle() -> Result<()> {
    let operations = if std::env::var_os("ROOST_E2E_FULL").is_some() { 500 } else { 20 };
    let seed = std::env::var("ROOST_E2E_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    let mut seed = Seed::new(seed);
    let mut daemon = on_gvisor().await?;
    let instance = daemon.instance().await?;
    let client = daemon.client();
    let (mut known, mut killed, mut failed) = (BTreeSet::new(), 0, 0);
    for number in 0..operations {
        let all = settled(&client).await?;
        let chosen = all.get(usize::try_from(seed.below(64))? % all.len().max(1));
        let what = if chosen.is_none() { "create" } else { OPERATIONS[usize::try_from(seed.below(10))?] };
        let victim = VICTIMS[usize::try_from(seed.below(8))?];
        let wait = Duration::from_millis(seed.below(200));
        let (name, id) = chosen.map_or_else(Default::default, |one| (one.name.to_string(), one.id.to_string()));
        let id = if matches!(what, "create" | "fork") { String::new() } else { id };
        let described = || format!("operation {number}: {what} of `{name}`, {victim:?} killed after {wait:?}");

        let operation = tokio::time::timeout(PATIENCE, operate(client.clone(), what, &name, seed.below(64)));
        let (outcome, struck) = tokio::join!(operation, strike(&mut daemon, victim, &instance, &id, wait));
        let outcome = outcome.with_context(|| format!("{} hangs", described()))?;
        killed += usize::from(struck?);
        failed += usize::from(outcome.is_err());
        if matches!(victim, Victim::Daemon) {
            daemon.start_again().await.with_context(described)?;
        } else if matches!(victim, Victim::Nobody) {
            outcome.with_context(described)?;
        }
        let all = settled(&client).await.with_context(described)?;
        let well = tokio::time::timeout(PATIENCE, all_are_well(&client, &all, &mut known)).await;
        well.with_context(|| format!("{}: a sandbox does not answer", described()))?.with_context(described)?;
        thin_out(&client, &all).await.with_context(described)?;
        if number % 10 == 9 {
            no_orphans(&daemon).await.with_context(described)?;
        }
    }
    eprintln!("{operations} operations, {killed} times something was killed, {failed} operations failed by it");
    for view in settled(&client).await? {
        client.delete_sandbox(view.name.as_str()).await?;
    }
    no_orphans(&daemon).await
}
