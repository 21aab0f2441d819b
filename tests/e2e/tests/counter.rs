//! Twenty counters, a daemon that is killed twice at random moments, and not one line lost or repeated.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_client::{ExecEvent, FollowedExec, Offsets};
use roost_e2e::{Daemon, Seed};
use roost_model::ExecState;

const SANDBOXES: usize = 20;
const CRASHES: u32 = 2;
const LINES: u64 = 10_000;
/// Bursts of a hundred lines every 50 ms: the counters run for five seconds, longer than it takes to kill the daemon twice.
const COUNT: &str = "i=0; while [ $i -lt 10000 ]; do j=0; \
    while [ $j -lt 100 ]; do echo $i; i=$((i+1)); j=$((j+1)); done; sleep 0.05; done";

/// Reads a counter to its end, through every death of the daemon, and checks each line.
async fn follow(mut session: FollowedExec) -> Result<()> {
    let (mut next_line, mut position, mut partial) = (0, 0, Vec::new());
    loop {
        match session.next().await?.context("the stream ended without an exit")? {
            ExecEvent::Output { offset, bytes, .. } => {
                ensure!(offset == position, "{} bytes at {offset} where {position} was expected", bytes.len());
                position += bytes.len() as u64;
                partial.extend_from_slice(&bytes);
                while let Some(end) = partial.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = partial.drain(..=end).collect();
                    ensure!(line == format!("{next_line}\n").into_bytes(), "line {next_line} is {line:?}");
                    next_line += 1;
                }
            }
            ExecEvent::Gap { .. } => anyhow::bail!("a gap after line {next_line}"),
            ExecEvent::Exit(state) => {
                ensure!(matches!(state, ExecState::Exited { exit_code: 0, .. }), "ended with {state:?}");
                ensure!(next_line == LINES && partial.is_empty(), "ended after {next_line} lines");
                // One for two crashes is right when the second came before the client was back from the first.
                ensure!(session.reconnects() > 0, "the daemon was killed and nobody noticed");
                return Ok(());
            }
            _ => {}
        }
    }
}

async fn count_through_two_crashes(seed: u64) -> Result<()> {
    let mut random = Seed::new(seed);
    let mut daemon = Daemon::start().await?;
    let mut followers = tokio::task::JoinSet::new();
    for number in 0..SANDBOXES {
        let sandbox = daemon.sandbox(&format!("counter-{number}")).await?;
        let exec = sandbox.spawn(COUNT).await?;
        let session = daemon.client().follow_exec(sandbox.name(), exec.id.as_str(), Offsets::default()).await?;
        followers.spawn(async move { follow(session).await.with_context(|| format!("counter-{number}, seed {seed}")) });
    }
    for _ in 0..CRASHES {
        // Not to wait for something: the random moment is the test.
        tokio::time::sleep(Duration::from_millis(random.below(1200))).await;
        daemon.kill9()?;
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        daemon.start_again().await?;
    }
    while let Some(followed) = followers.join_next().await {
        followed??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_repeated_seed_1() -> Result<()> {
    count_through_two_crashes(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_repeated_seed_2() -> Result<()> {
    count_through_two_crashes(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_repeated_seed_3() -> Result<()> {
    count_through_two_crashes(3).await
}

/// More seeds on demand: `ROOST_E2E_SEEDS=100..120`.
#[tokio::test(flavor = "multi_thread")]
async fn no_line_is_lost_or_repeated_with_seeds_asked_for() -> Result<()> {
    let Ok(asked) = std::env::var("ROOST_E2E_SEEDS") else { return Ok(()) };
    let (first, last) = asked.split_once("..").context("ROOST_E2E_SEEDS is not of the form 1..9")?;
    for seed in first.parse()?..last.parse()? {
        count_through_two_crashes(seed).await?;
    }
    Ok(())
}
