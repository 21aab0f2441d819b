//! What a sandbox does about itself: the command `roost-guest` and the socket behind it.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox};
use roost_model::{EventKind, Fork, Level, Origin, StartExec};

/// Waits for a file inside and returns what stands in it.
async fn appears(sandbox: &Sandbox, path: &str) -> Result<String> {
    sandbox.becomes_true(&format!("test -s {path}")).await?;
    sandbox.sh_ok(&format!("cat {path}")).await
}

#[tokio::test]
async fn a_sandbox_holds_itself_awake_and_sets_its_alarm() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let said = sandbox.sh_ok("roost-guest hold --for 10m --reason 'long build'").await?;
    ensure!(said.starts_with("held awake until ") && said.ends_with("(inside, inside): long build"), "{said}");
    let holds = daemon.client().list_holds("box").await?;
    assert_eq!((holds.len(), holds[0].from, holds[0].reason.as_deref()), (1, Origin::Inside, Some("long build")));
    sandbox.sh_ok("roost-guest hold --for 20m").await?;
    assert_eq!(daemon.client().list_holds("box").await?.len(), 1, "it is renewed");

    let info = sandbox.sh_ok("roost-guest info").await?;
    ensure!(info.starts_with("box (sbx_") && info.contains("held awake until"), "{info}");
    let json: serde_json::Value = serde_json::from_str(&sandbox.sh_ok("roost-guest info --json").await?)?;
    assert_eq!(json["ok"]["data"]["id"], sandbox.id());

    assert_eq!(sandbox.sh_ok("roost-guest release").await?, "released 1 hold");
    ensure!(daemon.client().list_holds("box").await?.is_empty());
    let said = sandbox.sh_ok("roost-guest wake-at in 1h --reason tea").await?;
    ensure!(said.starts_with("wakes at "), "{said}");
    sandbox.sh_ok("roost-guest wake-every '*/5 * * * *' --name poll").await?;
    let alarms = daemon.client().list_alarms("box").await?;
    assert_eq!(alarms.iter().map(|alarm| alarm.id.as_str()).collect::<Vec<_>>(), ["inside", "poll"]);
    ensure!(alarms.iter().all(|alarm| alarm.from == Origin::Inside), "{alarms:?}");
    assert_eq!(sandbox.sh_ok("roost-guest unset").await?, "removed 2 alarms");

    // Any user may ask, and what makes no sense is said.
    let nobody = StartExec {
        shell: Some("roost-guest info".to_owned()),
        user: Some("65534:65534".to_owned()),
        ..StartExec::default()
    };
    let output = sandbox.run(&nobody).await?;
    ensure!(output.exit_code == 0 && output.stdout.starts_with("box "), "{output:?}");
    for (line, part) in [
        ("roost-guest hold --for soon", "`soon` is not a duration"),
        ("roost-guest hold --for 31d", "at most 30 days"),
        ("roost-guest wake-at soon", "`soon` is not a time"),
        ("roost-guest wake-every '* * *'", "has 3 fields"),
        ("roost-guest wake-every @daily --tz Mars/Base", "knows no time zone `Mars/Base`"),
        ("roost-guest suspend --to files", "to ram or disk, not `files`"),
        ("roost-guest release nothing", "no hold `nothing`"),
        ("roost-guest fly", "no command `fly`"),
    ] {
        let refused = sandbox.refuses(line).await?;
        ensure!(refused.stderr.contains(part), "{line}: {refused:?}");
    }
    // What the outside has set is not the inside's to take away.
    daemon.roost_ok(&["hold", "box", "--name", "theirs"]).await?;
    for line in ["roost-guest release theirs", "roost-guest hold --name theirs"] {
        let refused = sandbox.refuses(line).await?;
        ensure!(refused.stderr.contains("outside") || refused.stderr.contains("not from inside"), "{refused:?}");
    }
    sandbox.sh_ok("roost-guest release").await?;
    assert_eq!(daemon.client().list_holds("box").await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_sandbox_puts_itself_to_sleep_and_goes_on_where_it_was() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    for (round, level) in [Level::Ram, Level::Disk, Level::Ram, Level::Disk].into_iter().enumerate() {
        let file = format!("/root/said-{round}");
        let line = format!("roost-guest suspend --to {level} > {file} 2>&1; echo \"code $?\" >> {file}");
        let before = sandbox.newest_event().await?;
        sandbox.spawn(&line).await?;
        let slept = sandbox.happens_after(before, EventKind::Suspended).await?;
        assert_eq!(slept.receipt.and_then(|receipt| receipt.level), Some(level), "round {round}");
        // Deeper, while the answer waits in a socket of the sandbox.
        if round == 2 {
            sandbox.suspend(Level::Disk).await?;
        }
        sandbox.wake().await?;
        sandbox.becomes_true(&format!("grep -q code {file}")).await?;
        assert_eq!(appears(&sandbox, &file).await?, "awake again\ncode 0", "round {round}, {level}");
        // It is heard as before.
        sandbox.sh_ok("roost-guest info").await?;
    }
    // And wakes itself.
    let before = sandbox.newest_event().await?;
    sandbox.spawn("roost-guest wake-at in 2s && roost-guest sleep-now > /root/slept").await?;
    let slept = sandbox.happens_after(before, EventKind::Suspended).await?;
    let woken = sandbox.happens_after(slept.id, EventKind::Woken).await?;
    assert_eq!(woken.reason.as_deref(), Some("woken by alarm inside"));
    assert_eq!(appears(&sandbox, "/root/slept").await?, "awake again");
    Ok(())
}

#[tokio::test]
async fn a_call_is_heard_by_the_next_daemon() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("roost-guest info").await?;
    let before = sandbox.newest_event().await?;
    sandbox.spawn("roost-guest suspend > /root/said 2>&1").await?;
    sandbox.happens_after(before, EventKind::Suspended).await?;
    daemon.crash_and_restart().await?;
    let sandbox = Sandbox::find(daemon.client(), "box").await?;
    assert_eq!(appears(&sandbox, "/root/said").await?, "awake again");
    sandbox.sh_ok("roost-guest hold").await?;
    assert_eq!(daemon.client().list_holds("box").await?.len(), 1);
    // Asked while nobody listens, it waits for somebody who does.
    sandbox.spawn("until test -e /root/go; do sleep 0.01; done; roost-guest release > /root/released 2>&1").await?;
    sandbox.sh_ok("touch /root/go").await?;
    daemon.crash_and_restart().await?;
    let sandbox = Sandbox::find(daemon.client(), "box").await?;
    assert_eq!(appears(&sandbox, "/root/released").await?, "released 1 hold");
    Ok(())
}

#[tokio::test]
async fn a_sandbox_keeps_a_moment_of_itself_and_knows_it_again() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("roost-guest checkpoint --comment mine > /root/said").await?;
    let id = sandbox.sh_ok("cat /root/said").await?;
    let kept = daemon.client().checkpoint_of("box", &id).await?;
    ensure!(kept.comment.as_deref() == Some("mine") && kept.memory, "{kept:?}");
    let refused = sandbox.refuses("roost-guest checkpoint").await?;
    ensure!(refused.stderr.contains("one checkpoint in 5 s"), "{refused:?}");
    // Whoever starts from that moment is told so in the place of the id.
    let wanted = Fork { count: None, names: Some(vec!["twin".to_owned()]), from: Some(kept.id.clone()) };
    let (twin, _) = sandbox.fork(&wanted).await?.pop().context("no child")?;
    twin.becomes_true("test -s /root/said").await?;
    assert_eq!(twin.sh_ok("cat /root/said").await?, "started from this checkpoint (fork)");
    let info = twin.sh_ok("roost-guest info").await?;
    ensure!(info.starts_with("twin ("), "{info}");
    sandbox.restore(&kept.id).await?;
    sandbox.becomes_true("test -s /root/said").await?;
    assert_eq!(sandbox.sh_ok("cat /root/said").await?, "started from this checkpoint (restore)");
    Ok(())
}

#[tokio::test]
async fn a_sandbox_that_asks_without_end_keeps_nobody_busy() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let other = daemon.sandbox("other").await?;
    let flood = "for i in 1 2 3 4 5 6 7 8; do (while :; do roost-guest info >/dev/null && echo >> /root/asked; done) & done; wait";
    sandbox.spawn(flood).await?;
    sandbox.becomes_true("test $(wc -l < /root/asked) -ge 30").await?;
    let (count, begun) = (sandbox.sh_ok("wc -l < /root/asked").await?.parse::<u64>()?, Instant::now());
    let before = cpu_ticks(daemon.pid()?)?;
    // Meanwhile others are served.
    for _ in 0..10 {
        other.answers().await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after: u64 = sandbox.sh_ok("wc -l < /root/asked").await?.parse()?;
    let (asked, seconds) = (after - count, begun.elapsed().as_secs_f64());
    let cpu = cpu_ticks(daemon.pid()?)? - before;
    eprintln!("{asked} calls in {seconds:.1} s, daemon used {cpu} ticks");
    #[expect(clippy::cast_precision_loss, reason = "a few dozen")]
    let rate = asked as f64 / seconds;
    ensure!(rate < 8.0, "{rate:.1} calls in a second");
    Ok(())
}

/// CPU time of a process, in ticks.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().context("no stat")?.split_ascii_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}
