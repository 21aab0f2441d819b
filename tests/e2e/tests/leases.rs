//! Holds, alarms, and crontabs inside.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Result, ensure};
use roost_e2e::{Daemon, Sandbox};
use roost_model::{ErrorCode, EventKind, Level, Origin, PutAlarm, PutHold, Span, State};

/// What has not happened by then will not.
const PATIENCE: Duration = Duration::from_secs(150);

fn lasting(seconds: u64) -> PutHold {
    PutHold { length: Span::seconds(seconds), reason: Some("test".to_owned()) }
}

fn once(text: &str) -> PutAlarm {
    PutAlarm { at: Some(text.to_owned()), ..PutAlarm::default() }
}

fn every(text: &str) -> PutAlarm {
    PutAlarm { every: Some(text.to_owned()), ..PutAlarm::default() }
}

#[tokio::test]
async fn holds_are_renewed_listed_and_released_and_outlive_the_daemon() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    let first = client.put_hold("box", Some("build"), &lasting(60)).await?;
    let again = client.put_hold("box", Some("build"), &lasting(600)).await?;
    ensure!(again.expires_at > first.expires_at && again.created_at == first.created_at, "{first:?} {again:?}");
    assert_eq!((again.from, again.reason.as_deref()), (Origin::Outside, Some("test")));
    let made_up = client.put_hold("box", None, &lasting(60)).await?;
    let brief = client.put_hold("box", Some("brief"), &lasting(1)).await?;
    let listed = daemon.roost_ok(&["hold", "ls", "box"]).await?;
    ensure!(
        listed.contains("build") && (listed.contains("in 9m") || listed.contains("in 10m")) && listed.contains("test"),
        "{listed}"
    );

    daemon.crash_and_restart().await?;
    let client = daemon.client();
    assert_eq!(client.hold("box", "build").await?, again);
    // One that is over is gone, whoever looks.
    let left = brief.expires_at.duration_since(jiff::Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
    assert_eq!(client.hold("box", "brief").await.unwrap_err().code(), Some(ErrorCode::HoldNotFound));
    assert_eq!(client.list_holds("box").await?.len(), 2);

    client.release_hold("box", made_up.id.as_str()).await?;
    let twice = client.release_hold("box", made_up.id.as_str()).await.unwrap_err();
    assert_eq!(twice.code(), Some(ErrorCode::HoldNotFound));
    assert_eq!(daemon.roost_ok(&["hold", "release", "box"]).await?, "build\n");
    assert_eq!(daemon.roost_ok(&["hold", "box", "--for", "5m", "-q"]).await?, "hold-1\n");

    for number in 1..64 {
        client.put_hold("box", Some(&format!("h{number}")), &lasting(60)).await?;
    }
    let refused = client.put_hold("box", None, &lasting(60)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::LimitExceeded));
    ensure!(refused.to_string().contains("too many holds"), "{refused}");
    sandbox.delete().await?;
    Ok(())
}

#[tokio::test]
async fn an_alarm_wakes_from_every_depth_and_says_so() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let sleeper = sandbox.spawn("sleep 1000").await?;
    for level in [Level::Ram, Level::Disk, Level::Files] {
        let before = sandbox.newest_event().await?;
        sandbox.suspend(level).await?;
        let alarm = daemon.client().put_alarm("box", Some("tea"), &once("in 1s")).await?;
        let woken = sandbox.happens_after(before, EventKind::Woken).await?;
        assert_eq!(woken.reason.as_deref(), Some("woken by alarm tea"), "{level}");
        ensure!(woken.at >= alarm.next_at, "{woken:?} before {alarm:?}");
        let late = woken.at.duration_since(alarm.next_at);
        eprintln!("from {level}: {late:#} late");
        assert_eq!(daemon.client().sandbox("box").await?.state, State::Active);
        // It is kept awake until its job has begun, and the alarm is gone.
        let holds = daemon.client().list_holds("box").await?;
        ensure!(holds.iter().any(|hold| hold.from == Origin::Alarm), "{holds:?}");
        let gone = async {
            while !daemon.client().list_alarms("box").await?.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        tokio::time::timeout(PATIENCE, gone).await??;
        if level != Level::Files {
            sandbox.sh_ok(&format!("kill -0 {}", sleeper.pid)).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_a_dead_daemon_missed_goes_off_once_when_the_next_one_starts() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.suspend(Level::Ram).await?;
    let client = daemon.client();
    let alarm = client.put_alarm("box", Some("once"), &once("in 1s")).await?;
    client.put_alarm("box", Some("yearly"), &every("@yearly")).await?;
    let before = sandbox.newest_event().await?;
    daemon.kill9()?;
    let left = alarm.next_at.duration_since(jiff::Timestamp::now());
    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
    daemon.start_again().await?;
    assert_eq!(sandbox.happens_after(before, EventKind::Woken).await?.reason.as_deref(), Some("woken by alarm once"));
    let shown = daemon.roost_ok(&["alarm", "ls", "box"]).await?;
    ensure!(shown.contains("@yearly"), "{shown}");
    daemon.roost_ok(&["alarm", "rm", "box", "yearly"]).await?;
    let twice = daemon.client().delete_alarm("box", "yearly").await.unwrap_err();
    assert_eq!(twice.code(), Some(ErrorCode::AlarmNotFound));
    let said = daemon.roost(&["alarm", "box", "--every", "61 * * * *"]).output().await?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.contains("`61` is not a minute of cron"), "{said}");
    Ok(())
}

/// Lets a sandbox in which a cron daemon runs sleep at a level between the minutes of its job.
async fn sleep_between_jobs(sandbox: &Sandbox, level: Level, minutes: usize) -> Result<()> {
    let mut runs = sandbox.sh_ok("wc -l < /root/ran 2>/dev/null || echo 0").await?.parse::<usize>()?;
    for _ in 0..minutes {
        let before = sandbox.newest_event().await?;
        sandbox.suspend(level).await?;
        let alarm = sandbox.client().alarm(sandbox.name(), "crontab").await?;
        assert_eq!(alarm.from, Origin::Crontab);
        let woken = sandbox.happens_after(before, EventKind::Woken).await?;
        assert_eq!(woken.reason.as_deref(), Some("woken by alarm crontab"));
        runs += 1;
        sandbox.becomes_true(&format!("test $(wc -l < /root/ran) -ge {runs}")).await?;
        ensure!(sandbox.client().list_alarms(sandbox.name()).await?.is_empty(), "it needs no waking while it is awake");
    }
    // Once in each minute, and in the minute it was meant for.
    let ran = sandbox.sh_ok("cat /root/ran").await?;
    let times: Vec<u64> = ran.lines().map(str::parse).collect::<Result<_, _>>()?;
    eprintln!("at {level} it ran at {times:?}");
    ensure!(times.len() == runs, "{times:?} and not {runs}");
    ensure!(times.windows(2).all(|pair| pair[1] / 60 > pair[0] / 60), "{times:?}");
    ensure!(times.iter().rev().take(minutes).all(|time| time % 60 < 20), "{times:?}");
    Ok(())
}

/// Minutes that the tests of crontabs take.
fn minutes() -> usize {
    std::env::var("ROOST_E2E_CRON_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[tokio::test]
async fn a_job_of_a_crontab_runs_every_minute_although_the_sandbox_sleeps_between() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let set_up = "mkdir -p /var/spool/cron/crontabs && \
        echo '* * * * * date +%s >> /root/ran' > /var/spool/cron/crontabs/root";
    sandbox.sh_ok(set_up).await?;
    // A crontab that nobody reads wakes nobody.
    sandbox.suspend(Level::Ram).await?;
    ensure!(daemon.client().list_alarms("box").await?.is_empty(), "no cron daemon runs");
    sandbox.sh_ok("crond -b && pidof crond").await?;
    sleep_between_jobs(&sandbox, Level::Ram, minutes()).await?;
    sleep_between_jobs(&sandbox, Level::Disk, minutes()).await
}
