//! Sandboxes on gVisor: chosen, used, asleep, forked, and found again by the next daemon.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Workload, no_orphans};
use roost_model::{CreateSandbox, EngineKind, Fork, Level};

async fn on_gvisor(daemon: &Daemon, template: &str) -> Result<Sandbox> {
    let wanted = CreateSandbox {
        name: Some("box".to_owned()),
        template: Some(template.to_owned()),
        engine: Some("gvisor".to_owned()),
        ..CreateSandbox::default()
    };
    daemon.sandbox_with(wanted).await
}

#[tokio::test]
async fn its_kernel_is_gvisors_and_its_files_stay() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = on_gvisor(&daemon, "mini").await?;
    ensure!(daemon.client().sandbox("box").await?.engine == EngineKind::Gvisor);
    let kernel = sandbox.root_ok("dmesg; uname -r").await?;
    let hosts = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(kernel.contains("Starting gVisor") && !kernel.contains(hosts.trim()), "{kernel}");
    sandbox.write("/root/note", "kept\n").await?;
    assert_eq!(sandbox.sh_ok("cat /root/note; hostname").await?, "kept\nbox");

    sandbox.suspend(Level::Files).await?;
    sandbox.wake().await?;
    assert_eq!(sandbox.sh_ok("cat /root/note; hostname").await?, "kept\nbox");
    sandbox.delete().await?;
    no_orphans(&daemon).await
}

#[tokio::test]
async fn what_runs_goes_on_after_each_sleep() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = on_gvisor(&daemon, "mini").await?;
    sandbox.root_ok("mkfifo /tmp/ask /tmp/answer").await?;
    // Only its memory knows the number that it counts.
    sandbox.spawn("exec 3<>/tmp/ask 4<>/tmp/answer; n=0; while read x <&3; do n=$((n+1)); echo $n >&4; done").await?;
    let mut expected = 0;
    for level in [Level::Ram, Level::Disk, Level::Disk, Level::Ram] {
        expected += 1;
        assert_eq!(sandbox.sh_ok("echo > /tmp/ask; head -n 1 /tmp/answer").await?, expected.to_string());
        let slept = sandbox.suspend(level).await?;
        let woken = sandbox.wake().await?;
        eprintln!("{level}: suspend {:.1} ms, wake {:.1} ms", slept.total_ms, woken.total_ms);
    }
    expected += 1;
    assert_eq!(sandbox.sh_ok("echo > /tmp/ask; head -n 1 /tmp/answer").await?, expected.to_string());
    no_orphans(&daemon).await
}

#[tokio::test]
async fn forks_answer_and_go_ways_of_their_own() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = on_gvisor(&daemon, "mini").await?;
    sandbox.root_ok("echo common > /root/file; echo memory > /dev/shm/file").await?;
    let children = sandbox.fork(&Fork { count: Some(3), ..Fork::default() }).await?;
    for (child, receipt) in &children {
        eprintln!("{}: {:.0} ms", child.name(), receipt.total_ms);
        let seen = child.sh_ok("cat /root/file /dev/shm/file; hostname").await?;
        assert_eq!(seen, format!("common\nmemory\n{}", child.name()));
        child.root_ok("hostname > /root/file").await?;
    }
    for (child, _) in &children {
        assert_eq!(child.sh_ok("cat /root/file").await?, child.name());
    }
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "common");
    Ok(())
}

#[tokio::test]
async fn the_next_daemon_takes_it_over() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = on_gvisor(&daemon, "mini").await?;
    sandbox.root_ok("echo before > /dev/shm/mark").await?;
    daemon.crash_and_restart().await?;
    assert_eq!(sandbox.sh_ok("cat /dev/shm/mark").await?, "before");
    sandbox.suspend(Level::Disk).await?;
    daemon.crash_and_restart().await?;
    assert_eq!(sandbox.sh_ok("cat /dev/shm/mark").await?, "before");
    no_orphans(&daemon).await
}

#[tokio::test]
async fn it_waits_in_a_pool() -> Result<()> {
    let daemon = Daemon::start().await?;
    daemon.roost_ok(&["pool", "set", "mini", "--min", "1", "--max", "1", "--engine", "gvisor"]).await?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let ready = loop {
        let pools = daemon.client().list_pools().await?;
        let pool = pools.into_iter().find(|pool| pool.engine == EngineKind::Gvisor).context("no pool")?;
        if pool.ready > 0 {
            break pool.ready;
        }
        ensure!(std::time::Instant::now() < deadline, "nothing waits: {pool:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(ready, 1);
    let began = std::time::Instant::now();
    let sandbox = on_gvisor(&daemon, "mini").await?;
    assert_eq!(sandbox.sh_ok("hostname").await?, "box");
    eprintln!("taken from the pool, with a first answer: {:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_workload_goes_on_after_each_sleep_on_disk() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = on_gvisor(&daemon, "base").await?;
    let mut workload = Workload::start_with_nameless_in_memory(&sandbox).await?;
    let kept = workload.check(&sandbox).await?;
    let rounds = if std::env::var_os("ROOST_E2E_FULL").is_some() { 20 } else { 3 };
    for round in 0..rounds {
        let slept = sandbox.suspend(Level::Disk).await.with_context(|| format!("round {round}"))?;
        let woken = sandbox.wake().await.with_context(|| format!("round {round}"))?;
        eprintln!("round {round}: suspend {:.0} ms, wake {:.0} ms", slept.total_ms, woken.total_ms);
        assert_eq!(workload.check(&sandbox).await.with_context(|| format!("round {round}"))?, kept);
    }
    Ok(())
}
