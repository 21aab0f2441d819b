//! CRIU, the daemon, a guest or who serves memory is killed while memory is saved or brought back, or there is no room for it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{ClientError, EventsFilter};
use roost_e2e::{Daemon, Sandbox, Scene, Witness, criu_at_work, first_pid, no_orphans, page_servers};
use roost_model::{CreateCheckpoint, ErrorCode, EventKind, Level, Restore};

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

/// Memory of the moment that was left must not come back on the disk of the one that was gone back to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn criu_dies_while_it_goes_back() -> Result<()> {
    let mut scene = Scene::new().await?;
    let client = scene.daemon.client();
    let kept = scene.checkpoint().await?;
    let mut without_memory = 0;
    for after in EARLY_MOMENTS.map(Duration::from_millis) {
        hold_memory(&scene.sandbox).await?;
        scene.sandbox.suspend(Level::Disk).await?;
        let (back, wanted) = (scene.daemon.client(), Restore { checkpoint: kept.id.clone() });
        let restore = async move { back.restore_sandbox("box", &wanted).await };
        let (outcome, killed) = with_criu_killed(&scene.daemon, after, restore).await?;
        if outcome.is_err() {
            ensure!(killed, "{outcome:?}");
            without_memory += 1;
            for _ in 0..2 {
                // Awake from its files, and again.
                scene.sandbox.answers().await?;
                ensure!(!scene.witness.is_there(&scene.sandbox).await?, "memory of another moment is back");
                scene.sandbox.suspend(Level::Files).await?;
            }
            scene.witness = Witness::start(&scene.sandbox).await?;
        }
        no_orphans(&scene.daemon).await?;
    }
    ensure!(without_memory > 0, "criu was never killed while it restored");
    ensure!(client.list_checkpoints("box").await?.iter().filter(|kept| kept.automatic).count() == EARLY_MOMENTS.len());
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

/// Whoever asks first may meet its end; whoever asks next finds it settled.
#[tokio::test]
async fn one_that_was_killed_in_its_sleep_is_met_once() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;
    let (client, instance) = (daemon.client(), daemon.instance().await?);
    let kept = client.create_checkpoint("box", &CreateCheckpoint::default()).await?.checkpoint;
    for goes_back in [false, true, false, true] {
        sandbox.answers().await?;
        sandbox.suspend(Level::Ram).await?;
        let pid = first_pid(&instance, sandbox.id())?.to_string();
        ensure!(Command::new("kill").args(["-KILL", &pid]).status()?.success());
        let ask = async || {
            if goes_back {
                client.restore_sandbox("box", &Restore { checkpoint: kept.id.clone() }).await.map(drop)
            } else {
                client.create_checkpoint("box", &CreateCheckpoint::default()).await.map(drop)
            }
        };
        let told = ask().await.err();
        ensure!(told.as_ref().is_none_or(|error| error.code() == Some(ErrorCode::GuestLost)), "{told:?}");
        ask().await.with_context(|| format!("asked again after {told:?}"))?;
        assert_eq!(sandbox.sh_ok("cat /root/file").await?, "precious");
    }
    no_orphans(&daemon).await
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
