//! A daemon that is killed at every step of every operation: no sandbox, checkpoint or byte is lost, nothing is left over.
//!
//! Each operation has one sandbox that goes through all of its steps. A process in it keeps a word in memory only, and
//! counts in memory and in a file at once, so that memory of one moment on the disk of another does not go unnoticed.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Scene, no_orphans};
use roost_model::{CreateCheckpoint, CreateSandbox, ErrorCode, Fork, Level, Restore, State};

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
