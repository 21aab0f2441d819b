//! A gibibyte in and out, by API and by `roost cp`: hashes equal, memory of daemon and guest flat.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use roost_client::{Upload, WriteOptions};
use roost_e2e::{Daemon, first_pid, peak_memory, reset_peak_memory};

const CHUNK: usize = 1 << 20;
const CHUNKS: u64 = 1 << 10;
/// What a peak may grow while a gibibyte passes.
const ALLOWED_GROWTH: u64 = 32 << 20;

/// The bytes of one chunk: different for each, the same every time, not to be compressed away.
fn chunk(number: u64) -> Bytes {
    let mut bytes = vec![0; CHUNK];
    blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut bytes);
    Bytes::from(bytes)
}

fn expected_hash() -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for number in 0..CHUNKS {
        hasher.update(&chunk(number));
    }
    hasher.finalize()
}

fn hash_of(path: &Path) -> Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut file = File::open(path).with_context(|| format!("failed to open `{}`", path.display()))?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            count => hasher.update(&buffer[..count]),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gibibyte_passes_both_ways_in_flat_memory() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    let guest = first_pid(&daemon.instance().await?, sandbox.id())?;
    let expected = tokio::task::spawn_blocking(expected_hash).await?;

    let pids = [("daemon", daemon.pid()?), ("guest", guest)];
    let mut before = Vec::new();
    for (_, pid) in pids {
        reset_peak_memory(pid)?;
        before.push(peak_memory(pid)?);
    }

    let began = Instant::now();
    let body = stream::iter(0..CHUNKS).map(|number| io::Result::Ok(chunk(number)));
    let stat = client.write_file("box", "/srv/big", Upload::stream(body, None), &WriteOptions::default()).await?;
    assert_eq!(stat.size, CHUNKS * CHUNK as u64);
    eprintln!("in by API: {:.1} s", began.elapsed().as_secs_f64());

    let began = Instant::now();
    let mut hasher = blake3::Hasher::new();
    let mut body = client.read_file("box", "/srv/big").await?;
    while let Some(part) = body.chunk().await? {
        hasher.update(&part);
    }
    assert_eq!(hasher.finalize(), expected);
    eprintln!("out by API: {:.1} s", began.elapsed().as_secs_f64());

    let folder = tempfile::Builder::new().prefix("roost-e2e-transfer-").tempdir_in("/var/tmp")?;
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    let mut file = File::create(&source)?;
    for number in 0..CHUNKS {
        file.write_all(&chunk(number))?;
    }
    drop(file);
    sandbox.sh_ok("rm /srv/big").await?;
    let began = Instant::now();
    daemon.roost_ok(&["cp", path(&source)?, "box:/srv/copied"]).await?;
    eprintln!("in by cp: {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    daemon.roost_ok(&["cp", "box:/srv/copied", path(&copy)?]).await?;
    eprintln!("out by cp: {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(hash_of(&copy)?, expected);

    for ((who, pid), before) in pids.into_iter().zip(before) {
        let peak = peak_memory(pid)?;
        eprintln!("{who}: {} KiB before, {} KiB at most", before >> 10, peak >> 10);
        ensure!(peak <= before + ALLOWED_GROWTH, "{who} grew from {before} to {peak} bytes");
    }
    Ok(())
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not text")
}
