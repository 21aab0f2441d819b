//! What depends on how much there is: memory, files that were just written.

use std::time::Instant;

use anyhow::{Context, Result};
use roost_model::{CreateCheckpoint, Fork, Level, Receipt, Restore};
use tokio::task::JoinSet;

use crate::basics;
use crate::figures::Series;
use crate::podman::Podman;
use crate::report::{Curve, Line};
use crate::scene::{Scene, ask};

/// The memory of what is forked, in megabytes.
const FORKED: u64 = 64;
const CHILDREN: usize = 10;

/// Forks of a running sandbox, one and ten.
pub(crate) async fn forks(scene: &Scene<'_>, repeats: usize) -> Result<Vec<Series>> {
    scene.tell("forks, checkpoint and restore of 64 MB");
    let name = scene.name("forked");
    scene.create(&name, FORKED).await?;
    scene.hold_memory(&name, FORKED).await?;
    let mut series =
        ["fork of 64 MB, first answer", "10 forks of 64 MB, all answers", "restore of 64 MB, first answer"]
            .map(Series::new);
    for _ in 0..repeats {
        for (series, count) in series.iter_mut().zip([1, CHILDREN]) {
            let names: Vec<String> = (0..count).map(|number| format!("{name}-{number}")).collect();
            let wanted = Fork { names: Some(names.clone()), ..Fork::default() };
            let began = Instant::now();
            scene.client.fork_sandbox(&name, &wanted).await?;
            let mut asked = JoinSet::new();
            for name in names.clone() {
                let client = scene.client.clone();
                asked.spawn(async move { ask(&client, &name).await });
            }
            while let Some(answered) = asked.join_next().await {
                answered??;
            }
            series.add(began.elapsed());
            for name in &names {
                scene.client.delete_sandbox(name).await?;
            }
        }
        let made = scene.client.create_checkpoint(&name, &CreateCheckpoint::default()).await?;
        let began = Instant::now();
        scene.client.restore_sandbox(&name, &Restore { checkpoint: made.checkpoint.id.clone() }).await?;
        scene.ask(&name).await?;
        series[2].add(began.elapsed());
        scene.client.delete_checkpoint(&name, made.checkpoint.id.as_str()).await?;
    }
    scene.client.delete_sandbox(&name).await?;
    Ok(series.into())
}

/// Sleep on disk, wake and checkpoints with memory, by how much memory there is.
pub(crate) async fn by_memory(scene: &Scene<'_>, sizes: &[u64], repeats: usize) -> Result<Curve> {
    let mut lines: Vec<Line> =
        ["suspend to disk", "wake from disk, first answer", "checkpoint with memory: pause"].map(Line::new).into();
    let mut peers = ["podman checkpoint", "podman restore"].map(Line::new);
    let mut podman = None;
    for &size in sizes.iter().filter(|size| fits(**size)) {
        scene.tell(&format!("sleep on disk and checkpoints with {size} MB of memory"));
        let name = scene.name(&format!("memory-{size}"));
        scene.create(&name, size).await?;
        scene.hold_memory(&name, size).await?;
        let podman = match &mut podman {
            Some(known) => known,
            none => none.insert(basics::podman(scene, Podman::saves_and_restores).await?),
        };
        let peer = podman.as_ref().map(|podman| podman.hold_memory(size)).transpose()?;
        for _ in 0..repeats {
            if let Some(peer) = &peer {
                peers[0].add(size as f64, peer.checkpoint()?.as_secs_f64() * 1e3);
                peers[1].add(size as f64, peer.restore()?.as_secs_f64() * 1e3);
            }
            let began = Instant::now();
            scene.client.suspend_sandbox(&name, Level::Disk).await?;
            lines[0].add(size as f64, began.elapsed().as_secs_f64() * 1e3);
            let woken = scene.ask(&name).await?;
            lines[1].add(size as f64, woken.as_secs_f64() * 1e3);
            let made = scene.client.create_checkpoint(&name, &CreateCheckpoint::default()).await?;
            lines[2].add(size as f64, pause(&made.receipt)?);
            scene.client.delete_checkpoint(&name, made.checkpoint.id.as_str()).await?;
        }
        scene.client.delete_sandbox(&name).await?;
    }
    lines.extend(peers.into_iter().filter(|line| !line.is_empty()));
    let why = "A suspend and the pause of a checkpoint write all of memory, so both grow with it. A wake brings back what is asked for \
               first and the rest behind it: it grows with the table of pages, not with their bytes.";
    Ok(Curve { file: "memory", title: "By memory", across: "megabytes of memory", up: "ms, p50", lines, why })
}

/// The pause of a checkpoint without memory, by how much was just written.
pub(crate) async fn by_dirty_files(scene: &Scene<'_>, sizes: &[u64], repeats: usize) -> Result<Curve> {
    let mut lines = ["files-only checkpoint: pause", "files-only checkpoint: in all"].map(Line::new);
    let name = scene.name("dirty");
    scene.create(&name, 0).await?;
    for &size in sizes {
        scene.tell(&format!("checkpoints with {size} MB of files just written"));
        for _ in 0..repeats {
            // A new file each time: one that is emptied and written again is written out when it is closed.
            let bytes = size << 20;
            scene.run(&name, &format!("rm -f /root/dirty && head -c {bytes} /dev/urandom >/root/dirty")).await?;
            let wanted = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
            let made = scene.client.create_checkpoint(&name, &wanted).await?;
            lines[0].add(size as f64, pause(&made.receipt)?);
            lines[1].add(size as f64, made.receipt.total_ms);
            scene.client.delete_checkpoint(&name, made.checkpoint.id.as_str()).await?;
        }
    }
    scene.client.delete_sandbox(&name).await?;
    let why = "What was written is brought to the disk before the sandbox stands still, so the whole grows with it and the pause does not.";
    Ok(Curve {
        file: "dirty",
        title: "By files just written",
        across: "megabytes just written",
        up: "ms, p50",
        lines: lines.into(),
        why,
    })
}

fn pause(receipt: &Receipt) -> Result<f64> {
    receipt.paused_ms.context("the receipt tells no pause")
}

/// Whether the host has room for it four times: once in memory, and while it is saved and loaded.
fn fits(megabytes: u64) -> bool {
    crate::bulk::available_memory().is_ok_and(|free| free >> 20 > 4 * megabytes)
}
