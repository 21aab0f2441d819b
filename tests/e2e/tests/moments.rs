//! Moments of a sandbox: kept, gone back to, and forked from.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use roost_e2e::{Daemon, Sandbox, Workload};
use roost_model::{CheckpointId, CreateCheckpoint, CreateSandbox, ErrorCode, ExecState, Fork, Level, State};

#[tokio::test]
async fn a_sandbox_goes_back_after_its_programs_were_removed_and_forth_again() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let sandbox = daemon.sandbox_of("base", "box").await?;
    let mut workload = Workload::start(&sandbox).await?;
    let kept = workload.check(&sandbox).await?;
    let (checkpoint, receipt) = sandbox.checkpoint().await?;
    eprintln!("checkpoint: pause {:?} ms, in all {:.0} ms", receipt.paused_ms, receipt.total_ms);
    ensure!(receipt.paused_ms.is_some(), "no pause in {receipt:?}");
    // What it does from here on is undone.
    let mut then = workload.clone();
    assert_eq!(workload.check(&sandbox).await?, kept);

    // What is running holds on to some of it; nothing of it is there under its name.
    sandbox.root_ok("echo after > /etc/after; rm -rf /usr /home || true").await?;
    let refused = sandbox.sh("true").await.expect_err("there is no shell any more");
    ensure!(format!("{refused:#}").contains("sh"), "{refused:#}");

    let began = std::time::Instant::now();
    let receipt = sandbox.restore(&checkpoint).await?;
    eprintln!("restore: {:?}, {receipt:?}", began.elapsed());
    assert_eq!(then.check(&sandbox).await?, kept);
    assert_eq!(sandbox.sh_ok("test -e /etc/after || echo as before").await?, "as before");

    let automatic = receipt.checkpoint.clone().context("the restore names no automatic checkpoint")?;
    let view = daemon.client().checkpoint(automatic.as_str()).await?;
    ensure!(view.automatic && view.parent == Some(checkpoint.clone()), "{view:?}");
    // Programs that are gone from under their processes may be too much to save; then that is said.
    ensure!(view.memory || !receipt.not_kept.is_empty(), "memory was dropped without a word: {receipt:?}");
    sandbox.restore(&automatic).await?;
    assert_eq!(sandbox.read("/etc/after").await?, b"after\n");
    assert!(sandbox.sh("true").await.is_err(), "the shell is gone in that moment");

    sandbox.restore(&checkpoint).await?;
    assert_eq!(sandbox.sh_ok("curl -sSf 127.0.0.1:8000/memory").await?, kept.memory);
    Ok(())
}

/// Asks a sandbox's server over and over, until told to stop; returns how often it answered.
fn keep_asking(sandbox: &Sandbox, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Result<u32>> {
    let (sandbox, stop) = (sandbox.clone(), stop.clone());
    tokio::spawn(async move {
        let mut answers = 0;
        while !stop.load(Ordering::Relaxed) {
            let said = sandbox.sh_ok("curl -sSf --max-time 60 127.0.0.1:8000/").await?;
            ensure!(said == "here", "the server says {said}");
            answers += 1;
        }
        Ok(answers)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_forks_of_a_running_workload() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let parent = daemon.sandbox_of("base", "parent").await?;
    let mut workload = Workload::start(&parent).await?;
    let kept = workload.check(&parent).await?;
    let asking = "while curl -sSf --max-time 60 127.0.0.1:8000/ > /dev/null; do echo; sleep 0.05; done";
    let asking = parent.spawn(asking).await?;
    let began = std::time::Instant::now();
    let children = parent.fork(&Fork { count: Some(10), ..Fork::default() }).await?;
    eprintln!("ten forks: {:?}, pause {:?} ms", began.elapsed(), children[0].1.paused_ms);
    assert_eq!(children.len(), 10);

    // Equal at birth, every program in every child.
    for (child, _) in &children {
        assert_eq!(workload.clone().check(child).await?, kept, "{}", child.name());
    }
    // Then each goes its own way.
    let mut hashes = BTreeSet::from([kept.memory.clone()]);
    for (child, receipt) in &children {
        assert_eq!(child.sh_ok("curl -sSf 127.0.0.1:8000/poke").await?, "poked");
        child.sh_ok(&format!("echo {0} > /home/user/w/data/own", child.name())).await?;
        hashes.insert(child.sh_ok("curl -sSf 127.0.0.1:8000/memory").await?);
        assert_eq!(receipt.generation, 2);
    }
    assert_eq!(hashes.len(), 11, "two sandboxes have the same memory");
    for (child, _) in &children {
        assert_eq!(child.sh_ok("cat /home/user/w/data/own").await?, child.name());
    }
    let asking = daemon.client().exec("parent", asking.id.as_str()).await?;
    assert_eq!(asking.status, ExecState::Running, "the parent failed a request");
    assert_eq!(workload.check(&parent).await?, kept);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_outside_wait_while_it_is_forked() -> Result<()> {
    let daemon = Daemon::start_with_base().await?;
    let parent = daemon.sandbox_of("base", "parent").await?;
    let mut workload = Workload::start(&parent).await?;
    let kept = workload.check(&parent).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..4).map(|_| keep_asking(&parent, &stop)).collect();
    for _ in 0..5 {
        for (child, _) in parent.fork(&Fork { count: Some(2), ..Fork::default() }).await? {
            assert_eq!(child.sh_ok("curl -sSf 127.0.0.1:8000/memory").await?, kept.memory);
            child.delete().await?;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for asked in asking {
        ensure!(asked.await?? > 0, "the parent answered nothing");
    }
    assert_eq!(workload.check(&parent).await?, kept);
    Ok(())
}

#[tokio::test]
async fn a_fork_is_somebody_else_in_the_same_place() -> Result<()> {
    let daemon = Daemon::start().await?;
    let parent = daemon.sandbox("parent").await?;
    parent.sh_ok("mkdir -p /etc/roost/on-fork.d /etc/roost/on-wake.d").await?;
    for folder in ["on-fork.d", "on-wake.d"] {
        let hook = format!("/etc/roost/{folder}/10-tell");
        let text = "#!/bin/sh\necho \"${0%/*} $ROOST_WHY $ROOST_GENERATION $ROOST_NAME\" >> /root/hooks\n";
        parent.write(&hook, text).await?;
        parent.sh_ok(&format!("chmod +x {hook}")).await?;
    }
    let work = parent.spawn("while :; do sleep 1; done").await?;
    let names = Some(vec!["one".to_owned(), "two".to_owned()]);
    let children = parent.fork(&Fork { names, ..Fork::default() }).await?;

    let address = "ip -4 -o addr show eth0 | awk '{print $4}'";
    for ((child, receipt), name) in children.iter().zip(["one", "two"]) {
        assert_eq!((child.name(), receipt.generation), (name, 2));
        let view = daemon.client().sandbox(name).await?;
        assert_eq!(view.parent.context("a fork without a parent")?.sandbox.as_str(), parent.id());
        let identity = child.sh_ok("cat /run/roost/name /run/roost/id").await?;
        assert_eq!(identity, format!("{name}\n{}", child.id()));
        assert_eq!(child.sh_ok("cat /run/roost/generation").await?, "2");
        assert_eq!(child.sh_ok(address).await?, parent.sh_ok(address).await?);
        child.becomes_true("test $(wc -l < /root/hooks) -ge 2").await?;
        let told = format!("/etc/roost/on-fork.d fork 2 {name}\n/etc/roost/on-wake.d fork 2 {name}");
        assert_eq!(child.sh_ok("cat /root/hooks").await?, told);
        let still = daemon.client().exec(name, work.id.as_str()).await?;
        assert_eq!((still.pid, still.status), (work.pid, ExecState::Running));
        child.sh_ok("echo child > /root/who").await?;
    }
    assert_eq!(parent.sh_ok("cat /run/roost/generation; ls /root").await?, "1");

    // What is done to one is nothing to the others.
    daemon.client().signal_exec("one", work.id.as_str(), "KILL").await?;
    assert_eq!(daemon.client().exec("two", work.id.as_str()).await?.status, ExecState::Running);
    parent.delete().await?;
    for (child, _) in &children {
        child.answers().await?;
        child.suspend(Level::Disk).await?;
        assert_eq!(child.sh_ok("cat /root/who").await?, "child");
    }
    // A fork of a fork counts on.
    assert_eq!(children[1].0.fork(&Fork::default()).await?[0].1.generation, 3);
    Ok(())
}

#[tokio::test]
async fn a_fork_has_a_host_name_of_its_own() -> Result<()> {
    let daemon = Daemon::start().await?;
    let parent = daemon.sandbox("parent").await?;
    let (child, _) = parent.fork(&Fork { names: Some(vec!["child".to_owned()]), ..Fork::default() }).await?.remove(0);
    assert_eq!(child.sh_ok("hostname").await?, "child");
    assert_eq!(parent.sh_ok("hostname").await?, "parent");
    Ok(())
}

#[tokio::test]
async fn a_fork_has_a_boot_id_of_its_own() -> Result<()> {
    let daemon = Daemon::start().await?;
    let parent = daemon.sandbox("parent").await?;
    let boot_id = "cat /proc/sys/kernel/random/boot_id";
    let (child, _) = parent.fork(&Fork { names: Some(vec!["child".to_owned()]), ..Fork::default() }).await?.remove(0);
    let (of_parent, of_child) = (parent.sh_ok(boot_id).await?, child.sh_ok(boot_id).await?);
    assert_ne!(of_parent, of_child);
    for (level, same) in [(Level::Ram, true), (Level::Disk, true), (Level::Files, false)] {
        child.suspend(level).await?;
        assert_eq!(child.sh_ok(boot_id).await? == of_child, same, "after a sleep in {level}");
    }
    Ok(())
}

#[tokio::test]
async fn forks_of_every_state_and_of_checkpoints() -> Result<()> {
    let daemon = Daemon::start().await?;
    let parent = daemon.sandbox("parent").await?;
    let work = parent.spawn("while :; do sleep 1; done").await?;
    parent.sh_ok("echo before > /root/file").await?;
    let (checkpoint, _) = parent.checkpoint().await?;
    parent.sh_ok("echo after > /root/file").await?;
    let from = Fork { from: Some(checkpoint.clone()), ..Fork::default() };
    assert_eq!(parent.fork(&from).await?[0].0.sh_ok("cat /root/file").await?, "before");
    for level in [Level::Ram, Level::Disk] {
        parent.suspend(level).await?;
        let (child, _) = parent.fork(&Fork::default()).await?.remove(0);
        let view = daemon.client().sandbox("parent").await?;
        assert_eq!((view.state, view.level), (State::Suspended, Some(level)), "a fork woke its parent");
        assert_eq!(child.sh_ok("cat /root/file").await?, "after");
        assert_eq!(daemon.client().exec(child.name(), work.id.as_str()).await?.status, ExecState::Running);
    }
    let taken = Fork { names: Some(vec!["parent".to_owned(), "fresh".to_owned()]), ..Fork::default() };
    let results = daemon.client().fork_sandbox("parent", &taken).await?;
    assert_eq!(results[0].error.as_ref().map(|error| error.code), Some(ErrorCode::NameTaken));
    assert_eq!(results[1].sandbox.as_ref().map(|view| view.name.as_str()), Some("fresh"));
    // Nobody asked for the moments that forks were made from.
    let left = daemon.client().list_checkpoints("parent").await?;
    assert_eq!(left.iter().map(|view| &view.id).collect::<Vec<_>>(), [&checkpoint]);
    Ok(())
}

async fn born_of(daemon: &Daemon, checkpoint: &CheckpointId, name: &str) -> Result<Sandbox> {
    let request = CreateSandbox {
        name: Some(name.to_owned()),
        from_checkpoint: Some(checkpoint.clone()),
        ..CreateSandbox::default()
    };
    daemon.sandbox_with(request).await
}

#[tokio::test]
async fn what_is_deleted_first_does_not_matter() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    let first = daemon.sandbox("first").await?;
    let work = first.spawn("while :; do sleep 1; done").await?;
    first.sh_ok("echo one > /root/file").await?;
    let (one, _) = first.checkpoint().await?;
    first.sh_ok("echo two > /root/file").await?;
    let (two, _) = first.checkpoint().await?;
    let files = CreateCheckpoint { files_only: true, comment: Some("only files".to_owned()) };
    let files = client.create_checkpoint("first", &files).await?.receipt;
    assert_eq!(files.kept, ["files"]);
    let files = files.checkpoint.context("no checkpoint")?;
    let tree = client.list_checkpoints("first").await?;
    let parents: Vec<_> = tree.iter().map(|view| view.parent.clone()).collect();
    assert_eq!(parents, [None, Some(one.clone()), Some(two.clone())]);
    assert_eq!(tree[2].comment.as_deref(), Some("only files"));
    let changed: Vec<String> = client
        .diff_checkpoints("first", one.as_str(), two.as_str())
        .await?
        .files
        .into_iter()
        .map(|file| file.path)
        .collect();
    assert!(changed.contains(&"/root/file".to_owned()), "{changed:?}");

    // The sandbox goes, its checkpoints stay; and the template has nothing to lose either.
    first.delete().await?;
    client.delete_template("mini").await.ok();
    let from_one = born_of(&daemon, &one, "from-one").await?;
    assert_eq!(from_one.sh_ok("cat /root/file").await?, "one");
    assert_eq!(client.exec("from-one", work.id.as_str()).await?.status, ExecState::Running);
    client.delete_checkpoint("first", one.as_str()).await?;
    assert_eq!(client.checkpoint(one.as_str()).await.expect_err("deleted").code(), Some(ErrorCode::CheckpointNotFound));
    // One in the middle goes, what was made before and after it stays.
    assert_eq!(born_of(&daemon, &two, "from-two").await?.sh_ok("cat /root/file").await?, "two");
    from_one.suspend(Level::Disk).await?;
    assert_eq!(from_one.sh_ok("cat /root/file").await?, "one");
    client.delete_checkpoint("first", two.as_str()).await?;
    let from_files = born_of(&daemon, &files, "from-files").await?;
    assert_eq!(from_files.sh_ok("cat /root/file; pidof sleep; true").await?, "two");
    from_files.delete().await?;
    client.delete_checkpoint("first", files.as_str()).await?;
    for name in ["from-one", "from-two"] {
        client.suspend_sandbox(name, Level::Disk).await?;
        assert_eq!(client.exec(name, work.id.as_str()).await?.status, ExecState::Running);
        client.delete_sandbox(name).await?;
    }
    // Nothing is left of any of them.
    daemon.keeps_nothing_in(&["images", "images/.staging", "checkpoints", "staging"]).await
}

#[tokio::test]
async fn checkpoints_outlive_the_daemon_and_a_reboot() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    sandbox.sh_ok("echo before > /root/file").await?;
    let (checkpoint, _) = sandbox.checkpoint().await?;
    sandbox.sh_ok("echo after > /root/file").await?;
    daemon.crash_and_restart().await?;
    sandbox.restore(&checkpoint).await?;
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "before");
    daemon.reboot().await?;
    sandbox.restore(&checkpoint).await?;
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, ExecState::Running);
    assert_eq!(daemon.client().sandbox("box").await?.generation, 3);
    Ok(())
}

#[tokio::test]
async fn a_sandbox_made_from_memory_has_the_environment_of_its_create() -> Result<()> {
    let daemon = Daemon::start().await?;
    let source = daemon.sandbox("source").await?;
    let (checkpoint, _) = source.checkpoint().await?;
    let env = [("GREETING".to_owned(), "hello".to_owned())].into();
    let wanted = CreateSandbox { from_checkpoint: Some(checkpoint), env, ..CreateSandbox::default() };
    let born = daemon.sandbox_with(wanted).await?;
    assert_eq!(born.sh_ok("echo $GREETING; grep -c GREETING /run/roost/env.json").await?, "hello\n1");
    // Memory and environment of its own come back together.
    born.suspend(Level::Disk).await?;
    assert_eq!(born.sh_ok("echo $GREETING").await?, "hello");
    assert_eq!(source.sh_ok("echo $GREETING; grep -c GREETING /run/roost/env.json; true").await?, "\n0");
    Ok(())
}
