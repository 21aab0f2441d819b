//! Sleep at every depth: what runs goes on afterwards as if nothing had been.
#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{ExecEvent, Offsets};
use roost_e2e::{Daemon, Sandbox, Workload};
use roost_model::{ExecState, Level, State};

/// How often to do something that takes long: `few` times, or `all` with `ROOST_E2E_FULL=1`.
fn rounds(few: u32, all: u32) -> u32 {
    if std::env::var_os("ROOST_E2E_FULL").is_some() { all } else { few }
}

async fn sleep_on_disk(daemon: &Daemon, sandbox: &Sandbox, workload: &mut Workload, rounds: u32) -> Result<()> {
    let kept = workload.check(sandbox).await?;
    for round in 0..rounds {
        let slept = sandbox.suspend(Level::Disk).await.with_context(|| format!("round {round}"))?;
        let stats = daemon.client().stats(sandbox.name()).await?;
        ensure!(stats.pids == 0, "{} processes in a sandbox that sleeps on disk", stats.pids);
        let woken = sandbox.wake().await.with_context(|| format!("round {round}"))?;
        eprintln!("round {round}: suspend {:.0} ms, wake {:.0} ms", slept.total_ms, woken.total_ms);
        assert_eq!(workload.check(sandbox).await.with_context(|| format!("round {round}"))?, kept);
    }
    Ok(())
}

#[tokio::test]
async fn a_workload_goes_on_after_each_sleep_on_disk() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let mut workload = Workload::start(&sandbox).await?;
    sleep_on_disk(&daemon, &sandbox, &mut workload, rounds(10, 50)).await
}

#[tokio::test]
async fn a_build_goes_on_after_each_sleep_on_disk() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let mut workload = Workload::start_with_build(&sandbox).await?;
    sleep_on_disk(&daemon, &sandbox, &mut workload, rounds(10, 50)).await?;
    workload.check_with_build(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn a_ping_goes_on_after_a_sleep_on_disk() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let ping = sandbox.spawn("exec ping -i 0.1 127.0.0.1").await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    let mut session = daemon.client().attach_exec("box", ping.id.as_str(), Offsets::default()).await?;
    let mut text = String::new();
    while !text.contains("icmp_seq=20") {
        if let ExecEvent::Output { bytes, .. } = session.next().await?.context("ping ended")? {
            text += &String::from_utf8_lossy(&bytes);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_program_whose_file_was_replaced_goes_on() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let work = sandbox.spawn("exec sleep 1000").await?;
    sandbox.becomes_true("pgrep -x sleep").await?;
    // As a package manager does with what it upgrades.
    sandbox.root_ok("cp /usr/bin/sleep /usr/bin/sleep.new && mv /usr/bin/sleep.new /usr/bin/sleep").await?;
    sandbox.suspend(Level::Disk).await?;
    sandbox.wake().await?;
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, ExecState::Running);
    Ok(())
}

#[tokio::test]
async fn a_connection_full_of_data_goes_on() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let mut workload = Workload::start(&sandbox).await?;
    sandbox.spawn("exec python3 /home/user/w/stream.py flood").await?;
    let state = "/home/user/w/flood.state";
    sandbox.becomes_true(&format!("test -s {state}")).await?;
    sleep_on_disk(&daemon, &sandbox, &mut workload, 3).await?;
    sandbox.becomes_true(&format!("n=$(cat {state}); sleep 0.5; test $(cat {state}) -gt $n")).await
}

#[tokio::test]
async fn a_workload_goes_on_after_two_hundred_sleeps_in_ram() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let mut workload = Workload::start_with_build(&sandbox).await?;
    let kept = workload.check(&sandbox).await?;
    for round in 0..200 {
        sandbox.suspend(Level::Ram).await.with_context(|| format!("round {round}"))?;
        // Every other time it is the request that wakes it.
        if round % 2 == 0 {
            sandbox.wake().await.with_context(|| format!("round {round}"))?;
        }
        let answer = sandbox.sh_ok("curl -sSf --max-time 10 127.0.0.1:8000/").await;
        assert_eq!(answer.with_context(|| format!("round {round}"))?, "here");
    }
    assert_eq!(workload.check_with_build(&sandbox).await?, kept);
    Ok(())
}

#[tokio::test]
async fn sandboxes_that_sleep_on_disk_wake_after_a_reboot() -> Result<()> {
    let mut daemon = Daemon::start_with_base().await?;
    let heavy = daemon.sandbox_of("base", "heavy").await?;
    let mut workload = Workload::start(&heavy).await?;
    let kept = workload.check(&heavy).await?;
    let mut light = Vec::new();
    for number in 0..4 {
        let sandbox = daemon.sandbox(&format!("light-{number}")).await?;
        let work = sandbox.spawn("while :; do sleep 1; done").await?;
        light.push((sandbox, work));
    }
    let awake = daemon.sandbox("awake").await?;
    awake.sh_ok("echo precious > /root/file; sync").await?;
    for sandbox in light.iter().map(|(sandbox, _)| sandbox).chain([&heavy]) {
        sandbox.suspend(Level::Disk).await?;
    }

    daemon.reboot().await?;
    for (sandbox, exec) in &light {
        let view = daemon.client().sandbox(sandbox.name()).await?;
        assert_eq!((view.state, view.level), (State::Suspended, Some(Level::Disk)));
        sandbox.wake().await?;
        let still = daemon.client().exec(sandbox.name(), exec.id.as_str()).await?;
        assert_eq!((still.pid, still.status), (exec.pid, ExecState::Running));
    }
    heavy.wake().await?;
    assert_eq!(workload.check(&heavy).await?, kept);
    // One that was awake has lost its processes and nothing else.
    assert_eq!(awake.sh_ok("cat /root/file").await?, "precious");
    Ok(())
}

#[tokio::test]
async fn sleep_gets_deeper_and_never_shallower() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let boot_id = "cat /proc/sys/kernel/random/boot_id";
    let first = sandbox.sh_ok(boot_id).await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;

    sandbox.suspend(Level::Ram).await?;
    assert_eq!(sandbox.sh_ok(boot_id).await?, first);
    sandbox.suspend(Level::Ram).await?;
    let receipt = sandbox.suspend(Level::Disk).await?;
    assert!(receipt.bytes.get("memory").is_some_and(|bytes| *bytes > 0), "{receipt:?}");
    // Asking for less than it has changes nothing.
    let receipt = daemon.client().suspend_sandbox("box", Level::Ram).await?;
    assert_eq!(receipt.level, Some(Level::Disk));
    assert_eq!(sandbox.sh_ok(boot_id).await?, first);
    let still = daemon.client().exec("box", work.id.as_str()).await?;
    assert_eq!((still.pid, still.status), (work.pid, ExecState::Running));

    for from in [Level::Ram, Level::Disk] {
        sandbox.sh_ok("echo precious > /root/file; sleep 1000 >/dev/null 2>&1 &").await?;
        sandbox.suspend(from).await?;
        let receipt = sandbox.suspend(Level::Files).await?;
        assert_eq!(receipt.kept, ["files"]);
        assert_eq!(sandbox.sh_ok("cat /root/file; pidof sleep; true").await?, "precious");
    }
    Ok(())
}

#[tokio::test]
async fn many_who_need_it_wake_it_once() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("mkdir -p /etc/roost/on-wake.d").await?;
    sandbox.write("/etc/roost/on-wake.d/10-count", "#!/bin/sh\necho $ROOST_WHY >> /root/wakes\n").await?;
    sandbox.sh_ok("chmod +x /etc/roost/on-wake.d/10-count").await?;
    for level in [Level::Ram, Level::Disk] {
        sandbox.suspend(level).await?;
        let callers: Vec<_> = (0..10)
            .map(|number| {
                let sandbox = sandbox.clone();
                tokio::spawn(async move { sandbox.sh_ok(&format!("echo {number}")).await })
            })
            .collect();
        for (number, caller) in callers.into_iter().enumerate() {
            assert_eq!(caller.await??, number.to_string());
        }
    }
    sandbox.becomes_true("test $(wc -l < /root/wakes) -ge 2").await?;
    assert_eq!(sandbox.sh_ok("cat /root/wakes").await?, "wake\nwake");
    Ok(())
}

/// Reads a counter's lines from an offset until it has come to `until`; returns the offset after what was read.
async fn count(session: &mut roost_client::ExecSession, lines: &mut Lines, until: u64) -> Result<()> {
    while lines.next < until {
        match session.next().await?.context("the stream ended")? {
            ExecEvent::Output { offset, bytes, .. } => {
                ensure!(offset == lines.offset, "bytes at {offset} where {} was expected", lines.offset);
                lines.take(&bytes)?;
            }
            ExecEvent::Exit(state) => anyhow::bail!("the counter ended with {state:?}"),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Lines {
    offset: u64,
    next: u64,
    partial: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.offset += bytes.len() as u64;
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            ensure!(line == format!("{}\n", self.next).into_bytes(), "line {} is {line:?}", self.next);
            self.next += 1;
        }
        Ok(())
    }
}

#[tokio::test]
async fn output_goes_on_where_it_was() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let counter = sandbox.spawn("i=0; while :; do echo $i; i=$((i+1)); done").await?;
    let client = daemon.client();
    let mut lines = Lines::default();

    for round in 1..=3 {
        // Attached over a sleep in RAM: nothing is to be noticed.
        let mut session =
            client.attach_exec("box", counter.id.as_str(), Offsets { stdout: lines.offset, stderr: 0 }).await?;
        let first = lines.next;
        count(&mut session, &mut lines, first + 200).await?;
        sandbox.suspend(Level::Ram).await?;
        sandbox.wake().await?;
        // More than was on the way while it slept.
        count(&mut session, &mut lines, first + 20_000).await.with_context(|| format!("round {round}"))?;
        drop(session);
        sandbox.suspend(Level::Disk).await?;
        sandbox.wake().await?;
    }
    let mut session =
        client.attach_exec("box", counter.id.as_str(), Offsets { stdout: lines.offset, stderr: 0 }).await?;
    let until = lines.next + 1000;
    count(&mut session, &mut lines, until).await
}

#[tokio::test]
async fn clocks_are_right_after_a_sleep_on_disk() -> Result<()> {
    const ASLEEP: Duration = Duration::from_secs(3);
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let watch = "import time\nlast = time.monotonic()\nlargest = 0\nwhile True:\n  now = time.monotonic()\n  \
        largest = max(largest, now - last)\n  last = now\n  print(f'{largest} {now} {time.time()}', flush=True)\n  time.sleep(0.02)\n";
    sandbox.write("/home/user/watch.py", watch).await?;
    sandbox.spawn("exec python3 /home/user/watch.py > /home/user/clock").await?;
    sandbox.becomes_true("test -s /home/user/clock").await?;
    let uptime = || async { anyhow::Ok(sandbox.sh_ok("cut -d' ' -f1 /proc/uptime").await?.parse::<f64>()?) };
    let before = (Instant::now(), uptime().await?);

    sandbox.suspend(Level::Disk).await?;
    // Not to wait for something: that time passes is the test.
    tokio::time::sleep(ASLEEP).await;
    sandbox.wake().await?;
    sandbox.becomes_true("n=$(wc -l < /home/user/clock); sleep 0.1; test $(wc -l < /home/user/clock) -gt $n").await?;
    let line = sandbox.sh_ok("tail -n 2 /home/user/clock | head -n 1").await?;
    let told: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
    assert!((wall - told[2]).abs() < 1.5, "the wall clock inside says {}, outside {wall}", told[2]);
    assert!(told[0] < ASLEEP.as_secs_f64(), "monotonic time jumped by {} s", told[0]);
    let (passed, inside) = (before.0.elapsed().as_secs_f64(), uptime().await? - before.1);
    assert!(inside < passed - ASLEEP.as_secs_f64() + 0.5, "{inside} s passed inside, {passed} s outside");
    Ok(())
}
