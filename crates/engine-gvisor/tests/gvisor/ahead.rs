//! Sandboxes in what was made ahead.

use std::time::Duration;

use roost_engine::{Engine, Running, StartSpec};
use roost_engine_gvisor::{GvisorConfig, GvisorEngine};
use roost_sys::process::cpu_time;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::Bench;

/// Says of a restore that all of runsc was started for it.
const FROM_NOTHING: &str = "born";

/// A sandbox with something in its memory and on its disk, saved and ended; and what it was started from.
async fn asleep(bench: &Bench, image: &std::path::Path) -> StartSpec {
    let spec = bench.spec();
    bench.engine.start(spec.clone()).await.unwrap();
    let (code, said) = bench.shell(&spec.id, "echo memory > /tmp/file; echo disk > /root/file").await;
    assert_eq!((code, said.as_str()), (0, ""));
    bench.engine.freeze(&spec.id).await.unwrap();
    bench.engine.dump(&spec.id, image, u64::MAX).await.unwrap();
    bench.engine.kill(&spec.id).await.unwrap();
    spec
}

fn started_from_nothing(running: &Running) -> bool {
    running.parts_us.iter().any(|(part, _)| *part == FROM_NOTHING)
}

async fn remembers(bench: &Bench, spec: &StartSpec) {
    let (code, said) = bench.shell(&spec.id, "cat /tmp/file /root/file; hostname; echo more > /root/more").await;
    assert_eq!((code, said.as_str()), (0, "memory\ndisk\nbox\n"));
    // On its own disk, not on that of whoever was here before.
    assert_eq!(std::fs::read_to_string(bench.disk(&spec.id).join("root/root/more")).unwrap(), "more\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_ahead_becomes_the_sandbox() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    let spec = asleep(&bench, image.path()).await;
    bench.engine.ready().await;
    let running = bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    assert!(!started_from_nothing(&running), "{running:?}");
    remembers(&bench, &spec).await;

    // Saved again, by the same calls as any other, and with nothing made ahead for it.
    let second = tempfile::tempdir().unwrap();
    bench.engine.freeze(&spec.id).await.unwrap();
    bench.engine.dump(&spec.id, second.path(), u64::MAX).await.unwrap();
    bench.engine.kill(&spec.id).await.unwrap();
    let other = GvisorEngine::open(GvisorConfig { reserve: 0, ..bench.config.clone() }).await.unwrap();
    let running = other.restore(spec.clone(), second.path()).await.unwrap();
    assert!(started_from_nothing(&running), "{running:?}");
    remembers(&bench, &spec).await;

    let exited = bench.engine.exited(&spec.id).await.unwrap();
    bench.engine.kill(&spec.id).await.unwrap();
    exited.await;
    bench.finish().await;
}

/// A new one in what was made before it had a name is like any other, and can do no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_sandbox_takes_what_was_made_ahead() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    let other = GvisorEngine::open(GvisorConfig { reserve: 0, ..bench.config.clone() }).await.unwrap();
    let ask = "hostname; cat /tmp/file; grep -E 'Cap|NoNew' /proc/self/status /proc/1/status; ls -l /proc/1/fd | wc -l; \
               df /tmp | tail -n 1; hostname other 2>/dev/null || echo no; ulimit -d";
    let mut said = Vec::new();
    for (engine, from_nothing) in [(&other, true), (&bench.engine, false)] {
        bench.engine.ready().await;
        let mut spec = bench.spec();
        // What it is promised unless somebody asks for another size.
        spec.limits.memory = roost_model::Limits::default().memory;
        let running = engine.start(spec.clone()).await.unwrap();
        assert_eq!(started_from_nothing(&running), from_nothing, "{running:?}");
        said.push(bench.shell(&spec.id, ask).await);
        // It sleeps and wakes like any other, whoever wakes it.
        let folder = image.path().join(spec.id.as_str());
        std::fs::create_dir(&folder).unwrap();
        bench.shell(&spec.id, "echo memory > /tmp/file; echo disk > /root/file").await;
        engine.freeze(&spec.id).await.unwrap();
        engine.dump(&spec.id, &folder, u64::MAX).await.unwrap();
        engine.kill(&spec.id).await.unwrap();
        other.restore(spec.clone(), &folder).await.unwrap();
        remembers(&bench, &spec).await;
        other.kill(&spec.id).await.unwrap();
    }
    assert_eq!(said[0], said[1]);
    assert!(said[0].0 == 0 && said[0].1.starts_with("box\n") && said[0].1.contains("\nno\n"), "{said:?}");
    bench.finish().await;
}

/// A sentry is never idle by itself.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_uses_no_cpu() {
    let bench = Bench::new().await;
    bench.engine.ready().await;
    let used = || -> Vec<_> { bench.in_reserve().into_iter().map(|pid| cpu_time(pid).unwrap()).collect() };
    let before = used();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let after = used();
    let sum = |times: &[Duration]| times.iter().sum::<Duration>();
    assert!(before.len() > 2 && sum(&after) - sum(&before) < Duration::from_millis(5), "{before:?}, then {after:?}");
    bench.finish().await;
}

/// Whatever happened to what waits, a sandbox wakes.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_what_waits_keeps_nobody_asleep() {
    for part in ["runsc-sandbox", "runsc-gofer", "roost-keep"] {
        let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
        let spec = asleep(&bench, image.path()).await;
        bench.engine.ready().await;
        let pid = bench.in_reserve().into_iter().find(|pid| {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').next().is_some_and(|program| program.contains(part))
        });
        let pid = Pid::from_raw(i32::try_from(pid.expect(part)).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        bench.engine.restore(spec.clone(), image.path()).await.unwrap();
        remembers(&bench, &spec).await;
        bench.engine.kill(&spec.id).await.unwrap();
        bench.finish().await;
    }
}

/// The next daemon knows nothing of what waited for this one.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_ends_with_the_daemon() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    asleep(&bench, image.path()).await;
    bench.engine.ready().await;
    assert!(bench.engine.sweep(&[]).await.unwrap().is_empty(), "what waits is no leftover of its own daemon");
    let next = GvisorEngine::open(bench.config.clone()).await.unwrap();
    assert_eq!(next.sweep(&[]).await.unwrap().len(), 1);
    assert!(bench.in_reserve().is_empty());
    bench.finish().await;
}
