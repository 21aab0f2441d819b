//! Pauses that a daemon did not live to see the end of: what it left is a note that says less than has happened.

use std::path::PathBuf;
use std::time::Duration;

use roost_engine::{Engine, Presence};
use roost_model::SandboxId;

use crate::support::Bench;

/// Where it is noted that a sandbox is paused.
fn note(bench: &Bench, id: &SandboxId) -> PathBuf {
    let roots = bench.host_pids(id).into_iter().map(|pid| PathBuf::from(format!("/proc/{pid}/root")));
    roots.map(|root| root.join("hostname")).find(|file| file.is_file()).unwrap().with_file_name("paused")
}

async fn is_well(bench: &Bench, id: &SandboxId) {
    assert!(!note(bench, id).exists());
    assert_eq!(bench.shell(id, "echo well").await, (0, "well\n".into()));
}

/// It was told to go on already, or never to pause.
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_on_already_is_not_told_again() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    // The last is what is there of a note in the moment before it is written.
    for left in ["changes", ""] {
        bench.engine.freeze(&id).await.unwrap();
        std::fs::write(note(&bench, &id), left).unwrap();
        bench.engine.thaw(&id).await.unwrap();
        is_well(&bench, &id).await;
    }
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_still_is_told_to_go_on() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    let id = bench.start().await;
    bench.engine.freeze(&id).await.unwrap();
    bench.engine.dump(&id, image.path(), u64::MAX).await.unwrap();
    std::fs::write(note(&bench, &id), "changes").unwrap();
    bench.engine.thaw(&id).await.unwrap();
    is_well(&bench, &id).await;
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// Whatever was noted before, nothing runs from the moment that is saved until the thaw.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_saved_stands_still() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    let id = bench.start().await;
    let writing = "(while :; do echo; done) >> /root/lines 2>/dev/null & until [ -s /root/lines ]; do :; done";
    assert_eq!(bench.shell(&id, writing).await.0, 0);
    bench.engine.freeze(&id).await.unwrap();
    std::fs::write(note(&bench, &id), "changes").unwrap();
    bench.engine.dump(&id, image.path(), u64::MAX).await.unwrap();

    // As if it were thawed by somebody who does not tell the sentry: time enough to write some more.
    let written = || std::fs::metadata(bench.disk(&id).join("root/root/lines")).unwrap().len();
    let before = written();
    bench.group(&id).thaw().unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(written(), before);
    bench.engine.thaw(&id).await.unwrap();
    is_well(&bench, &id).await;
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// A daemon that dies while it saves leaves no process frozen. Its successor must see all the same that nothing runs inside.
#[tokio::test(flavor = "multi_thread")]
async fn what_stands_still_only_inside_is_frozen() {
    let (bench, image) = (Bench::new().await, tempfile::tempdir().unwrap());
    let id = bench.start().await;
    bench.engine.freeze(&id).await.unwrap();
    bench.engine.dump(&id, image.path(), u64::MAX).await.unwrap();
    bench.group(&id).thaw().unwrap();
    assert_eq!(bench.engine.inspect(&id).await.unwrap(), Presence::Frozen);
    bench.engine.thaw(&id).await.unwrap();
    assert_eq!(bench.engine.inspect(&id).await.unwrap(), Presence::Running);
    is_well(&bench, &id).await;
    bench.engine.kill(&id).await.unwrap();
    assert_eq!(bench.engine.inspect(&id).await.unwrap(), Presence::Absent);
    bench.finish().await;
}
