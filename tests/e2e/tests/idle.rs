//! Sandboxes that sleep by themselves, and those that must not.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{EventsFilter, ExecEvent};
use roost_e2e::{Daemon, Outside, Sandbox};
use roost_model::{
    CreateSandbox, EventKind, ExecState, IdleRequest, Level, Signal, Span, StartExec, State, TerminalSize, WhyView,
};

const AFTER: Duration = Duration::from_secs(1);
/// Far longer than the quiet time: what is still awake then is kept awake.
const LONG: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

/// A sandbox that sleeps after a second without activity.
async fn sleepy(daemon: &Daemon, name: &str) -> Result<Sandbox> {
    let idle = IdleRequest { after: Some(AFTER.into()), ..IdleRequest::default() };
    daemon
        .sandbox_with(CreateSandbox { name: Some(name.to_owned()), idle: Some(idle), ..CreateSandbox::default() })
        .await
}

async fn falls_asleep(sandbox: &Sandbox) -> Result<WhyView> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = sandbox.client().why(sandbox.name()).await?;
        if why.state == State::Suspended {
            return Ok(why);
        }
        ensure!(Instant::now() < deadline, "`{}` does not sleep: {why:?}", sandbox.name());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Checks that it stays awake, and that `roost why` has a line that begins so.
async fn stays_awake(daemon: &Daemon, sandbox: &Sandbox, line: &str) -> Result<()> {
    let until = Instant::now() + LONG;
    let mut told = false;
    while Instant::now() < until {
        let why = sandbox.client().why(sandbox.name()).await?;
        ensure!(why.state == State::Active, "`{}` was put to sleep: {why:?}", sandbox.name());
        let said = daemon.roost_ok(&["why", sandbox.name()]).await?;
        told |= said.lines().any(|said| said.trim().starts_with(line));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let said = daemon.roost_ok(&["why", sandbox.name()]).await?;
    ensure!(told, "no line `{line}`: {said}");
    let filter = EventsFilter { after: None, sandbox: Some(sandbox.id().to_owned()) };
    let events = sandbox.client().list_events(&filter).await?;
    ensure!(!events.iter().any(|event| event.kind == EventKind::Suspended), "it slept in between: {events:?}");
    Ok(())
}

#[tokio::test]
async fn a_loop_keeps_it_awake_until_it_ends() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "looping").await?;
    let exec = sandbox.spawn("while :; do :; done").await?;
    stays_awake(&daemon, &sandbox, "keeps awake: cpu, ").await?;
    sandbox.client().signal_exec("looping", exec.id.as_str(), "KILL").await?;
    falls_asleep(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn an_attached_exec_keeps_it_awake_until_its_client_leaves() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "attached").await?;
    let mut client = daemon.roost(&["exec", "attached", "--", "sleep", "600"]).kill_on_drop(true).spawn()?;
    stays_awake(&daemon, &sandbox, "keeps awake: exec \"sleep 600\" attached since ").await?;
    client.kill().await?;
    // The process goes on, and nobody waits for it any more.
    falls_asleep(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn a_waited_exec_keeps_it_awake() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "waited").await?;
    let waiting = tokio::spawn({
        let sandbox = sandbox.clone();
        async move { sandbox.sh_ok("sleep 5; echo done").await }
    });
    stays_awake(&daemon, &sandbox, "keeps awake: exec \"sleep 5; echo done\" waited for since ").await?;
    ensure!(waiting.await?? == "done");
    falls_asleep(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn a_download_keeps_it_awake() -> Result<()> {
    let daemon = Daemon::start().await?;
    let outside = Outside::new()?;
    let (listener, address) = outside.listen()?;
    // Slow enough to use no CPU worth mentioning.
    let server = std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        let until = Instant::now() + LONG + Duration::from_secs(3);
        while Instant::now() < until {
            stream.write_all(&[b'x'; 4096])?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
    let sandbox = sleepy(&daemon, "loading").await?;
    sandbox.spawn(&format!("nc {} {} >/dev/null", address.ip(), address.port())).await?;
    stays_awake(&daemon, &sandbox, "keeps awake: network, ").await?;
    server.join().ok().context("the server failed")??;
    falls_asleep(&sandbox).await?;
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_owed_keeps_it_awake_and_an_idle_connection_does_not() -> Result<()> {
    let daemon = Daemon::start().await?;
    let outside = Outside::new()?;
    let (listener, address) = outside.listen()?;
    let server = std::thread::spawn(move || -> Result<std::net::TcpStream> {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; 9])?;
        std::thread::sleep(LONG + Duration::from_secs(3));
        stream.write_all(b"answer\n")?;
        Ok(stream)
    });
    let sandbox = sleepy(&daemon, "asking").await?;
    // It keeps its end open, as a client does that may ask again.
    let line = format!("(echo question; exec sleep 600) | nc {} {} >/root/answer", address.ip(), address.port());
    sandbox.spawn(&line).await?;
    stays_awake(&daemon, &sandbox, &format!("keeps awake: waiting for an answer from {address} since ")).await?;
    let stream = server.join().ok().context("the server failed")??;
    let why = falls_asleep(&sandbox).await?;
    ensure!(why.level == Some(Level::Ram), "{why:?}");
    ensure!(sandbox.read("/root/answer").await? == b"answer\n");
    drop(stream);
    Ok(())
}

#[tokio::test]
async fn an_idle_prompt_behind_a_client_that_left_sleeps() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "prompt").await?;
    let request = StartExec {
        argv: vec!["sh".to_owned()],
        pty: Some(TerminalSize { cols: 80, rows: 24 }),
        ..StartExec::default()
    };
    let session = sandbox.client().open_exec("prompt", &request).await?;
    stays_awake(&daemon, &sandbox, "keeps awake: terminal \"sh\" attached since ").await?;
    drop(session);
    falls_asleep(&sandbox).await?;
    let said = daemon.roost_ok(&["why", "prompt"]).await?;
    ensure!(said.contains("asleep in ram since ") && said.contains(" s without activity"), "{said}");
    // The prompt is still there.
    let execs = sandbox.client().list_execs("prompt").await?;
    ensure!(execs.iter().any(|exec| exec.argv == ["sh"] && exec.status == ExecState::Running), "{execs:?}");
    Ok(())
}

#[tokio::test]
async fn typing_wakes_what_was_put_to_sleep_under_a_client() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("typed").await?;
    let request = StartExec { argv: vec!["cat".to_owned()], stdin: true, ..StartExec::default() };
    let mut session = sandbox.client().open_exec("typed", &request).await?;
    // An order to sleep that overtakes the start would be undone by it.
    ensure!(matches!(session.next().await?, Some(ExecEvent::Started(_))));
    sandbox.suspend(Level::Ram).await?;
    session.send_stdin(b"hello\n").await?;
    let heard = async {
        loop {
            match session.next().await? {
                Some(ExecEvent::Output { bytes, .. }) => return anyhow::Ok(bytes),
                Some(_) => {}
                None => anyhow::bail!("it ended"),
            }
        }
    };
    let heard = tokio::time::timeout(PATIENCE, heard).await.context("nobody heard it")??;
    assert_eq!(heard.as_ref(), b"hello\n");
    let why = sandbox.client().why("typed").await?;
    ensure!(why.reason.as_deref().is_some_and(|reason| reason.starts_with("woken by input of exec ")), "{why:?}");
    Ok(())
}

#[tokio::test]
async fn an_idle_server_sleeps_and_whatever_reaches_for_it_wakes_it() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "server").await?;
    sandbox.spawn("while :; do echo hello | nc -l -p 8080; done").await?;
    falls_asleep(&sandbox).await?;
    let listed = daemon.roost_ok(&["ls"]).await?;
    ensure!(listed.contains("suspended(ram)") && listed.contains("IDLE"), "{listed}");
    // Looking at it does not wake it.
    for arguments in [&["info", "server"][..], &["why", "server"], &["usage", "server"], &["stats", "server"]] {
        daemon.roost_ok(arguments).await?;
    }
    let why = sandbox.client().why("server").await?;
    ensure!(why.state == State::Suspended && why.deepens_at.is_some(), "{why:?}");
    sandbox.sh_ok("grep -q ':1F90 ' /proc/net/tcp /proc/net/tcp6").await?;
    let said = daemon.roost_ok(&["why", "server"]).await?;
    ensure!(said.contains("woken by exec \"grep -q"), "{said}");
    falls_asleep(&sandbox).await?;
    sandbox.read("/etc/hostname").await?;
    let woken = sandbox.client().why("server").await?;
    ensure!(woken.reason.as_deref() == Some("woken by file read /etc/hostname"), "{woken:?}");
    let usage = sandbox.client().usage("server").await?;
    ensure!(usage.spent.wakes >= 2 && usage.spent.active_ms > 1000 && usage.spent.ram_ms > 0, "{usage:?}");
    let all = daemon.roost_ok(&["usage"]).await?;
    ensure!(all.lines().last().is_some_and(|line| line.starts_with("all 1")), "{all}");
    Ok(())
}

#[tokio::test]
async fn it_goes_to_disk_after_a_while_and_answers_from_there() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = sleepy(&daemon, "deep").await?;
    daemon.roost_ok(&["set", "deep", "--deepen-after", "500ms"]).await?;
    let exec = sandbox.spawn("exec sleep 1000").await?;
    let deadline = Instant::now() + PATIENCE;
    let why = loop {
        let why = sandbox.client().why("deep").await?;
        if (why.state, why.level) == (State::Suspended, Some(Level::Disk)) {
            break why;
        }
        // A host without CRIU leaves it where it is, and says so.
        if !daemon.data_dir().join("criu").exists() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it does not go to disk: {why:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    ensure!(why.reason.as_deref() == Some("after 500ms asleep in ram"), "{why:?}");
    // What ran goes on.
    let after = sandbox.client().exec("deep", exec.id.as_str()).await?;
    ensure!(after.pid == exec.pid && after.status == ExecState::Running, "{after:?}");
    Ok(())
}

#[tokio::test]
async fn never_and_ignored_signals_are_policy() -> Result<()> {
    let daemon = Daemon::start().await?;
    daemon.roost_ok(&["create", "steady", "--idle-after", "never"]).await?;
    let steady = Sandbox::find(daemon.client(), "steady").await?;
    stays_awake(&daemon, &steady, "will not sleep by itself: its policy says `never`").await?;
    let changed = ["set", "steady", "--idle-after", "1s", "--idle-ignore", "cpu,outbound"];
    daemon.roost_ok(&changed).await?;
    let exec = steady.spawn("while :; do :; done").await?;
    let why = falls_asleep(&steady).await?;
    assert_eq!(why.idle.ignore, [Signal::Cpu, Signal::Outbound]);
    assert_eq!(why.idle.after, Span::from(AFTER));
    steady.client().signal_exec("steady", exec.id.as_str(), "KILL").await?;
    // A word that is no signal is refused with those there are.
    let refused = daemon.roost(&["set", "steady", "--idle-ignore", "noise"]).output().await?;
    ensure!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("outbound"));
    Ok(())
}

/// Requests around the moment of falling asleep: none is lost, and none waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_race_with_sleeps_are_all_answered() -> Result<()> {
    let daemon = Daemon::start().await?;
    let idle = IdleRequest { after: Some(Duration::from_millis(100).into()), ..IdleRequest::default() };
    let request = CreateSandbox { name: Some("racer".to_owned()), idle: Some(idle), ..CreateSandbox::default() };
    let sandbox = Arc::new(daemon.sandbox_with(request).await?);
    let seed = std::env::var("ROOST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(4242_u64);
    eprintln!("ROOST_SEED={seed}");
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..4u64 {
        let sandbox = sandbox.clone();
        clients.spawn(async move {
            let mut random = seed.wrapping_add(client).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for round in 0..40 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                tokio::time::sleep(Duration::from_millis(60 + (random >> 33) % 120)).await;
                let work = async {
                    match random >> 61 & 3 {
                        // An order to sleep in the middle of it all.
                        0 => drop(sandbox.client().suspend_sandbox("racer", Level::Ram).await?),
                        1 => drop(sandbox.read("/etc/hostname").await?),
                        _ => drop(sandbox.sh_ok("echo here").await?),
                    }
                    anyhow::Ok(())
                };
                tokio::time::timeout(PATIENCE, work).await.with_context(|| format!("round {round} hangs"))??;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    let usage = sandbox.client().usage("racer").await?;
    eprintln!("{usage:?}");
    ensure!(usage.spent.sleeps > 5, "it slept in between");
    Ok(())
}

/// The time that a process has used, in milliseconds.
fn cpu_ms(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = text.rsplit(')').next().context("no fields")?.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok()).context("no ticks");
    // The kernel counts in hundredths of a second.
    Ok((ticks(11)? + ticks(12)?) * 10)
}

#[tokio::test(flavor = "multi_thread")]
async fn sleepers_cost_the_daemon_nothing() -> Result<()> {
    let count = |name: &str, usual: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (sleepers, seconds) = (count("ROOST_E2E_SLEEPERS", 50), count("ROOST_E2E_SLEEPERS_SECONDS", 10));
    let daemon = Daemon::start().await?;
    let mut made = Vec::new();
    for number in 0..sleepers {
        made.push(sleepy(&daemon, &format!("s{number}")).await?);
    }
    for sandbox in &made {
        falls_asleep(sandbox).await?;
    }
    let memory = roost_e2e::resident_memory(daemon.pid()?)?;
    let (before, began) = (cpu_ms(daemon.pid()?)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let used = cpu_ms(daemon.pid()?)? - before;
    let percent = used as f64 * 100.0 / began.elapsed().as_millis() as f64;
    eprintln!("{sleepers} asleep: the daemon used {percent:.2} % of a core, {} KiB of memory", memory >> 10);
    ensure!(percent < 2.0, "{percent} % of a core for {sleepers} that sleep");
    Ok(())
}
