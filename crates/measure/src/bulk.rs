//! Much at once: bytes, sandboxes.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use roost_client::{Upload, WriteOptions};
use tokio::task::JoinSet;

use crate::figures::Series;
use crate::scene::{Scene, ask};

const TRANSFERRED: usize = 128 << 20;
const PATH: &str = "/root/transferred";

/// Megabytes a second into a sandbox and out of it, one file.
pub(crate) async fn transfer(scene: &Scene<'_>, repeats: usize) -> Result<Vec<Series>> {
    scene.tell("a file of 128 MB in and out");
    let name = scene.name("transfer");
    scene.create(&name, 0).await?;
    let content = Bytes::from(vec![7; TRANSFERRED]);
    let mut series = ["file in (MB/s)", "file out (MB/s)"].map(Series::new);
    let rate = |began: Instant| TRANSFERRED as f64 / 1e6 / began.elapsed().as_secs_f64();
    for _ in 0..repeats {
        let began = Instant::now();
        let upload = Upload::bytes(content.clone());
        scene.client.write_file(&name, PATH, upload, &WriteOptions::default()).await?;
        series[0].push(rate(began));
        let began = Instant::now();
        let mut download = scene.client.read_file(&name, PATH).await?;
        let mut read = 0;
        while let Some(piece) = download.chunk().await? {
            read += piece.len();
        }
        ensure!(read == TRANSFERRED, "{read} bytes came back");
        series[1].push(rate(began));
    }
    scene.client.delete_sandbox(&name).await?;
    Ok(series.into())
}

/// Many that are made at once: when each had answered, and the time for each when all had.
pub(crate) async fn burst(scene: &Scene<'_>, count: usize) -> Result<Vec<Series>> {
    scene.tell(&format!("{count} sandboxes at once"));
    let names: Vec<String> = (0..count).map(|number| scene.name(&format!("burst-{number}"))).collect();
    let mut answered = Series::new(format!("burst of {count}: first output of each"));
    let mut share = Series::new(format!("burst of {count}: time for each"));
    let began = Instant::now();
    let mut births = JoinSet::new();
    for name in &names {
        let (client, template, name) = (scene.client.clone(), scene.template.to_owned(), name.clone());
        births.spawn(async move {
            crate::scene::create(&client, &template, &name, None).await?;
            ask(&client, &name).await?;
            anyhow::Ok(began.elapsed())
        });
    }
    while let Some(born) = births.join_next().await {
        answered.add(born??);
    }
    share.add(began.elapsed() / u32::try_from(count.max(1))?);
    for name in &names {
        scene.client.delete_sandbox(name).await?;
    }
    Ok(vec![answered, share])
}

/// Bytes of memory the host could still give out.
pub(crate) fn available_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).context("no MemAvailable")?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}
