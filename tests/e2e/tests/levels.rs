//! Sleep in RAM and as files, and moments of files: what needs no CRIU.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, ensure};
use roost_e2e::Daemon;
use roost_model::{CreateCheckpoint, CreateSandbox, ErrorCode, Fork, Level, Restore, State};

#[tokio::test]
async fn sleep_in_ram_keeps_processes_and_whatever_reaches_for_it_wakes_it() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let counter = sandbox.spawn("i=0; while :; do i=$((i+1)); echo $i > /root/count; sleep 0.01; done").await?;
    for _ in 0..20 {
        let receipt = daemon.client().suspend_sandbox("box", Level::Ram).await?;
        ensure!(receipt.kept.iter().any(|kept| kept == "memory"), "{receipt:?}");
        let asleep = daemon.client().sandbox("box").await?;
        assert_eq!((asleep.state, asleep.level), (State::Suspended, Some(Level::Ram)));
        sandbox.answers().await?;
        assert_eq!(daemon.client().sandbox("box").await?.state, State::Active);
    }
    // The very process that was started goes on counting.
    let before: u64 = sandbox.sh_ok("cat /root/count").await?.parse()?;
    let more =
        format!("until [ \"$(cat /root/count)\" -gt {} ]; do sleep 0.01; done; kill -0 {}", before + 5, counter.pid);
    sandbox.sh_ok(&more).await?;
    Ok(())
}

#[tokio::test]
async fn a_sleeper_in_ram_outlives_a_killed_daemon() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let sleeper = sandbox.spawn("sleep 1000").await?;
    daemon.client().suspend_sandbox("box", Level::Ram).await?;
    daemon.crash_and_restart().await?;
    let asleep = daemon.client().sandbox("box").await?;
    assert_eq!((asleep.state, asleep.level), (State::Suspended, Some(Level::Ram)));
    let look = roost_model::StartExec { shell: Some(format!("kill -0 {}", sleeper.pid)), ..Default::default() };
    assert_eq!(daemon.client().run_exec("box", &look).await?.exit_code, 0);
    Ok(())
}

#[tokio::test]
async fn sleep_as_files_ends_processes_and_keeps_the_disk() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo kept > /root/file").await?;
    sandbox.spawn("sleep 1000").await?;
    daemon.client().suspend_sandbox("box", Level::Files).await?;
    assert_eq!(daemon.client().sandbox("box").await?.level, Some(Level::Files));
    daemon.client().wake_sandbox("box").await?;
    assert_eq!(sandbox.sh_ok("cat /root/file; pgrep sleep || echo none").await?, "kept\nnone");
    Ok(())
}

#[tokio::test]
async fn a_sandbox_goes_back_to_its_files_and_forth_again() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    let files = CreateCheckpoint { files_only: true, comment: Some("first".to_owned()) };
    sandbox.sh_ok("echo one > /root/file").await?;
    let first = client.create_checkpoint("box", &files).await?.checkpoint;
    sandbox.sh_ok("echo two > /root/file; echo new > /root/more; rm -rf /usr").await.ok();
    client.suspend_sandbox("box", Level::Files).await?;
    client.restore_sandbox("box", &Restore { checkpoint: first.id.clone() }).await?;
    assert_eq!(sandbox.sh_ok("cat /root/file; ls /root/more 2>/dev/null || echo none").await?, "one\nnone");
    let all = client.list_checkpoints("box").await?;
    let automatic = all.iter().find(|checkpoint| checkpoint.automatic).context("what was replaced is kept")?;
    let diff = client.diff_checkpoints("box", first.id.as_str(), automatic.id.as_str()).await?;
    ensure!(diff.files.iter().any(|change| change.path == "/root/more"), "{diff:?}");
    // The checkpoint can go; what stands on it stays.
    client.delete_checkpoint("box", first.id.as_str()).await?;
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "one");
    Ok(())
}

#[tokio::test]
async fn children_of_a_checkpoint_of_files_go_their_own_ways() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let client = daemon.client();
    sandbox.sh_ok("echo one > /root/file").await?;
    let files = CreateCheckpoint { files_only: true, comment: None };
    let moment = client.create_checkpoint("box", &files).await?.checkpoint;
    let wanted = Fork { count: Some(3), names: None, from: Some(moment.id.clone()) };
    let children = client.fork_sandbox("box", &wanted).await?;
    assert_eq!(children.len(), 3);
    for child in children {
        let child = child.sandbox.context("a child was not made")?;
        let say = roost_model::StartExec {
            shell: Some(format!("cat /root/file; echo {} > /root/file", child.name)),
            ..Default::default()
        };
        assert_eq!(client.run_exec(child.id.as_str(), &say).await?.stdout, "one\n");
    }
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "one");
    sandbox.delete().await?;
    let again = CreateSandbox { name: Some("again".into()), from_checkpoint: Some(moment.id), ..Default::default() };
    let again = client.create_sandbox(&again).await?;
    let read = roost_model::StartExec { argv: vec!["cat".into(), "/root/file".into()], ..Default::default() };
    assert_eq!(client.run_exec(again.id.as_str(), &read).await?.stdout, "one\n");
    Ok(())
}

#[tokio::test]
async fn without_criu_memory_is_refused_and_nothing_is_lost() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let sleeper = sandbox.spawn("sleep 1000").await?;
    if let Err(refused) = daemon.client().suspend_sandbox("box", Level::Disk).await {
        let code = refused.code();
        ensure!(matches!(code, Some(ErrorCode::EngineUnfit | ErrorCode::MemoryNotSaved)), "{refused:?}");
    }
    sandbox.sh_ok(&format!("kill -0 {}", sleeper.pid)).await?;
    Ok(())
}
