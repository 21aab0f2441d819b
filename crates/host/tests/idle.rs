//! Sandboxes that sleep by themselves, on an engine that only pretends.
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod bench;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bench::{named, run, wait_for};
use roost_engine::{Counters, Engine, FakeEngine, Presence};
use roost_host::{Handle, Host, MemoryPolicy, MemoryReading};
use roost_model::{
    CreateSandbox, ErrorCode, EventKind, IdleRequest, LedgerKind, Level, PatchSandbox, SandboxView, Signal, Span, State,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A sandbox that sleeps soon. Nothing answers for its connections here, so they are not asked for.
fn sleepy(name: &str, after_ms: u64) -> CreateSandbox {
    let idle = IdleRequest {
        after: Some(Duration::from_millis(after_ms).into()),
        ignore: Some(vec![Signal::Outbound]),
        ..IdleRequest::default()
    };
    CreateSandbox { idle: Some(idle), ..named(name) }
}

async fn born(host: &Host, wanted: CreateSandbox) -> (Handle, SandboxView) {
    let (view, _) = host.create(wanted, None).await.unwrap();
    (host.find(view.id.as_str()).unwrap(), view)
}

/// Waits until a sandbox is so, and fails if it never is.
async fn becomes(handle: &Handle, what: &str, so: impl Fn(&SandboxView) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so(&handle.view()) {
        assert!(Instant::now() < deadline, "it never came to be {what}: {:?}", handle.view());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn sleeps_at(level: Level) -> impl Fn(&SandboxView) -> bool {
    move |view| (view.state, view.level) == (State::Suspended, Some(level))
}

#[test]
fn a_quiet_sandbox_sleeps_and_says_why() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (handle, view) = born(&host, sleepy("quiet", 200)).await;
        let before = handle.why().await.unwrap();
        assert!(before.sleeps_at.is_some() && before.keeps_awake.is_empty(), "{before:?}");
        becomes(&handle, "asleep", sleeps_at(Level::Ram)).await;
        assert_eq!(engine.inspect(&view.id).await.unwrap(), Presence::Frozen);
        let why = handle.why().await.unwrap();
        assert!(why.reason.as_deref().unwrap().contains("without activity"), "{why:?}");
        assert!(why.deepens_at.is_some());
        let last = why.ledger.last().unwrap();
        assert_eq!((last.kind, last.level), (LedgerKind::Slept, Some(Level::Ram)));

        // Whatever reaches for it wakes it, and its cause is written down.
        let busy = handle.busy(Signal::Connections, "port 3000");
        handle.awake(&busy).await.unwrap();
        assert_eq!(engine.inspect(&view.id).await.unwrap(), Presence::Running);
        let why = handle.why().await.unwrap();
        assert_eq!(why.reason.as_deref(), Some("woken by port 3000"));
        assert_eq!(why.keeps_awake[0].what, "port 3000");
        assert_eq!(why.ledger.last().unwrap().cause.as_deref(), Some("woken by port 3000"));
        drop(busy);
        becomes(&handle, "asleep again", sleeps_at(Level::Ram)).await;

        let usage = handle.usage().await.unwrap();
        assert_eq!((usage.spent.sleeps, usage.spent.wakes), (2, 1));
        assert!(usage.spent.active_ms >= 400 && usage.spent.ram_ms > 0, "{usage:?}");
        host.leave().await;

        // What was spent outlives the daemon, and so does the sleep.
        let host = bench.host(&engine).await;
        let again = host.find("quiet").unwrap().usage().await.unwrap();
        assert!(again.spent.active_ms >= usage.spent.active_ms && again.spent.sleeps == 2, "{again:?}");
        assert_eq!(host.usage().await.unwrap().sandboxes.len(), 1);
    });
}

#[test]
fn what_counts_keeps_it_awake_until_it_ends() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (handle, view) = born(&host, sleepy("worker", 800)).await;
        // A client first, longer than the quiet time.
        let busy = handle.busy(Signal::Execs, "exec \"npm test\" waited for");
        tokio::time::sleep(Duration::from_millis(1600)).await;
        assert_eq!(handle.view().state, State::Active);
        assert_eq!(handle.why().await.unwrap().keeps_awake[0].signal, Signal::Execs);
        drop(busy);
        // Then work that only its counters tell of.
        let until = Instant::now() + Duration::from_millis(2000);
        let mut seen = false;
        while Instant::now() < until {
            engine.use_up(&view.id, Counters { cpu_us: 50_000, disk: 0, network: 0 });
            tokio::time::sleep(Duration::from_millis(10)).await;
            assert_eq!(handle.view().state, State::Active);
            seen |= handle.why().await.unwrap().keeps_awake.iter().any(|keeper| keeper.signal == Signal::Cpu);
        }
        assert!(seen, "its work is named");
        becomes(&handle, "asleep", sleeps_at(Level::Ram)).await;
    });
}

#[test]
fn signals_can_be_ignored_and_policies_changed() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let never = IdleRequest { after: Some(Span::NEVER), ..IdleRequest::default() };
        let (handle, _) = born(&host, CreateSandbox { idle: Some(never), ..named("box") }).await;
        let watcher = handle.busy(Signal::Connections, "watch /root");
        let why = handle.why().await.unwrap();
        assert!(why.never.is_some() && why.sleeps_at.is_none());
        let ignore = vec![Signal::Connections, Signal::Cpu, Signal::Disk, Signal::Network, Signal::Outbound];
        let idle = IdleRequest {
            after: Some(Duration::from_millis(100).into()),
            ignore: Some(ignore),
            ..IdleRequest::default()
        };
        let patched = handle.patch(PatchSandbox { idle: Some(idle), ..PatchSandbox::default() }).await.unwrap();
        assert_eq!(patched.idle.ignore.len(), 5);
        assert_eq!(patched.idle.to, Level::Ram);
        becomes(&handle, "asleep although somebody watches", sleeps_at(Level::Ram)).await;
        drop(watcher);
    });
}

#[test]
fn what_sleeps_long_goes_to_disk_and_what_cannot_be_saved_stays() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let mut wanted = sleepy("deep", 50);
        wanted.idle.as_mut().unwrap().deepen_after = Some(Duration::from_millis(100).into());
        engine.refuse_next_dump("it holds a device");
        let (handle, view) = born(&host, wanted).await;
        let deadline = Instant::now() + PATIENCE;
        while handle.why().await.unwrap().not_saved.is_none() {
            assert!(Instant::now() < deadline, "its memory was never tried to be saved");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        becomes(&handle, "in memory", sleeps_at(Level::Ram)).await;
        let why = handle.why().await.unwrap();
        assert!(why.not_saved.as_deref().unwrap().contains("it holds a device"), "{why:?}");
        let hour = Duration::try_from(why.deepens_at.unwrap().duration_since(why.state_since)).unwrap();
        assert!(hour > Duration::from_secs(3500), "it is left alone for an hour, not {hour:?}");
        // Something has changed since: it was awake.
        handle.wake().await.unwrap();
        becomes(&handle, "on disk", sleeps_at(Level::Disk)).await;
        assert_eq!(engine.inspect(&view.id).await.unwrap(), Presence::Absent);
        assert_eq!(handle.why().await.unwrap().not_saved, None);
    });
}

#[test]
fn one_that_sleeps_on_disk_at_once_falls_back_to_memory() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let mut wanted = sleepy("deep", 50);
        wanted.idle.as_mut().unwrap().to = Some(Level::Disk);
        engine.refuse_next_dump("it holds a device");
        let (handle, _) = born(&host, wanted).await;
        becomes(&handle, "in memory", sleeps_at(Level::Ram)).await;
        let why = handle.why().await.unwrap();
        assert!(why.not_saved.unwrap().contains("it holds a device"));
        handle.wake().await.unwrap();
        becomes(&handle, "on disk", sleeps_at(Level::Disk)).await;
    });
}

#[test]
fn an_order_to_sleep_does_not_strand_a_request() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (handle, view) = born(&host, named("box")).await;
        let request = handle.request("file read /etc/passwd");
        handle.awake(&request).await.unwrap();
        handle.suspend(Level::Ram).await.unwrap();
        becomes(&handle, "awake for the request", |view| view.state == State::Active).await;
        assert_eq!(engine.inspect(&view.id).await.unwrap(), Presence::Running);
        assert_eq!(handle.why().await.unwrap().reason.as_deref(), Some("woken by file read /etc/passwd"));
        drop(request);
        // A client that is only there does not stand in the way of an order.
        let client = handle.busy(Signal::Connections, "watch /");
        handle.suspend(Level::Ram).await.unwrap();
        assert_eq!(handle.view().state, State::Suspended);
        drop(client);
    });
}

/// Requests and sleeps at random: every request finds it awake for as long as it lasts.
#[test]
fn requests_that_race_with_sleeps_all_find_it_awake() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let (handle, view) = born(&host, sleepy("racer", 50)).await;
        let seed = std::env::var("ROOST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5eed_u64);
        eprintln!("ROOST_SEED={seed}");
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..2u64 {
            let (handle, engine, id) = (handle.clone(), engine.clone(), view.id.clone());
            clients.spawn(async move {
                let mut random = seed.wrapping_add(client).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..60 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Around the time at which it falls asleep.
                    tokio::time::sleep(Duration::from_micros(40_000 + (random >> 33) % 160_000)).await;
                    let busy = handle.busy(Signal::Connections, "request");
                    handle.awake(&busy).await.unwrap();
                    for _ in 0..3 {
                        assert_eq!(engine.inspect(&id).await.unwrap(), Presence::Running);
                        tokio::task::yield_now().await;
                    }
                    drop(busy);
                }
            });
        }
        clients.join_all().await;
        let usage = handle.usage().await.unwrap();
        assert!(usage.spent.sleeps > 0, "it slept in between: {usage:?}");
    });
}

fn reading(available: &Arc<AtomicU64>) -> roost_host::ReadMemory {
    let available = available.clone();
    Arc::new(move || Some(MemoryReading { available: available.load(Ordering::Relaxed), stalled: 0.0 }))
}

#[test]
fn short_memory_deepens_the_longest_asleep_and_refuses_what_is_new() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let mut handles = Vec::new();
        for name in ["first", "second"] {
            let (handle, view) = born(&host, named(name)).await;
            handle.suspend(Level::Ram).await.unwrap();
            handles.push((handle, view));
        }
        let (awake, _) = born(&host, named("awake")).await;
        let available = Arc::new(AtomicU64::new(60 << 20));
        let policy = MemoryPolicy { low: 100 << 20, critical: 50 << 20, max_active: None };
        host.guard_memory(policy, reading(&available));
        wait_for(&host, &handles[0].1, EventKind::Suspended).await;
        becomes(&handles[0].0, "on disk", sleeps_at(Level::Disk)).await;
        becomes(&handles[1].0, "on disk too", sleeps_at(Level::Disk)).await;
        let (first, second) = (handles[0].0.view().state_since, handles[1].0.view().state_since);
        assert!(first < second, "the longest asleep goes first");
        let why = handles[0].0.why().await.unwrap();
        assert_eq!(why.reason.as_deref(), Some("the host is short of memory"));
        assert_eq!(awake.view().state, State::Active);

        available.store(40 << 20, Ordering::Relaxed);
        for refused in [host.create(named("more"), None).await.map(drop), handles[0].0.wake().await.map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.code(), ErrorCode::HostFull);
            assert!(error.hint().is_some() && error.to_string().contains("40 MiB"), "{error}");
        }
        // What is in memory costs nothing more, and what runs goes on.
        awake.suspend(Level::Ram).await.unwrap();
        awake.wake().await.unwrap();
        available.store(1 << 30, Ordering::Relaxed);
        // Nobody is in there to answer, but it was let in.
        assert_ne!(handles[0].0.wake().await.unwrap_err().code(), ErrorCode::HostFull);
        host.create(named("more"), None).await.unwrap();
    });
}

#[test]
fn only_so_many_are_awake_at_the_same_time() {
    run(async |bench, engine| {
        let host = bench.host(&engine).await;
        let policy = MemoryPolicy { low: 0, critical: 0, max_active: Some(2) };
        host.guard_memory(policy, reading(&Arc::new(AtomicU64::new(1 << 40))));
        let (one, _) = born(&host, named("one")).await;
        let (two, _) = born(&host, named("two")).await;
        let refused = host.create(named("three"), None).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::LimitExceeded);
        assert!(refused.hint().unwrap().contains("max_active"), "{refused}");
        one.suspend(Level::Ram).await.unwrap();
        let (three, _) = born(&host, named("three")).await;
        assert_eq!(one.wake().await.unwrap_err().code(), ErrorCode::LimitExceeded);
        assert_eq!(one.view().state, State::Suspended);
        two.delete().await.unwrap();
        one.wake().await.unwrap();
        three.delete().await.unwrap();
        // A start that fails gives its place back.
        engine.fail_next_start("no luck");
        host.create(named("four"), None).await.unwrap_err();
        born(&host, named("five")).await;
    });
}

#[test]
fn a_new_daemon_watches_what_it_finds_awake() {
    run(async |bench, engine: FakeEngine| {
        let host = bench.host(&engine).await;
        born(&host, sleepy("kept", 300)).await;
        host.leave().await;
        let host = bench.host(&engine).await;
        becomes(&host.find("kept").unwrap(), "asleep", sleeps_at(Level::Ram)).await;
    });
}
