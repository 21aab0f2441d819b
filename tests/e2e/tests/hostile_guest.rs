//! Root inside takes the guest's place and lies to the daemon: every call ends, and the daemon stays small.
//!
//! `ROOST_FUZZ_SECONDS` lets the fuzzed guest lie for longer, `ROOST_FUZZ_SEED` repeats what it said.
#![forbid(unsafe_code)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::{ClientError, Offsets, Upload, WriteOptions};
use roost_e2e::{Daemon, Options, Sandbox, peak_memory, reset_peak_memory, resident_memory};
use roost_model::{CreateSandbox, EngineKind, ErrorCode, IdleRequest, LimitsRequest, MakeFolder, Span, StartExec};
use tokio::process::Command;

const LIAR: &str = include_str!("../workload/liar.py");
/// What the daemon may grow by while one guest lies to it.
const GROWTH: u64 = 64 << 20;
/// What the daemon may have while twenty guests lie to it.
const MOST: u64 = 300 << 20;
/// A guest that was not taken by then never is.
const TAKING: Duration = Duration::from_secs(40);
/// A call that has not ended by then hangs.
const HANGS: Duration = Duration::from_secs(180);
const EXEC: &str = "exe_00000000000000000000000000";

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn daemon_on(engine: EngineKind) -> Result<Daemon> {
    Daemon::with(Options { base: true, engine: Some(engine), ..Options::default() }).await
}

async fn victim(daemon: &Daemon, name: &str) -> Result<Sandbox> {
    let limits = LimitsRequest { memory: Some(512 << 20), ..LimitsRequest::default() };
    let (name, template) = (Some(name.to_owned()), Some("base".to_owned()));
    // A sandbox that falls asleep while others are made is not asked for anything.
    let idle = Some(IdleRequest { after: Some(Span::NEVER), ..IdleRequest::default() });
    daemon.sandbox_with(CreateSandbox { name, template, limits: Some(limits), idle, ..CreateSandbox::default() }).await
}

/// The last line of a traceback of Python's, once it is written.
fn end_of_traceback(log: &str) -> Option<&str> {
    let last = log.lines().last().filter(|_| log.starts_with("Traceback"))?;
    (!last.starts_with([' ', 'T'])).then_some(last)
}

/// Makes a sandbox in which root has taken the guest's place.
///
/// Threads of the guest come and go while it is stopped. A sandbox in which that went wrong is replaced.
async fn lying_sandbox(daemon: &Daemon, name: &str, lie: &str) -> Result<Sandbox> {
    for _ in 0..3 {
        let sandbox = victim(daemon, name).await?;
        match take_guest(&sandbox, lie).await {
            Ok(()) => return Ok(sandbox),
            Err(error) => eprintln!("{name} is replaced: {error:#}"),
        }
        sandbox.delete().await?;
    }
    anyhow::bail!("no guest could be taken")
}

/// Has root inside take the guest's place.
async fn take_guest(sandbox: &Sandbox, lie: &str) -> Result<()> {
    sandbox.write("/liar.py", LIAR).await?;
    let shell = Some(format!("exec setsid python3 /liar.py {lie} </dev/null >/liar.log 2>&1"));
    let start = StartExec { shell, user: Some("root".to_owned()), ..StartExec::default() };
    sandbox.client().start_exec(sandbox.name(), &start).await?;
    let deadline = Instant::now() + TAKING;
    while Instant::now() < deadline {
        // The guest that was stopped answers nothing, and the one in its place says this. A call that reached the first one in the
        // middle of its end is given up, so that the next goes by another connection.
        match tokio::time::timeout(Duration::from_secs(5), sandbox.client().stat_file(sandbox.name(), "/liar")).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) if error.code() == Some(ErrorCode::PathNotFound) => {}
            Ok(Err(error)) => eprintln!("while the guest is taken: {error}"),
            Err(_) => eprintln!("while the guest is taken: no answer"),
        }
        if let Ok(log) = tokio::time::timeout(Duration::from_secs(1), sandbox.read("/liar.log")).await
            && let Ok(log) = log
            && let Some(reason) = end_of_traceback(&String::from_utf8_lossy(&log))
        {
            anyhow::bail!("the guest was not taken: {reason}");
        }
    }
    anyhow::bail!("nothing took the guest's place")
}

/// The middle of the times that a command takes in a sandbox.
async fn latency(sandbox: &Sandbox) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..15 {
        let began = Instant::now();
        sandbox.sh_ok("true").await?;
        times.push(began.elapsed());
    }
    times.sort();
    times.get(times.len() / 2).copied().context("no time was measured")
}

/// Reads a listing as a client does that keeps nothing of it; returns its end.
async fn end_of_listing(daemon: &Daemon, name: &str) -> Result<String> {
    let socket = daemon.socket();
    let line = format!(
        "curl -sS --unix-socket '{}' 'http://x/v1/sandboxes/{name}/files/list?path=/' | tail -c 300",
        socket.display()
    );
    let output = Command::new("sh").args(["-c", &line]).stderr(Stdio::inherit()).kill_on_drop(true).output();
    let output = tokio::time::timeout(2 * HANGS, output).await.context("the listing did not end")??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Asks for everything that has no end.
async fn endless_answers(daemon: &Daemon, sandbox: &Sandbox) -> Result<()> {
    let (client, name) = (sandbox.client(), sandbox.name());
    let end = end_of_listing(daemon, name).await?;
    ensure!(end.contains(r#""error":{"code":"guest_reply_too_large""#), "the listing ends: {end}");
    let refused = client.processes(name).await.err().context("processes without an end")?;
    ensure!(refused.code() == Some(ErrorCode::GuestReplyTooLarge), "{refused}");
    let refused = client.list_execs(name).await.err().context("execs without an end")?;
    ensure!(refused.code() == Some(ErrorCode::GuestReplyTooLarge), "{refused}");
    Ok(())
}

async fn endless_replies_end_with_an_error(engine: EngineKind) -> Result<()> {
    let daemon = daemon_on(engine).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let sandbox = lying_sandbox(&daemon, "box", "endless").await?;
    let quiet = latency(&neighbour).await?;
    let before = resident_memory(daemon.pid()?)?;
    reset_peak_memory(daemon.pid()?)?;
    let attack = endless_answers(&daemon, &sandbox);
    let watch = async {
        let mut slowest = Duration::ZERO;
        loop {
            let now = latency(&neighbour).await?;
            if now > slowest {
                slowest = now;
                eprintln!("a command of the neighbour takes {slowest:?}, {quiet:?} when it is quiet");
            }
            ensure!(slowest < Duration::from_secs(1), "the neighbour waits {slowest:?}");
        }
    };
    tokio::select! {
        done = attack => done?,
        failed = watch => return failed,
    }
    let peak = peak_memory(daemon.pid()?)?;
    eprintln!("the daemon had {} MiB and {} MiB at most", before >> 20, peak >> 20);
    ensure!(peak < before + GROWTH, "the daemon grew from {} MiB to {} MiB", before >> 20, peak >> 20);
    sandbox.delete().await?;
    neighbour.answers().await
}

#[tokio::test]
async fn endless_replies_end_with_an_error_on_native() -> Result<()> {
    endless_replies_end_with_an_error(EngineKind::Native).await
}

#[tokio::test]
async fn endless_replies_end_with_an_error_on_gvisor() -> Result<()> {
    endless_replies_end_with_an_error(EngineKind::Gvisor).await
}

/// One of the calls that reach a guest.
async fn call(sandbox: &Sandbox, which: u64) -> Result<(), ClientError> {
    let (client, name) = (sandbox.client(), sandbox.name());
    let shell = |line: &str| StartExec { shell: Some(line.to_owned()), ..StartExec::default() };
    match which {
        0 => client.run_exec(name, &shell("true")).await.map(drop),
        1 => client.start_exec(name, &shell("true")).await.map(drop),
        2 => client.list_execs(name).await.map(drop),
        3 => client.exec(name, EXEC).await.map(drop),
        4 => client.wait_exec(name, EXEC).await.map(drop),
        5 => client.signal_exec(name, EXEC, "TERM").await,
        6 => client.write_stdin(name, EXEC, Upload::bytes(b"in".to_vec()), true).await,
        7 => client.list_files(name, "/").await.map(drop),
        8 => client.stat_file(name, "/etc").await.map(drop),
        9 => drain(client.read_file(name, "/etc/hosts").await?).await,
        10 => drain(client.read_archive(name, "/etc").await?).await,
        11 => {
            let data = Upload::bytes(vec![7; 300_000]);
            client.write_file(name, "/a", data, &WriteOptions::default()).await.map(drop)
        }
        12 => client.remove_file(name, "/a", true).await,
        13 => {
            client.make_folder(name, &MakeFolder { path: "/a".to_owned(), mode: None, parents: false }).await.map(drop)
        }
        14 => client.move_file(name, "/a", "/b").await.map(drop),
        15 => client.processes(name).await.map(drop),
        16 => client.signal_process(name, 2, "TERM").await,
        17 => client.ports(name).await.map(drop),
        18 => client.list_services(name).await.map(drop),
        19 => client.why(name).await.map(drop),
        20 => {
            let mut session = client.attach_exec(name, EXEC, Offsets::default()).await?;
            let mut frames = 0;
            while session.next().await?.is_some() {
                frames += 1;
                if frames > 100 {
                    break;
                }
            }
            Ok(())
        }
        _ => {
            let mut changes = client.watch_files(name, "/", false).await?;
            let next = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
            next.map_or(Ok(()), |next| next.map(drop))
        }
    }
}

const CALLS: u64 = 22;

async fn drain(mut download: roost_client::Download) -> Result<(), ClientError> {
    let mut pieces = 0;
    while let Some(piece) = download.chunk().await? {
        drop(piece);
        pieces += 1;
        if pieces > 100 {
            break;
        }
    }
    Ok(())
}

#[tokio::test]
async fn fuzzed_replies_end_every_call_and_leave_the_daemon_small() -> Result<()> {
    let daemon = daemon_on(EngineKind::Native).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let seed = variable("ROOST_FUZZ_SEED").unwrap_or(18);
    let sandbox = lying_sandbox(&daemon, "box", &format!("fuzz {seed}")).await?;
    let time = Duration::from_secs(variable("ROOST_FUZZ_SECONDS").unwrap_or(6));
    let (began, before) = (Instant::now(), resident_memory(daemon.pid()?)?);
    let (mut made, mut refused, mut highest) = (0, 0, before);
    while began.elapsed() < time {
        // Several at once, as the clients of a real daemon ask.
        let calls = (0..4).map(|ahead| {
            let which = (made + ahead) % CALLS;
            let sandbox = &sandbox;
            async move {
                let ended = tokio::time::timeout(HANGS, call(sandbox, which)).await;
                let ended = ended.with_context(|| format!("call {which} hangs"))?;
                if let Err(error) = &ended {
                    ensure!(error.code() != Some(ErrorCode::Internal), "call {which}: {error}");
                }
                Ok(u64::from(ended.is_err()))
            }
        });
        for ended in futures_util::future::join_all(calls).await {
            refused += ended?;
        }
        made += 4;
        if made % 88 == 0 {
            highest = highest.max(resident_memory(daemon.pid()?)?);
            eprintln!("{:?}: {made} calls, {refused} with an error, {} MiB", began.elapsed(), highest >> 20);
            neighbour.answers().await?;
        }
    }
    let after = resident_memory(daemon.pid()?)?;
    eprintln!("seed {seed}: {made} calls, {refused} with an error; {} MiB, then {} MiB", before >> 20, after >> 20);
    ensure!(highest.max(after) < before + GROWTH, "the daemon grew from {} MiB to {} MiB", before >> 20, highest >> 20);
    ensure!(!daemon.log_tail().contains("panicked"), "{}", daemon.log_tail());
    sandbox.delete().await?;
    neighbour.answers().await
}

#[tokio::test]
async fn twenty_lying_guests_leave_the_daemon_small() -> Result<()> {
    let daemon = daemon_on(EngineKind::Native).await?;
    let neighbour = daemon.sandbox("neighbour").await?;
    let mut sandboxes = Vec::new();
    for number in 0..20 {
        let sandbox = lying_sandbox(&daemon, &format!("box-{number}"), "endless").await?;
        sandboxes.push(sandbox);
    }
    reset_peak_memory(daemon.pid()?)?;
    let calls = sandboxes.iter().map(async |sandbox| {
        let (client, name) = (sandbox.client(), sandbox.name());
        // The room for the replies of all may be taken by the others.
        let expected = [Some(ErrorCode::GuestReplyTooLarge), Some(ErrorCode::RateLimited)];
        let (processes, execs) = tokio::join!(client.processes(name), client.list_execs(name));
        let refusals = [("processes", processes.err()), ("execs", execs.err())];
        for (what, refusal) in refusals {
            let refusal = refusal.with_context(|| format!("{name}: {what} without an end"))?;
            ensure!(expected.contains(&refusal.code()), "{name}: {what}: {refusal:?}");
        }
        Ok(())
    });
    let attack = async {
        for ended in futures_util::future::join_all(calls).await {
            ended?;
        }
        // Readers that stay for twenty seconds.
        let socket = daemon.socket();
        let readers = (0..20).map(|number| {
            let url = format!("http://x/v1/sandboxes/box-{number}/files/list?path=/");
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--max-time", "20", "-o", "/dev/null", "--unix-socket"]).arg(&socket).arg(url);
            curl.stderr(Stdio::null()).kill_on_drop(true);
            async move { curl.status().await }
        });
        for read in futures_util::future::join_all(readers).await {
            read?;
        }
        Ok::<_, anyhow::Error>(())
    };
    let watch = async {
        loop {
            neighbour.answers().await?;
            let peak = peak_memory(daemon.pid()?)?;
            ensure!(peak < MOST, "the daemon has {} MiB", peak >> 20);
        }
    };
    tokio::select! {
        done = attack => done?,
        failed = watch => return failed,
    }
    eprintln!("the daemon had {} MiB at most", peak_memory(daemon.pid()?)? >> 20);
    for sandbox in sandboxes {
        sandbox.delete().await?;
    }
    neighbour.answers().await
}
