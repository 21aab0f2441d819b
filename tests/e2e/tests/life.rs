//! A sandbox's life: it outlives its clients and its daemon, and ends with a tombstone.
#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use roost_client::{ClientError, EventsFilter, SandboxFilter};
use roost_e2e::{Daemon, Options, first_pid, leftovers};
use roost_model::{CreateSandbox, ErrorCode, EventKind, ExecState, Level, LimitsRequest, PatchSandbox, Span, State};

#[tokio::test]
async fn a_sandbox_outlives_a_killed_daemon_and_ends_with_a_tombstone() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;
    let counter = sandbox.spawn("while :; do sleep 1; done").await?;

    daemon.crash_and_restart().await?;
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "precious");
    let still = daemon.client().exec("box", counter.id.as_str()).await?;
    assert_eq!((still.pid, &still.status), (counter.pid, &ExecState::Running));

    sandbox.delete().await?;
    let gone = daemon.client().sandbox("box").await.expect_err("a deleted sandbox is gone");
    let ClientError::Api { status, detail, sandbox: Some(view) } = &gone else { panic!("no tombstone: {gone}") };
    assert_eq!((*status, detail.code), (410, ErrorCode::SandboxTerminated));
    assert_eq!(view.state, State::Terminated);
    assert_eq!(view.tombstone.as_ref().context("no tombstone")?.cause, "deleted");
    let refused = sandbox.sh("true").await.expect_err("nothing runs in a deleted sandbox");
    assert!(refused.to_string().contains("box"), "{refused}");

    let again = daemon.sandbox("box").await?;
    assert_ne!(again.id(), sandbox.id());
    assert_eq!(again.sh("cat /root/file").await?.exit_code, 1);
    Ok(())
}

#[tokio::test]
async fn a_graceful_stop_leaves_sandboxes_running() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let work = sandbox.spawn("while :; do sleep 1; done").await?;
    let guest = first_pid(&daemon.instance().await?, sandbox.id())?;

    daemon.stop().await?;
    assert!(std::path::Path::new(&format!("/proc/{guest}")).exists());
    daemon.start_again().await?;
    assert_eq!(daemon.client().exec("box", work.id.as_str()).await?.status, ExecState::Running);
    Ok(())
}

#[tokio::test]
async fn stop_all_ends_processes_and_keeps_files() -> Result<()> {
    let mut daemon = Daemon::with(Options { arguments: vec!["--stop-all".to_owned()], ..Options::default() }).await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;
    let guest = first_pid(&daemon.instance().await?, sandbox.id())?;

    daemon.stop().await?;
    assert!(!std::path::Path::new(&format!("/proc/{guest}")).exists());
    daemon.start_again().await?;
    assert_eq!(sandbox.sh_ok("cat /root/file").await?, "precious");
    Ok(())
}

#[tokio::test]
async fn a_sandbox_whose_guest_died_starts_again_from_its_files() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file; sync").await?;
    for asleep in [false, true, true, true] {
        if asleep {
            // It dies when it is woken, right under whoever comes.
            sandbox.suspend(Level::Ram).await?;
        }
        let guest = first_pid(&daemon.instance().await?, sandbox.id())?;
        let killed = std::process::Command::new("kill").args(["-KILL", &guest.to_string()]).status()?;
        assert!(killed.success());

        // At once, before anybody can have noticed.
        assert_eq!(sandbox.sh_ok("cat /root/file").await?, "precious");
        assert_ne!(first_pid(&daemon.instance().await?, sandbox.id())?, guest);
    }
    Ok(())
}

#[tokio::test]
async fn whoever_reads_while_the_guest_dies_reads_all_the_same() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.sh_ok("echo precious > /root/file").await?;
    // It dies when it is woken: before the reader's connection, on it, or after the question.
    for _ in 0..25 {
        sandbox.suspend(Level::Ram).await?;
        let guest = first_pid(&daemon.instance().await?, sandbox.id())?;
        let killed = std::process::Command::new("kill").args(["-KILL", &guest.to_string()]).status()?;
        assert!(killed.success());
        assert_eq!(sandbox.read("/root/file").await?, b"precious\n");
    }
    Ok(())
}

#[tokio::test]
async fn taking_a_daemon_down_leaves_nothing_on_the_host() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let instance = daemon.instance().await?;
    let sandbox = daemon.sandbox("box").await?;
    sandbox.spawn("while :; do sleep 1; done").await?;
    assert!(!leftovers(&instance, daemon.data_dir()).is_empty());

    daemon.take_down()?;
    // A process of another daemon that has just copied the host's mounts keeps the loop device for as long as it lives.
    let gone = async {
        while !leftovers(&instance, daemon.data_dir()).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), gone).await.is_err() {
        assert_eq!(leftovers(&instance, daemon.data_dir()), Vec::<String>::new());
    }

    daemon.start_again().await?;
    assert_eq!(sandbox.sh_ok("echo back").await?, "back");
    Ok(())
}

#[tokio::test]
async fn the_same_key_makes_one_sandbox() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let request = CreateSandbox { name: Some("once".to_owned()), ..CreateSandbox::default() };
    let first = daemon.client().create_sandbox_once(&request, "key-1").await?;
    let second = daemon.client().create_sandbox_once(&request, "key-1").await?;
    assert_eq!(first.id, second.id);
    daemon.crash_and_restart().await?;
    let third = daemon.client().create_sandbox_once(&request, "key-1").await?;
    assert_eq!(first.id, third.id);

    let other = CreateSandbox { name: Some("other".to_owned()), ..CreateSandbox::default() };
    let conflict =
        daemon.client().create_sandbox_once(&other, "key-1").await.expect_err("another body under the same key");
    assert_eq!(conflict.code(), Some(ErrorCode::Conflict));
    Ok(())
}

#[tokio::test]
async fn a_time_to_live_ends_a_sandbox() -> Result<()> {
    let daemon = Daemon::start().await?;
    let request =
        CreateSandbox { name: Some("brief".to_owned()), ttl: Some(Span::seconds(1)), ..CreateSandbox::default() };
    let sandbox = daemon.sandbox_with(request).await?;
    sandbox.answers().await?;
    let mut events = daemon.client().follow_events(&EventsFilter::default()).await?;
    while let Some(event) = events.next().await? {
        if event.kind == EventKind::Terminated {
            break;
        }
    }
    let gone = daemon.client().sandbox("brief").await.expect_err("its time is over");
    let ClientError::Api { sandbox: Some(view), .. } = &gone else { panic!("no tombstone: {gone}") };
    assert_eq!(view.tombstone.as_ref().context("no tombstone")?.cause, "ttl");
    Ok(())
}

#[tokio::test]
async fn labels_and_limits_change_while_it_runs() -> Result<()> {
    let daemon = Daemon::start().await?;
    let sandbox = daemon.sandbox("box").await?;
    let labels = [("team".to_owned(), Some("a".to_owned()))].into();
    let limits = LimitsRequest { memory: Some(64 << 20), pids: Some(64), ..LimitsRequest::default() };
    let patch = PatchSandbox { labels: Some(labels), limits: Some(limits), ..PatchSandbox::default() };
    let changed = daemon.client().patch_sandbox("box", &patch).await?;
    assert_eq!(changed.labels.get("team").map(String::as_str), Some("a"));
    assert_eq!((changed.limits.memory, changed.limits.pids), (64 << 20, 64));
    assert_eq!(daemon.client().stats("box").await?.memory_limit, 64 << 20);
    // The kernel allows 64 processes now and no more; with room for others, commands run again.
    sandbox.sh("i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done").await?;
    let pids = daemon.client().stats("box").await?.pids;
    ensure!((32..=64).contains(&pids), "{pids} processes in a sandbox of 64");
    let limits = LimitsRequest { pids: Some(256), ..LimitsRequest::default() };
    daemon.client().patch_sandbox("box", &PatchSandbox { limits: Some(limits), ..PatchSandbox::default() }).await?;
    sandbox.answers().await
}

#[tokio::test]
async fn lists_are_filtered_and_paged() -> Result<()> {
    let daemon = Daemon::start().await?;
    for number in 0..5 {
        let colour = if number % 2 == 0 { "red" } else { "blue" };
        let request = CreateSandbox {
            name: Some(format!("n{number}")),
            labels: [("colour".to_owned(), colour.to_owned())].into(),
            ..CreateSandbox::default()
        };
        daemon.sandbox_with(request).await?;
    }
    let client = daemon.client();
    let names = async |filter: SandboxFilter| {
        let page = client.list_sandboxes(&filter).await?;
        let names: Vec<String> = page.items.iter().map(|view| view.name.to_string()).collect();
        anyhow::Ok((names, page.next_cursor))
    };
    let blue = vec![("colour".to_owned(), "blue".to_owned())];
    assert_eq!(names(SandboxFilter { labels: blue, ..SandboxFilter::default() }).await?.0, ["n1", "n3"]);
    let (first, cursor) = names(SandboxFilter { limit: Some(3), ..SandboxFilter::default() }).await?;
    assert_eq!(first, ["n0", "n1", "n2"]);
    let cursor = Some(cursor.context("no next page")?);
    let (rest, cursor) = names(SandboxFilter { limit: Some(3), cursor, ..SandboxFilter::default() }).await?;
    assert_eq!((rest, cursor), (vec!["n3".to_owned(), "n4".to_owned()], None));
    client.delete_sandbox("n0").await?;
    assert_eq!(names(SandboxFilter { state: Some(State::Terminated), ..SandboxFilter::default() }).await?.0, ["n0"]);
    Ok(())
}

#[tokio::test]
async fn daemons_live_side_by_side() -> Result<()> {
    let (one, two) = tokio::try_join!(Daemon::start(), Daemon::start())?;
    let (first, second) = tokio::try_join!(one.sandbox("box"), two.sandbox("box"))?;
    first.sh_ok("echo one > /root/who").await?;
    second.sh_ok("echo two > /root/who").await?;
    drop(one);
    assert_eq!(second.sh_ok("cat /root/who").await?, "two");
    assert!(first.sh("true").await.is_err());
    Ok(())
}
