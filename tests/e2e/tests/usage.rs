//! What a sandbox has used over time.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::Daemon;
use roost_model::{ErrorCode, Level, Span, State, UsageHistory};

const TWO_HOURS: Span = Span::seconds(2 * 3600);

fn cpu_ms(history: &UsageHistory) -> u64 {
    history.steps.iter().map(|step| step.cpu_ms).sum()
}

fn asleep_ms(history: &UsageHistory) -> u64 {
    history.steps.iter().map(|step| step.seen_ms - step.awake_ms).sum()
}

#[tokio::test]
async fn a_history_has_work_memory_and_sleep() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let client = daemon.client();
    let sandbox = daemon.sandbox("box").await?;
    // Half a second of its own processor time, however long that takes.
    let work = "while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ ticks _ < /proc/self/stat && [ $ticks -lt 50 ]; do :; done";
    sandbox.sh_ok(work).await?;
    let awake = client.usage_history("box", TWO_HOURS).await?;
    assert_eq!(awake.step, Span::seconds(60));
    ensure!(cpu_ms(&awake) >= 500, "{awake:?}");
    ensure!(awake.steps.iter().any(|step| step.memory > 100 << 10), "{awake:?}");

    for level in [Level::Ram, Level::Disk] {
        sandbox.suspend(level).await?;
        let slept = client.usage_history("box", TWO_HOURS).await?;
        assert_eq!(client.sandbox("box").await?.state, State::Suspended, "looking woke it");
        ensure!(cpu_ms(&slept) >= cpu_ms(&awake), "{awake:?} {slept:?}");
    }
    let first = asleep_ms(&client.usage_history("box", TWO_HOURS).await?);
    sandbox.wake().await?;
    sandbox.sh_ok("true").await?;
    let woken = client.usage_history("box", TWO_HOURS).await?;
    ensure!(asleep_ms(&woken) >= first && cpu_ms(&woken) >= cpu_ms(&awake), "{woken:?}");
    // What was used before a sleep on disk is not counted a second time after it.
    ensure!(cpu_ms(&woken) < 2 * cpu_ms(&awake), "{woken:?} after {awake:?}");

    for (over, step) in [(24 * 3600, 15 * 60), (7 * 24 * 3600, 2 * 3600)] {
        let history = client.usage_history("box", Span::seconds(over)).await?;
        assert_eq!(history.step, Span::seconds(step));
        ensure!(cpu_ms(&history) >= cpu_ms(&woken), "{history:?}");
    }
    for wrong in [Span::seconds(0), Span::seconds(8 * 24 * 3600), Span::NEVER] {
        let refused = client.usage_history("box", wrong).await.err().context("not refused")?;
        assert_eq!(refused.code(), Some(ErrorCode::BadRequest), "{wrong}");
    }

    // The next daemon begins with what it sees itself, and invents nothing for the time before.
    daemon.crash_and_restart().await?;
    let anew = daemon.client().usage_history("box", TWO_HOURS).await?;
    ensure!(cpu_ms(&anew) < cpu_ms(&woken), "{anew:?} after {woken:?}");
    Ok(())
}
