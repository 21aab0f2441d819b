//! A daemon that is killed at every step of every operation: no sandbox, checkpoint or byte is lost, nothing is left over.
//!
//! Each operation has one sandbox that goes through all of its steps. A process in it keeps a word in memory only, and
//! counts in memory and in a file at once, so that memory of one moment on the disk of another does not go unnoticed.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{ClientError, EventsFilter};
use roost_e2e::{Daemon, Sandbox, Witness, criu_at_work, first_pid, no_orphans, page_servers};
use roost_model::{CheckpointView, CreateCheckpoint, CreateSandbox, ErrorCode, EventKind, Fork, Level, Restore, State};

/// A daemon with one sandbox, a witness in it and a file.
struct Scene {
    daemon: Daemon,
    sandbox: Sandbox,
    witness: Witness,
}

impl Scene {
    async fn new() -> Result<Self> {
        let daemon = Daemon::start().await?;
        let sandbox = daemon.sandbox("box").await?;
        sandbox.sh_ok("echo precious > /root/file").await?;
        let witness = Witness::start(&sandbox).await?;
        Ok(Self { daemon, sandbox, witness })
    }

    /// Runs `operation` on a daemon that dies at `point`, and starts the daemon again.
    async fn dies<T>(&mut self, point: &str, operation: impl AsyncFnOnce(&Daemon) -> Result<T>) -> Result<()> {
        self.daemon.stop().await?;
        self.daemon.start_again_failing_at(point).await?;
        let outcome = operation(&self.daemon).await;
        ensure!(outcome.is_err(), "`{point}` was not passed: is this binary built with the feature `fail-points`?");
        self.daemon.wait_until_killed().await?;
        self.daemon.start_again().await.with_context(|| format!("after `{point}`"))
    }

    /// The sandbox is as before or as after, and nothing is left over.
    async fn is_well(&self) -> Result<()> {
        self.witness.goes_on(&self.sandbox).await?;
        let file = self.sandbox.sh_ok("cat /root/file").await?;
        ensure!(file == "precious", "the file holds {file}");
        no_orphans(&self.daemon).await
    }

    async fn checkpoint(&self) -> Result<CheckpointView> {
        let made = self.daemon.client().create_checkpoint("box", &CreateCheckpoint::default()).await?;
        Ok(made.checkpoint)
    }

    /// Starts a sandbox from each checkpoint there is, and removes all of them but `keep`.
    async fn checkpoints_are_good(&self, keep: Option<&CheckpointView>) -> Result<usize> {
        let client = self.daemon.client();
        let checkpoints = client.list_checkpoints("box").await?;
        for checkpoint in &checkpoints {
            let from_checkpoint = Some(checkpoint.id.clone());
            let request = CreateSandbox { from_checkpoint, ..CreateSandbox::default() };
            let child = self.daemon.sandbox_with(request).await?;
            self.witness.goes_on(&child).await?;
            child.delete().await?;
            if keep != Some(checkpoint) && keep.map(|keep| &keep.id) != Some(&checkpoint.id) {
                client.delete_checkpoint("box", checkpoint.id.as_str()).await?;
            }
        }
        Ok(checkpoints.len())
    }
}

#[tokio::test]
async fn suspending_to_disk() -> Result<()> {
    let mut scene = Scene::new().await?;
    let points = [
        "record-stored:1",
        "save-flushed",
        "save-frozen",
        "save-staged",
        "save-dumped",
        "save-described",
        "save-committed",
        "record-stored:2",
        "kill-ended",
        "kill-unplugged",
    ];
    for point in points {
        scene.dies(point, async |daemon| Ok(daemon.client().suspend_sandbox("box", Level::Disk).await?)).await?;
        scene.is_well().await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn deepening_from_ram_to_disk() -> Result<()> {
    let mut scene = Scene::new().await?;
    for point in ["record-stored:1", "save-dumped", "save-committed", "record-stored:2", "kill-ended"] {
        scene.daemon.client().suspend_sandbox("box", Level::Ram).await?;
        scene.dies(point, async |daemon| Ok(daemon.client().suspend_sandbox("box", Level::Disk).await?)).await?;
        let state = scene.daemon.client().sandbox("box").await?.state;
        ensure!(matches!(state, State::Suspended | State::Suspending), "it is {state} after `{point}`");
        scene.is_well().await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn waking_from_disk() -> Result<()> {
    let mut scene = Scene::new().await?;
    let points =
        ["record-stored:1", "start-stored", "start-running", "start-introduced", "record-stored:2", "record-stored:3"];
    for point in points {
        scene.daemon.client().suspend_sandbox("box", Level::Disk).await?;
        scene.dies(point, async |daemon| Ok(daemon.client().wake_sandbox("box").await?)).await?;
        scene.is_well().await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn making_a_checkpoint() -> Result<()> {
    let mut scene = Scene::new().await?;
    let points = [
        ("checkpoint-staged", 0),
        ("checkpoint-frozen", 0),
        ("checkpoint-dumped", 0),
        ("checkpoint-saved", 0),
        ("checkpoint-thawed", 0),
        ("checkpoint-described", 0),
        ("checkpoint-committed", 0),
        ("checkpoint-stored", 1),
    ];
    for (point, expected) in points {
        let wanted = CreateCheckpoint::default();
        scene.dies(point, async |daemon| Ok(daemon.client().create_checkpoint("box", &wanted).await?)).await?;
        let check = async {
            scene.is_well().await?;
            let count = scene.checkpoints_are_good(None).await?;
            ensure!(count == expected, "{count} checkpoints");
            scene.is_well().await
        };
        check.await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn removing_a_checkpoint() -> Result<()> {
    let mut scene = Scene::new().await?;
    let checkpoint = scene.checkpoint().await?;
    let id = checkpoint.id.as_str();
    let remove = async |daemon: &Daemon| Ok(daemon.client().delete_checkpoint("box", id).await?);
    scene.dies("checkpoint-forgotten", remove).await?;
    scene.is_well().await?;
    ensure!(scene.daemon.client().list_checkpoints("box").await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn going_back_to_a_checkpoint() -> Result<()> {
    let mut scene = Scene::new().await?;
    scene.sandbox.sh_ok("echo early > /root/when").await?;
    let target = scene.checkpoint().await?;
    let points = [
        ("checkpoint-dumped", "late"),
        ("checkpoint-stored", "late"),
        ("restore-kept", "late"),
        ("record-stored:1", "either"),
        ("kill-ended", "early"),
        ("kill-unplugged", "early"),
        ("disk-replaced", "early"),
        ("disk-discarded", "early"),
        ("start-stored", "early"),
        ("start-running", "early"),
        ("start-introduced", "early"),
        ("record-stored:2", "early"),
    ];
    for (point, expected) in points {
        scene.sandbox.sh_ok("echo late > /root/when").await?;
        let wanted = Restore { checkpoint: target.id.clone() };
        scene.dies(point, async |daemon| Ok(daemon.client().restore_sandbox("box", &wanted).await?)).await?;
        let check = async {
            scene.is_well().await?;
            let when = scene.sandbox.sh_ok("cat /root/when").await?;
            ensure!(expected == "either" || when == expected, "it is at the {when} moment, not the {expected} one");
            scene.checkpoints_are_good(Some(&target)).await?;
            // What sleeps now must wake as itself, whatever it was about to become.
            scene.daemon.client().suspend_sandbox("box", Level::Disk).await?;
            scene.is_well().await?;
            ensure!(scene.sandbox.sh_ok("cat /root/when").await? == when, "another moment of it woke");
            Ok(())
        };
        check.await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn forking() -> Result<()> {
    let mut scene = Scene::new().await?;
    let points = [
        "checkpoint-stored",
        "fork-moment",
        "create-stored:1",
        "create-stored:2",
        "disk-made:1",
        "disk-made:2",
        "start-stored",
        "start-running:1",
        "start-running:2",
        "start-introduced",
        "record-stored:1",
        "record-stored:2",
        "fork-born",
        "checkpoint-forgotten",
    ];
    let names = ["one", "two"];
    for point in points {
        let wanted = Fork { names: Some(names.map(str::to_owned).into()), ..Fork::default() };
        scene.dies(point, async |daemon| Ok(daemon.client().fork_sandbox("box", &wanted).await?)).await?;
        let check = async {
            scene.witness.goes_on(&scene.sandbox).await?;
            for name in names {
                match Sandbox::find(scene.daemon.client(), name).await {
                    Ok(child) => {
                        scene.witness.goes_on(&child).await?;
                        child.delete().await?;
                    }
                    Err(error) => ensure!(
                        error.code() == Some(ErrorCode::SandboxNotFound)
                            || error.code() == Some(ErrorCode::SandboxTerminated),
                        "{error}"
                    ),
                }
            }
            scene.is_well().await?;
            let left = scene.daemon.client().list_checkpoints("box").await?;
            ensure!(left.is_empty(), "nobody asked for {left:?}");
            Ok(())
        };
        check.await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}

#[tokio::test]
async fn creating() -> Result<()> {
    let mut scene = Scene::new().await?;
    let checkpoint = scene.checkpoint().await?;
    let points = ["create-stored", "disk-made", "start-stored", "start-running", "start-introduced", "record-stored:1"];
    for from_checkpoint in [None, Some(checkpoint.id.clone())] {
        for point in points {
            let request = CreateSandbox {
                name: Some("new".to_owned()),
                from_checkpoint: from_checkpoint.clone(),
                ..CreateSandbox::default()
            };
            scene.dies(point, async |daemon| daemon.sandbox_with(request).await).await?;
            let check = async {
                let new = Sandbox::find(scene.daemon.client(), "new").await?;
                new.answers().await?;
                if from_checkpoint.is_some() {
                    scene.witness.goes_on(&new).await?;
                }
                no_orphans(&scene.daemon).await?;
                new.delete().await?;
                scene.is_well().await
            };
            check.await.with_context(|| format!("after `{point}`, {from_checkpoint:?}"))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn deleting() -> Result<()> {
    let mut scene = Scene::new().await?;
    let points = [
        "record-stored:1",
        "kill-ended",
        "kill-unplugged",
        "record-stored:2",
        "release-image",
        "release-disk",
        "record-stored:3",
    ];
    for level in [None, Some(Level::Ram), Some(Level::Disk)] {
        for point in points {
            let doomed = scene.daemon.sandbox("doomed").await?;
            if let Some(level) = level {
                scene.daemon.client().suspend_sandbox("doomed", level).await?;
            }
            scene.dies(point, async |_| doomed.delete().await).await?;
            let check = async {
                no_orphans(&scene.daemon).await?;
                let gone = Sandbox::find(scene.daemon.client(), doomed.id()).await.expect_err("it was deleted");
                ensure!(gone.code() == Some(ErrorCode::SandboxTerminated), "{gone}");
                scene.is_well().await
            };
            check.await.with_context(|| format!("after `{point}`, {level:?}"))?;
        }
    }
    Ok(())
}

/// What one sandbox held before it slept belongs to others while it sleeps.
#[tokio::test]
async fn a_sleeper_does_not_take_the_network_of_another_away() -> Result<()> {
    let mut scene = Scene::new().await?;
    scene.daemon.client().suspend_sandbox("box", Level::Disk).await?;
    let others = [scene.daemon.sandbox("one").await?, scene.daemon.sandbox("two").await?];
    scene.daemon.crash_and_restart().await?;
    scene.is_well().await?;
    scene.sandbox.delete().await?;
    for other in others {
        other.answers().await?;
    }
    Ok(())
}

/// Runs an operation and kills CRIU a little after it was seen at work for it; says whether it was.
async fn with_criu_killed<T: Send + 'static>(
    daemon: &Daemon,
    after: Duration,
    operation: impl Future<Output = Result<T, ClientError>> + Send + 'static,
) -> Result<(Result<T, ClientError>, bool)> {
    let operation = tokio::spawn(operation);
    let pid = loop {
        match criu_at_work(daemon).first() {
            Some(pid) => break Some(*pid),
            None if operation.is_finished() => break None,
            None => tokio::task::yield_now().await,
        }
    };
    // Not to wait for anything: to let it die at different moments of its work.
    tokio::time::sleep(after).await;
    let killed = match pid {
        Some(pid) => Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status()?.success(),
        None => false,
    };
    Ok((operation.await?, killed))
}

const MOMENTS: [u64; 8] = [0, 2, 5, 10, 20, 30, 50, 80];
/// A restore is shorter: most memory comes after it.
const EARLY_MOMENTS: [u64; 8] = [0, 0, 1, 2, 4, 7, 12, 20];
/// Memory that takes CRIU a while: read whole by a process that then waits for its reader.
const HOLD: &str = "dd if=/dev/urandom bs=67108864 count=2 iflag=fullblock 2>/dev/null | sleep 100000";
const HELD: u64 = 64 << 20;

/// Lets a process of the sandbox hold so much memory that CRIU needs a while for it.
async fn hold_memory(sandbox: &Sandbox) -> Result<()> {
    sandbox.spawn(HOLD).await?;
    while sandbox.client().stats(sandbox.name()).await?.memory < HELD {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn criu_dies_while_it_saves() -> Result<()> {
    let mut scene = Scene::new().await?;
    hold_memory(&scene.sandbox).await?;
    let (mut lost, mut kills, mut marked) = (0, 0, 0);
    for after in MOMENTS.map(Duration::from_millis) {
        let client = scene.daemon.client();
        let suspend = scene.daemon.client();
        let suspend = async move { suspend.suspend_sandbox("box", Level::Disk).await };
        let (outcome, killed) = with_criu_killed(&scene.daemon, after, suspend).await?;
        kills += usize::from(killed);
        let check = async {
            scene.sandbox.answers().await?;
            ensure!(scene.sandbox.sh_ok("cat /root/file").await? == "precious");
            scene.witness.files_fit(&scene.sandbox).await?;
            no_orphans(&scene.daemon).await
        };
        check.await.with_context(|| format!("criu killed after {after:?}, {outcome:?}"))?;
        if scene.witness.is_there(&scene.sandbox).await? {
            scene.witness.goes_on(&scene.sandbox).await.with_context(|| format!("{outcome:?}"))?;
            if outcome.is_err_and(|error| format!("{error:?}").contains("left its traces")) {
                // It goes on, but what CRIU put into it stays there: only a restart lets it be saved again.
                marked += 1;
                scene.sandbox.suspend(Level::Files).await?;
                scene.witness = Witness::start(&scene.sandbox).await?;
                hold_memory(&scene.sandbox).await?;
            }
            continue;
        }
        // What CRIU took with it came back from files, and the events say so.
        lost += 1;
        ensure!(outcome.is_err(), "its processes are gone after {outcome:?}");
        let events = client.list_events(&EventsFilter { sandbox: Some("box".to_owned()), after: None }).await?;
        ensure!(events.iter().filter(|event| event.kind == EventKind::Crashed).count() == lost, "{events:?}");
        scene.witness = Witness::start(&scene.sandbox).await?;
        hold_memory(&scene.sandbox).await?;
    }
    eprintln!("criu was killed {kills} times, took processes with it {lost} times, left its traces {marked} times");
    ensure!(kills >= MOMENTS.len() / 4, "criu was killed only {kills} times");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn criu_dies_while_it_restores() -> Result<()> {
    let scene = Scene::new().await?;
    hold_memory(&scene.sandbox).await?;
    let mut kills = 0;
    for after in EARLY_MOMENTS.map(Duration::from_millis) {
        let client = scene.daemon.client();
        client.suspend_sandbox("box", Level::Disk).await?;
        let wake = async move { client.wake_sandbox("box").await };
        let (outcome, killed) = with_criu_killed(&scene.daemon, after, wake).await?;
        kills += usize::from(killed);
        // Its image is there until it is awake for good.
        scene.is_well().await.with_context(|| format!("criu killed after {after:?}, {outcome:?}"))?;
    }
    ensure!(kills >= MOMENTS.len() / 4, "criu was killed only {kills} times");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemon_dies_while_criu_works() -> Result<()> {
    let mut scene = Scene::new().await?;
    hold_memory(&scene.sandbox).await?;
    for after in MOMENTS.map(Duration::from_millis) {
        for wake in [false, true] {
            let client = scene.daemon.client();
            if wake {
                client.suspend_sandbox("box", Level::Disk).await?;
            }
            let operation = tokio::spawn(async move {
                if wake { client.wake_sandbox("box").await } else { client.suspend_sandbox("box", Level::Disk).await }
            });
            while criu_at_work(&scene.daemon).is_empty() && !operation.is_finished() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(after).await;
            scene.daemon.crash_and_restart().await?;
            let outcome = operation.await?;
            scene.is_well().await.with_context(|| format!("killed after {after:?}, wake: {wake}, {outcome:?}"))?;
        }
    }
    Ok(())
}

/// Nobody is told that its memory cannot be saved when it is the sandbox that has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_first_process_dies_before_and_while_it_is_saved() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;
    let instance = daemon.instance().await?;
    // Before, and at different moments of it.
    for after in [None, None].into_iter().chain(MOMENTS.map(|moment| Some(Duration::from_millis(moment)))) {
        hold_memory(&sandbox).await?;
        let pid = first_pid(&instance, sandbox.id())?.to_string();
        let kill = || Command::new("kill").args(["-KILL", &pid]).stderr(Stdio::null()).status();
        if after.is_none() {
            sandbox.suspend(Level::Ram).await?;
            kill()?;
        }
        let client = daemon.client();
        let suspend = tokio::spawn(async move { client.suspend_sandbox("box", Level::Disk).await });
        if let Some(after) = after {
            while criu_at_work(&daemon).is_empty() && !suspend.is_finished() {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(after).await;
            kill()?;
        }
        let began = Instant::now();
        let told = suspend.await?.err();
        eprintln!("killed after {after:?}, {:?} until {told:?}", began.elapsed());
        ensure!(told.as_ref().is_none_or(|error| error.code() == Some(ErrorCode::GuestLost)), "{after:?}: {told:?}");
        ensure!(began.elapsed() < Duration::from_secs(8), "somebody waited for the dead");
        assert_eq!(sandbox.sh_ok("cat /root/file").await?, "precious");
        no_orphans(&daemon).await?;
    }
    Ok(())
}

/// A filesystem with little room, mounted where images are kept; gone with this.
struct LittleRoom(PathBuf);

impl LittleRoom {
    fn over(images: PathBuf) -> Result<Self> {
        let options = ["-t", "tmpfs", "-o", "size=32m,mode=700", "little-room"];
        ensure!(Command::new("mount").args(options).arg(&images).status()?.success(), "could not mount");
        let little = Self(images);
        std::fs::create_dir(little.0.join(".staging"))?;
        Ok(little)
    }
}

impl Drop for LittleRoom {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "it stays mounted");
    }
}

#[tokio::test]
async fn a_full_disk_stops_a_save_and_nothing_else() -> Result<()> {
    let scene = Scene::new().await?;
    hold_memory(&scene.sandbox).await?;
    let client = scene.daemon.client();
    client.suspend_sandbox("box", Level::Ram).await?;
    let little = LittleRoom::over(scene.daemon.data_dir().join("images"))?;
    let is_full = |error: &ClientError| match error.code() {
        Some(ErrorCode::HostFull) => true,
        Some(ErrorCode::MemoryNotSaved) => error.to_string().contains("full"),
        _ => false,
    };
    let refused = client.suspend_sandbox("box", Level::Disk).await.expect_err("there is no room");
    ensure!(is_full(&refused), "{refused:?}");
    no_orphans(&scene.daemon).await?;
    let refused = client.create_checkpoint("box", &CreateCheckpoint::default()).await.expect_err("there is no room");
    ensure!(is_full(&refused), "{refused:?}");
    no_orphans(&scene.daemon).await?;
    ensure!(client.sandbox("box").await?.level == Some(Level::Ram), "it does not sleep as it did");
    drop(little);
    scene.is_well().await?;
    client.suspend_sandbox("box", Level::Disk).await?;
    scene.is_well().await
}

/// Memory that is missing reads as zeros: nobody may go on with it.
#[tokio::test]
async fn who_serves_memory_dies() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    sandbox.sh_ok("echo precious > /home/user/file").await?;
    let holder =
        sandbox.spawn("exec python3 -c 'import os,time; block = os.urandom(400 << 20); time.sleep(1000)'").await?;
    while daemon.client().stats("box").await?.memory_anon < 400 << 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut stopped = false;
    for _ in 0..10 {
        sandbox.suspend(Level::Disk).await?;
        sandbox.wake().await?;
        let signal = |name: &str, pid: u32| Command::new("kill").args([name, &pid.to_string()]).status();
        // One that stands still in the middle of its work has not finished it; one that has is of no use here.
        stopped =
            page_servers(&daemon).into_iter().any(|pid| signal("-STOP", pid).is_ok_and(|status| status.success()));
        let servers = page_servers(&daemon);
        for pid in &servers {
            signal("-KILL", *pid)?;
        }
        stopped &= !servers.is_empty();
        if stopped {
            break;
        }
    }
    ensure!(stopped, "all memory came back before anybody could be killed");
    let events = EventsFilter { sandbox: Some("box".to_owned()), after: None };
    let ended = async {
        while daemon.client().list_events(&events).await?.iter().all(|event| event.kind != EventKind::Crashed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.context("it goes on without its memory")??;
    assert_eq!(sandbox.sh_ok("cat /home/user/file").await?, "precious");
    let still = daemon.client().exec("box", holder.id.as_str()).await;
    assert!(still.is_err() || still?.status != roost_model::ExecState::Running);
    no_orphans(&daemon).await
}
