//! Requests to sleeping sandboxes, and to sandboxes that fall asleep under them: none is lost.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::EventsFilter;
use roost_e2e::Seed;
use roost_e2e::ports::Served;
use roost_model::{ErrorCode, EventKind, Level};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);

fn count(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// How often it has been woken so far.
async fn wakes(served: &Served) -> Result<usize> {
    let filter = EventsFilter { after: Some(0), ..EventsFilter::default() };
    let events = served.daemon.client().list_events(&filter).await?;
    Ok(events.iter().filter(|event| event.kind == EventKind::Woken).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_requests_at_once_wake_it_once_and_all_are_answered() -> Result<()> {
    let served = Arc::new(Served::with_servers().await?);
    for (level, port) in [(Level::Ram, 3000), (Level::Disk, 3000), (Level::Ram, 4000), (Level::Disk, 4000)] {
        served.sandbox.suspend(level).await?;
        let before = wakes(&served).await?;
        let mut asking = JoinSet::new();
        for number in 0..100 {
            let served = served.clone();
            asking.spawn(async move {
                let answer = served.get(port, &format!("/echo?{number}")).await?;
                ensure!(answer.status == 200, "{}", answer.text());
                ensure!(answer.json()?["path"] == format!("/echo?{number}"), "{}", answer.text());
                Ok(())
            });
        }
        while let Some(answered) = asking.join_next().await {
            answered??;
        }
        assert_eq!(wakes(&served).await? - before, 1, "{level}, port {port}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_many_cycles_wakes_it_and_is_answered() -> Result<()> {
    let served = Served::with_servers().await?;
    let client = served.daemon.client();
    let cycles = count("ROOST_E2E_WAKE_CYCLES", 100);
    let mut slowest = Duration::ZERO;
    for cycle in 0..cycles {
        // Every tenth sleeps on disk.
        let level = if cycle % 10 == 9 { Level::Disk } else { Level::Ram };
        client.suspend_sandbox("web", level).await?;
        let since = Instant::now();
        let answer = served.get(if cycle % 2 == 0 { 3000 } else { 4000 }, "/").await?;
        slowest = slowest.max(since.elapsed());
        ensure!(answer.status == 200 && answer.text() == "hello", "cycle {cycle}: {}", answer.text());
    }
    eprintln!("{cycles} cycles, the slowest answer took {slowest:?}");
    Ok(())
}

/// Sleeps of every kind at random moments; each request that may be repeated gets its answer, and each other one too unless
/// its sandbox's processes were taken away under it.
#[tokio::test(flavor = "multi_thread")]
async fn sleeps_that_race_with_requests_lose_none() -> Result<()> {
    let seeds = std::env::var("ROOST_E2E_SEEDS").unwrap_or_else(|_| "1..3".to_owned());
    let (from, to) = seeds.split_once("..").context("seeds are FROM..TO")?;
    let served = Arc::new(Served::with_servers().await?);
    for seed in from.parse::<u64>()?..to.parse()? {
        race(&served, seed).await.with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

async fn race(served: &Arc<Served>, seed: u64) -> Result<()> {
    const SLEEPS: u64 = 30;
    const ASKERS: u64 = 6;
    let done = Arc::new(AtomicBool::new(false));
    let (answered, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut asking = JoinSet::new();
    for asker in 0..ASKERS {
        let (served, done) = (served.clone(), done.clone());
        let (answered, refused) = (answered.clone(), refused.clone());
        asking.spawn(async move {
            let mut seed = Seed::new(seed * 1000 + asker);
            while !done.load(Ordering::Relaxed) {
                let count = if ask(&served, &mut seed).await? { &answered } else { &refused };
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    let mut random = Seed::new(seed);
    let client = served.daemon.client();
    for sleep in 0..SLEEPS {
        // Moments are random, not waited for.
        tokio::time::sleep(Duration::from_micros(random.below(40_000))).await;
        let level = if random.below(4) == 0 { Level::Disk } else { Level::Ram };
        client.suspend_sandbox("web", level).await.with_context(|| format!("sleep {sleep} to {level}"))?;
    }
    done.store(true, Ordering::Relaxed);
    while let Some(asked) = tokio::time::timeout(PATIENCE, asking.join_next()).await.context("a request hangs")? {
        asked??;
    }
    let (answered, refused) = (answered.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    eprintln!("seed {seed}: {answered} requests answered through {SLEEPS} sleeps, {refused} POSTs refused with 503");
    Ok(())
}

/// Whether it was answered; a POST may have been refused in so many words.
async fn ask(served: &Served, seed: &mut Seed) -> Result<bool> {
    let port = if seed.below(2) == 0 { 3000 } else { 4000 };
    let number = seed.below(1 << 40);
    let token = [("x-roost-token", served.token.as_str())];
    match seed.below(4) {
        0 => {
            let path = format!("/slow?ms={}", seed.below(30));
            let answer = tokio::time::timeout(PATIENCE, served.get(port, &path)).await.context("GET hangs")??;
            ensure!(answer.status == 200 && answer.text().starts_with("slow"), "{}", answer.text());
        }
        1 => {
            let body = number.to_string();
            let asked = served.ask("POST", port, "/echo", &token, body.as_bytes());
            let answer = tokio::time::timeout(PATIENCE, asked).await.context("POST hangs")??;
            // What cannot be repeated is told so.
            if answer.status == 503 {
                ensure!(answer.header("x-roost-error") == Some(ErrorCode::Conflict.as_str()), "{}", answer.text());
                return Ok(false);
            }
            ensure!(answer.status == 200 && answer.json()?["body"] == body, "{} {}", answer.status, answer.text());
        }
        _ => {
            let path = format!("/echo?{number}");
            let answer = tokio::time::timeout(PATIENCE, served.get(port, &path)).await.context("GET hangs")??;
            ensure!(answer.status == 200 && answer.json()?["path"] == path, "{} {}", answer.status, answer.text());
        }
    }
    Ok(true)
}
