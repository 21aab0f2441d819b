//! What is inside of a sandbox.

use roost_engine::{Engine, EngineError};
use roost_model::SandboxId;

use crate::support::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_is_gvisors() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let (_, host) = (0, std::fs::read_to_string("/proc/version").unwrap());
    let (code, seen) = bench.shell(&id, "uname -r; dmesg | head -n 3; cat /proc/version").await;
    assert_eq!(code, 0, "{seen}");
    assert!(seen.contains("Starting gVisor") && !seen.contains(host.trim()), "{seen}");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// What is written to the root is on the sandbox's own disk, owned as it is inside; what does not last is not.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_on_the_disk() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let made = "mkdir /home; echo here > /home/file; chown 1000:1000 /home/file; echo there > /tmp/file; rm /etc/group";
    assert_eq!(bench.shell(&id, made).await, (0, String::new()));
    let upper = bench.disk(&id).join("root");
    let found = std::fs::metadata(upper.join("home/file")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&found), 1000);
    assert!(!upper.join("tmp/file").exists());
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// Whoever is first, runsc that is through or the guest that listens and lets go of its socket, the sandbox is up.
#[tokio::test(flavor = "multi_thread")]
async fn many_start_at_once() {
    let bench = Bench::new().await;
    for _ in 0..3 {
        let started = futures_util::future::join_all((0..6).map(|_| bench.start())).await;
        for id in &started {
            bench.engine.kill(id).await.unwrap();
        }
    }
    bench.finish().await;
}

/// Kills a process of a sandbox from the host.
fn kill(bench: &Bench, id: &SandboxId, part: &str) {
    let pid = bench.host_pids(id).into_iter().find(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(part)
    });
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid.expect(part)).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Whatever was left to do for it when it wakes.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_killed_in_its_sleep_does_not_run() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    bench.engine.freeze(&id).await.unwrap();
    bench.engine.set_hostname(&id, "other").await.unwrap();
    kill(&bench, &id, "runsc-sandbox");
    let woken = bench.engine.thaw(&id).await;
    assert!(matches!(woken, Err(EngineError::NotRunning { .. })), "{woken:?}");
    bench.engine.kill(&id).await.unwrap();

    let id = bench.start().await;
    bench.engine.freeze(&id).await.unwrap();
    kill(&bench, &id, "runsc-sandbox");
    let image = tempfile::tempdir().unwrap();
    let saved = bench.engine.dump(&id, image.path(), u64::MAX).await;
    assert!(matches!(saved, Err(EngineError::NotRunning { .. })), "{saved:?}");
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// A sentry that is killed takes everything with it, and that is noticed.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_sentry_is_the_end() {
    let bench = Bench::new().await;
    for part in ["runsc-sandbox", "runsc-gofer"] {
        let id = bench.start().await;
        let exited = bench.engine.exited(&id).await.unwrap();
        kill(&bench, &id, part);
        tokio::time::timeout(std::time::Duration::from_secs(20), exited).await.expect(part);
        bench.engine.kill(&id).await.unwrap();
    }
    bench.finish().await;
}

/// A deleted file that is still open on the root cannot be saved: said so, and the sandbox goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_saved_is_refused_and_goes_on() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let (code, said) =
        bench.shell(&id, "(exec 3>/root/gone; rm /root/gone; sleep 600) >/dev/null 2>&1 & echo ok").await;
    assert_eq!((code, said.as_str()), (0, "ok\n"));
    // The file is gone once its name is.
    bench.shell(&id, "while [ -e /root/gone ]; do :; done").await;
    bench.engine.freeze(&id).await.unwrap();
    let image = tempfile::tempdir().unwrap();
    let refused = bench.engine.dump(&id, image.path(), u64::MAX).await;
    assert!(matches!(refused, Err(roost_engine::EngineError::NotSaved { .. })), "{refused:?}");
    bench.engine.thaw(&id).await.unwrap();
    assert_eq!(bench.shell(&id, "echo still").await, (0, "still\n".to_owned()));
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}

/// A folder in memory that is full is an error for who writes, and nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_tmp_is_an_error_inside() {
    let bench = Bench::new().await;
    let id = bench.start().await;
    let (code, said) = bench.shell(&id, "dd if=/dev/zero of=/tmp/big bs=1M count=200 2>&1").await;
    assert!(code == 1 && said.contains("No space left"), "{code} {said}");
    assert_eq!(bench.shell(&id, "rm /tmp/big; echo still").await, (0, "still\n".to_owned()));
    bench.engine.kill(&id).await.unwrap();
    bench.finish().await;
}
