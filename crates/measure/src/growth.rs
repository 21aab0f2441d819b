//! What becomes of it when there is much already: sandboxes, files.

use std::time::{Duration, Instant};

use anyhow::Result;
use roost_model::{CreateCheckpoint, Fork, Level};

use crate::bulk::available_memory;
use crate::figures::Series;
use crate::report::{Curve, Line};
use crate::scene::Scene;

/// So many that their memory can be told from the host's.
const ENOUGH: usize = 100;

/// Create, exec and ram wake while so many others sleep; and what one of them costs the host.
pub(crate) async fn by_sandboxes(scene: &Scene<'_>, counts: &[usize], repeats: usize) -> Result<(Curve, Series)> {
    let mut lines = ["create and first output", "exec", "wake from ram and exec"].map(Line::new);
    let mut density = Series::new("memory of one that sleeps in ram (MiB)");
    let before = settled_memory().await?;
    let asked = scene.name("asked");
    scene.create(&asked, 0).await?;
    let mut there = 1;
    for &count in counts {
        scene.tell(&format!("{count} sandboxes"));
        let names = (there..count).map(|number| scene.name(&format!("other-{number}")));
        let sleep = |client: roost_client::Client, name: String| async move {
            client.suspend_sandbox(&name, Level::Ram).await?;
            Ok(())
        };
        scene.make_many(names, sleep).await?;
        there = there.max(count);
        let mut add = |line: usize, took: Duration| lines[line].add(count as f64, took.as_secs_f64() * 1e3);
        for round in 0..2 * repeats {
            let name = scene.name(&format!("new-{count}-{round}"));
            add(0, scene.create_and_ask(&name).await?);
            add(1, scene.ask(&asked).await?);
            scene.client.suspend_sandbox(&asked, Level::Ram).await?;
            add(2, scene.ask(&asked).await?);
            scene.client.delete_sandbox(&name).await?;
        }
    }
    // What a few take is lost in what the rest of the host does meanwhile.
    if there >= ENOUGH {
        let taken = before.saturating_sub(settled_memory().await?);
        density.push(taken as f64 / f64::from(1 << 20) / there as f64);
    }
    let why = "What is done to one sandbox touches nothing of the others. A create is the exception where a kernel looks through lists \
               of all mounts or namespaces.";
    let curve = Curve {
        file: "sandboxes",
        title: "By sandboxes that are there",
        across: "sandboxes, asleep in ram",
        up: "ms, p50",
        lines: lines.into(),
        why,
    };
    Ok((curve, density))
}

/// Checkpoint, fork and sleep of a sandbox with so many files.
pub(crate) async fn by_files(scene: &Scene<'_>, counts: &[u64], repeats: usize) -> Result<Curve> {
    let mut lines = ["files-only checkpoint", "fork, first answer", "suspend to disk", "wake from disk, first answer"]
        .map(Line::new);
    let name = scene.name("files");
    scene.create(&name, 0).await?;
    let mut there = 0;
    for &count in counts {
        scene.tell(&format!("a sandbox with {count} files"));
        let fill = format!(
            "for folder in $(seq {} {}); do mkdir -p /root/many/$folder; cd /root/many/$folder; \
             for file in $(seq 1000); do echo $file >$file; done; done; sync",
            there / 1000 + 1,
            count / 1000
        );
        scene.run(&name, &fill).await?;
        there = count;
        for _ in 0..repeats {
            let mut add = |line: usize, took: Duration| lines[line].add(count as f64, took.as_secs_f64() * 1e3);
            let began = Instant::now();
            let wanted = CreateCheckpoint { files_only: true, ..CreateCheckpoint::default() };
            let made = scene.client.create_checkpoint(&name, &wanted).await?;
            add(0, began.elapsed());
            scene.client.delete_checkpoint(&name, made.checkpoint.id.as_str()).await?;
            let child = format!("{name}-child");
            let began = Instant::now();
            let wanted = Fork { names: Some(vec![child.clone()]), ..Fork::default() };
            scene.client.fork_sandbox(&name, &wanted).await?;
            scene.ask(&child).await?;
            add(1, began.elapsed());
            scene.client.delete_sandbox(&child).await?;
            let began = Instant::now();
            scene.client.suspend_sandbox(&name, Level::Disk).await?;
            add(2, began.elapsed());
            add(3, scene.ask(&name).await?);
        }
    }
    scene.client.delete_sandbox(&name).await?;
    let why = "A moment of the files is a snapshot of a subvolume, which shares them all: their number does not matter but for what was \
               written last and is still to be brought to the disk.";
    Ok(Curve { file: "files", title: "By files", across: "files", up: "ms, p50", lines: lines.into(), why })
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
