//! The memory limit after saves and restores, which raise it for the engine.

use std::time::Duration;

use roost_engine::Engine;

use crate::support::Bench;

const MIB: u64 = 1 << 20;
/// The limit of the bench's sandboxes, with the engine's own memory.
const LIMIT: u64 = (256 + 96) * MIB;
/// Holds 600 MiB, and says so.
const TAKE: &str = "
    for number in 1 2 3 4 5 6; do { dd if=/dev/zero bs=100M count=1 2>/dev/null | sleep 600; } & done
    sleep 4; echo taken";

/// What a process takes while the limit is raised must not stay allowed.
#[tokio::test(flavor = "multi_thread")]
async fn sandbox_that_took_more_than_its_limit_ends_when_the_limit_is_put_back() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let exited = bench.engine.exited(&id).await.unwrap();
    let group = bench.group(&id);
    group.widen_memory(|limit| limit * 4).unwrap();
    let (_, output) = bench.shell(&id, TAKE).await;
    assert_eq!(output, "taken\n");
    assert!(group.usage().unwrap().memory > LIMIT + 100 * MIB);

    bench.engine.thaw(&id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), exited).await.expect("it keeps what it took");
    assert!(bench.engine.usage(&id).await.unwrap().oom_kills > 0);
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// A sandbox that needs what it has goes on, with its own limit in force at once.
#[tokio::test(flavor = "multi_thread")]
async fn limit_is_in_force_after_a_restore_and_after_a_save() {
    let bench = Bench::new().await;
    let spec = bench.spec();
    let group = bench.group(&spec.id);
    let image = tempfile::tempdir().unwrap();
    bench.engine.start(spec.clone()).await.unwrap();
    bench.engine.freeze(&spec.id).await.unwrap();
    bench.engine.dump(&spec.id, image.path(), u64::MAX).await.unwrap();
    assert_eq!(group.noted_memory().unwrap(), None);
    bench.engine.thaw(&spec.id).await.unwrap();
    bench.engine.kill(&spec.id).await.unwrap();
    bench.engine.restore(spec.clone(), image.path()).await.unwrap();
    assert_eq!(group.noted_memory().unwrap(), None);
    assert_eq!(bench.shell(&spec.id, "echo well").await, (0, "well\n".to_owned()));
    bench.engine.kill(&spec.id).await.unwrap();
    bench.finish().await;
}

/// A thaw while the task of an earlier thaw is about to end must not leave the limit raised.
#[tokio::test(flavor = "multi_thread")]
async fn limit_is_put_back_after_any_thaw() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let group = bench.group(&id);
    for _ in 0..50 {
        group.widen_memory(|limit| limit * 4).unwrap();
        bench.engine.thaw(&id).await.unwrap();
        bench.engine.freeze(&id).await.unwrap();
        bench.engine.thaw(&id).await.unwrap();
        let back = async {
            while group.noted_memory().unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(5), back).await.expect("the limit stays raised");
    }
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}
