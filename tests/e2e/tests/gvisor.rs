//! Sandboxes on gVisor: chosen, used, asleep, forked, and found again by the next daemon.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Workload, no_orphans, parts_on_gvisor};
use roost_model::{CreateCheckpoint, CreateSandbox, EngineKind, Fork, Level, Restore, ServiceSpec, ServiceState};

/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u64 = 1 << 21;

fn named(name: &str, engine: &str) -> CreateSandbox {
    CreateSandbox { name: Some(name.to_owned()), engine: Some(engine.to_owned()), ..CreateSandbox::default() }
}

async fn on_gvisor(daemon: &Daemon, template: &str) -> Result<Sandbox> {
    let wanted = CreateSandbox {
        name: Some("box".to_owned()),
        template: Some(template.to_owned()),
        engine: Some("gvisor".to_owned()),
        ..CreateSandbox::default()
    };
    daemon.sandbox_with(wanted).await
}

/// Whatever comes to run in it, the host's kernel answers only the system calls of its list.
fn all_threads_are_filtered(pid: u32) -> Result<()> {
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:")).unwrap_or_default();
        ensure!(mode.trim() == "2", "seccomp is in mode {mode}");
    }
    Ok(())
}

#[tokio::test]
async fn its_kernel_is_gvisors_and_its_files_stay() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = on_gvisor(&daemon, "mini").await?;
    ensure!(daemon.client().sandbox("box").await?.engine == EngineKind::Gvisor);
    let kernel = sandbox.root_ok("dmesg; uname -a; cat /proc/version").await?;
    let hosts = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    ensure!(kernel.contains("Starting gVisor") && !kernel.contains(hosts.trim()), "{kernel}");
    let instance = daemon.instance().await?;
    for part in ["runsc-sandbox", "runsc-gofer"] {
        let pid = *parts_on_gvisor(&instance, sandbox.id(), part)?.first().context(part)?;
        all_threads_are_filtered(pid).with_context(|| format!("{part} may make any system call"))?;
    }
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
    let children = sandbox.fork(&Fork { count: Some(5), ..Fork::default() }).await?;
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
    // Whoever gave it its name had a privilege for it, and must be gone.
    let held = sandbox.sh_ok("cat /proc/1/task/*/status | grep -E '^Cap(Prm|Eff)' | cut -f 2 | sort -u").await?;
    for set in held.lines() {
        ensure!(u64::from_str_radix(set, 16)? & SYS_ADMIN == 0, "a thread of the guest's has {held}");
    }
    ensure!(!held.is_empty(), "the guest's privileges cannot be read");
    Ok(())
}

#[tokio::test]
async fn a_workload_goes_on_after_each_sleep_on_disk() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = on_gvisor(&daemon, "base").await?;
    let mut workload = Workload::start(&sandbox).await?;
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

#[tokio::test]
async fn a_template_says_what_isolates_its_sandboxes() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    daemon.roost_ok(&["template", "build", "mini", "--name", "walled", "--engine", "gvisor"]).await?;
    let list = daemon.roost_ok(&["template", "ls"]).await?;
    ensure!(list.lines().any(|line| line.starts_with("walled") && line.contains("gvisor")), "{list}");
    // The create's word, then the template's, then the daemon's.
    for (template, word, engine) in [
        ("walled", None, EngineKind::Gvisor),
        ("walled", Some("native"), EngineKind::Native),
        ("mini", Some("auto"), EngineKind::Gvisor),
    ] {
        let (template, word) = (Some(template.to_owned()), word.map(str::to_owned));
        let sandbox =
            client.create_sandbox(&CreateSandbox { template, engine: word, ..CreateSandbox::default() }).await?;
        assert_eq!(sandbox.engine, engine);
        client.delete_sandbox(sandbox.id.as_str()).await?;
    }
    daemon.roost_ok(&["pool", "set", "walled", "--max", "1"]).await?;
    assert_eq!(client.list_pools().await?.first().context("no pool")?.engine, EngineKind::Gvisor);

    let told = daemon.roost_ok(&["template", "set", "walled", "--engine", "default"]).await?;
    ensure!(told.contains("engine default"), "{told}");
    assert_eq!(client.template("walled").await?.defaults.engine, None);
    let refused = daemon.roost(&["template", "set", "walled", "--engine", "hyper"]).output().await?;
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.contains("no engine named `hyper`"), "{refused}");
    Ok(())
}

/// Its name, files, services, labels and holds go along; only what ran does not, and that is said.
#[tokio::test]
async fn it_moves_to_another_engine_and_back() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    let sandbox = daemon.sandbox_with(named("box", "native")).await?;
    sandbox.write("/root/note", "kept\n").await?;
    let service = ServiceSpec { argv: vec!["sleep".to_owned(), "1000".to_owned()], ..ServiceSpec::default() };
    client.put_service("box", "worker", &service).await?;
    client.start_service("box", "worker").await?;
    sandbox.root_ok("echo native > /dev/shm/mark").await?;
    let moment = client.create_checkpoint("box", &CreateCheckpoint::default()).await?.checkpoint;
    daemon.roost_ok(&["hold", "box", "--name", "mine", "--for", "10m"]).await?;

    let asked = daemon.roost(&["move", "box", "--engine", "gvisor"]).output().await?;
    let asked = String::from_utf8_lossy(&asked.stderr).into_owned();
    ensure!(asked.contains("its processes end") && asked.contains("--yes"), "{asked}");
    assert_eq!(client.sandbox("box").await?.engine, EngineKind::Native);
    let told = daemon.roost_ok(&["move", "box", "--engine", "gvisor", "--yes"]).await?;
    ensure!(told.contains("moved from native to gvisor") && told.contains("not kept memory and processes"), "{told}");
    let view = client.sandbox("box").await?;
    assert_eq!((view.engine, view.id), (EngineKind::Gvisor, sandbox.id().parse()?));
    assert_eq!(sandbox.sh_ok("cat /root/note; hostname; ls /dev/shm").await?, "kept\nbox");
    ensure!(sandbox.root_ok("dmesg").await?.contains("gVisor"));
    let services = client.list_services("box").await?;
    ensure!(services.iter().all(|service| service.state == ServiceState::Running), "{services:?}");
    assert_eq!(client.list_holds("box").await?.len(), 1);
    let again = client.move_sandbox("box", "gvisor").await?;
    ensure!(again.not_kept.is_empty() && again.kept.contains(&"processes".to_owned()), "{again:?}");

    // What sleeps with its memory on one engine sleeps as files on the other; nothing wakes it.
    sandbox.suspend(Level::Disk).await?;
    let moved = client.move_sandbox("box", "native").await?;
    assert_eq!((moved.level, client.sandbox("box").await?.level), (Some(Level::Files), Some(Level::Files)));
    client.move_sandbox("box", "gvisor").await?;
    sandbox.root_ok("echo gvisor > /dev/shm/mark").await?;

    // Memory belongs to the engine that saved it: a sandbox goes back with it, and forward again.
    client.restore_sandbox("box", &Restore { checkpoint: moment.id.clone() }).await?;
    assert_eq!(client.sandbox("box").await?.engine, EngineKind::Native);
    assert_eq!(sandbox.sh_ok("cat /dev/shm/mark /root/note").await?, "native\nkept");
    let kept = client.list_checkpoints("box").await?.pop().context("what was replaced is not kept")?;
    client.restore_sandbox("box", &Restore { checkpoint: kept.id }).await?;
    assert_eq!(client.sandbox("box").await?.engine, EngineKind::Gvisor);
    assert_eq!(sandbox.sh_ok("cat /dev/shm/mark").await?, "gvisor");
    sandbox.delete().await?;
    no_orphans(&daemon).await
}

/// Once it is decided a move comes about, whenever the daemon dies; before that, nothing has happened.
#[tokio::test]
async fn a_move_that_is_cut_off_goes_on() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox_with(named("box", "native")).await?;
    sandbox.write("/root/note", "kept\n").await?;
    let points = [
        "record-stored:1",
        "kill-ended",
        "kill-unplugged",
        "engine-changed",
        "record-stored:2",
        "start-stored",
        "start-running",
        "record-stored:3",
    ];
    for (point, to) in points.into_iter().zip(["gvisor", "native"].into_iter().cycle()) {
        daemon.stop().await?;
        daemon.start_again_failing_at(point).await?;
        ensure!(daemon.client().move_sandbox("box", to).await.is_err(), "`{point}` was not passed");
        daemon.wait_until_killed().await?;
        daemon.start_again().await?;
        let found = sandbox.sh_ok("cat /root/note").await.with_context(|| format!("after `{point}`"))?;
        assert_eq!(found, "kept", "after `{point}`");
        assert_eq!(daemon.client().sandbox("box").await?.engine.as_str(), to, "after `{point}`");
        no_orphans(&daemon).await.with_context(|| format!("after `{point}`"))?;
    }
    Ok(())
}
