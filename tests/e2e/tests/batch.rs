//! Batches: every task has one result, whatever happens to the daemon or the client meanwhile.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use roost_client::SandboxFilter;
use roost_e2e::{Daemon, no_orphans};
use roost_model::{BatchState, CreateBatch, ErrorCode, SetPool, Task, TaskCommand, TaskResult};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// How many `true` runs make a batch large; `make test` has other things to do.
fn many() -> usize {
    std::env::var("ROOST_E2E_BATCH").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

/// Tasks in a file, and the folder that their results go to.
struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(tasks: &[Value]) -> Result<Self> {
        let lines: Vec<String> = tasks.iter().map(Value::to_string).collect();
        Self::of(&lines.join("\n"))
    }

    fn of(text: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("tasks.jsonl"), text)?;
        Ok(Self { folder })
    }

    fn tasks(&self) -> PathBuf {
        self.folder.path().join("tasks.jsonl")
    }

    /// Where results go unless told otherwise.
    fn run_dir(&self) -> PathBuf {
        self.folder.path().join("tasks.run")
    }

    fn command(&self, daemon: &Daemon, more: &[&str]) -> tokio::process::Command {
        let mut command = daemon.roost(&["batch", "mini", "--tasks"]);
        command.arg(self.tasks()).args(more);
        command
    }

    async fn run(&self, daemon: &Daemon, more: &[&str]) -> Result<Output> {
        Ok(self.command(daemon, more).output().await?)
    }

    fn results(&self) -> Result<BTreeMap<String, TaskResult>> {
        results_in(&self.run_dir())
    }
}

/// Results by id; the same id twice is an error.
fn results_in(folder: &Path) -> Result<BTreeMap<String, TaskResult>> {
    let text = std::fs::read_to_string(folder.join("results.jsonl"))?;
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let result: TaskResult = serde_json::from_str(line)?;
        ensure!(results.insert(result.id.clone(), result).is_none(), "a task has two results: {line}");
    }
    Ok(results)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn marking(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| json!({"id": format!("t{number}"), "command": format!("sleep 0.2; echo {number}")}))
        .collect()
}

/// Waits until a condition holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await? {
        ensure!(Instant::now() < deadline, "{what} never came true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn nothing_left(daemon: &Daemon) -> Result<()> {
    until("no sandbox is left", async || {
        Ok(daemon.client().all_sandboxes(&SandboxFilter::default()).await?.is_empty())
    })
    .await?;
    no_orphans(daemon).await
}

#[tokio::test]
async fn every_task_runs_as_it_says_and_has_its_result() -> Result<()> {
    let daemon = Daemon::start().await?;
    let scene = Scene::new(&[
        json!({"command": "echo out; echo err >&2; exit 3"}),
        json!({"id": "list", "command": ["printf", "%s", "a b"]}),
        json!({"id": "env", "command": "echo $A $B", "env": {"B": "task"}}),
        json!({"id": "stdin", "command": "tr a-z A-Z", "stdin": "loud\n"}),
        json!({"id": "unread", "command": "true", "stdin": "x".repeat(300_000)}),
        json!({"id": "files", "command": "cat /srv/deep/a; wc -c < /b; ls -l /b | cut -c 1-10", "files": [
            {"path": "/srv/deep/a", "text": "text\n"}, {"path": "/b", "base64": "AAECAw==", "mode": "0600"},
        ]}),
        json!({"id": "slow", "command": "sleep 100", "timeout": "300ms"}),
        json!({"id": "missing", "command": ["no-such-command"]}),
        json!({"id": "loud", "command": "yes | head -c 1000000"}),
        json!({"id": "own", "command": "echo mine > /root/x; ls /root"}),
        json!({"id": "own-2", "command": "ls /root"}),
    ])?;
    let ran = scene.run(&daemon, &["--env", "A=all", "--parallel", "3", "--json"]).await?;
    assert_eq!(ran.status.code(), Some(1), "{}", text(&ran.stderr));
    let summary: Value = serde_json::from_slice(&ran.stdout)?;
    assert_eq!((&summary["tasks"], &summary["succeeded"], &summary["errors"]), (&json!(11), &json!(8), &json!(0)));
    let results = scene.results()?;
    assert_eq!(results.len(), 11);
    let first = &results["1"];
    assert_eq!((first.exit_code, first.stdout.as_str(), first.stderr.as_str()), (Some(3), "out\n", "err\n"));
    assert_eq!((first.attempts, first.error.is_none()), (1, true));
    for (id, stdout) in [
        ("list", "a b"),
        ("env", "all task\n"),
        ("stdin", "LOUD\n"),
        ("unread", ""),
        ("files", "text\n4\n-rw-------\n"),
        ("own", "x\n"),
        ("own-2", ""),
    ] {
        assert_eq!((results[id].stdout.as_str(), results[id].exit_code), (stdout, Some(0)), "{id}: {:?}", results[id]);
    }
    assert!(results["slow"].timed_out && results["slow"].exit_code != Some(0), "{:?}", results["slow"]);
    assert_eq!(results["missing"].exit_code, Some(127));
    assert_eq!(results["missing"].error.as_ref().map(|error| error.code), Some(ErrorCode::CommandNotFound));
    assert!(results["loud"].truncated && results["loud"].stdout.len() == 256 << 10);

    // The same again runs nothing: every task has its result.
    let again = scene.run(&daemon, &[]).await?;
    assert_eq!(again.status.code(), Some(1));
    ensure!(text(&again.stderr).contains("every task has a result"), "{}", text(&again.stderr));
    assert_eq!(scene.results()?, results);
    assert_eq!(daemon.client().list_batches().await?.len(), 1);
    nothing_left(&daemon).await
}

#[tokio::test]
async fn a_killed_client_goes_on_where_it_was() -> Result<()> {
    let daemon = Daemon::start().await?;
    let scene = Scene::new(&marking(20))?;
    let mut client = scene.command(&daemon, &["--parallel", "2"]).stderr(Stdio::null()).spawn()?;
    until("some results", async || Ok(scene.results().is_ok_and(|results| results.len() >= 3))).await?;
    client.kill().await?;
    let ran = scene.run(&daemon, &["--parallel", "2"]).await?;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let results = scene.results()?;
    assert_eq!(results.len(), 20);
    assert!(results.values().all(|result| result.attempts == 1));
    assert_eq!(daemon.client().list_batches().await?.len(), 1, "the same batch");
    nothing_left(&daemon).await
}

/// How many sandboxes have ended, for each cause in their tombstones.
async fn starts_of(daemon: &Daemon) -> Result<BTreeMap<String, usize>> {
    let filter = SandboxFilter { terminated: true, ..SandboxFilter::default() };
    let mut counts = BTreeMap::new();
    for view in daemon.client().all_sandboxes(&filter).await? {
        let cause = view.tombstone.map(|tombstone| tombstone.cause).unwrap_or_default();
        *counts.entry(cause).or_default() += 1;
    }
    Ok(counts)
}

#[tokio::test]
async fn a_killed_daemon_runs_each_unfinished_task_once_more() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    let scene = Scene::new(&marking(24))?;
    let mut client = scene.command(&daemon, &["--parallel", "4"]).stderr(Stdio::null()).spawn()?;
    until("some results", async || Ok(scene.results().is_ok_and(|results| results.len() >= 6))).await?;
    daemon.kill9()?;
    let before = scene.results()?;
    daemon.start_again().await?;
    // The client waits for the daemon and takes the rest in.
    let status = tokio::time::timeout(PATIENCE, client.wait()).await??;
    assert_eq!(status.code(), Some(0));
    let results = scene.results()?;
    assert_eq!(results.len(), 24);
    for (id, result) in before {
        assert_eq!(results[&id], result, "what had a result was not run again");
    }
    nothing_left(&daemon).await?;
    // One sandbox for each task, and one more for each that had begun and had no result on the disk: those in the four
    // places, and those whose result was on its way.
    let starts = starts_of(&daemon).await?;
    let (whole, cut) =
        (starts.get("run_finished").copied().unwrap_or(0), starts.get("daemon_restarted").copied().unwrap_or(0));
    ensure!(whole + cut >= 24 && whole + cut <= 24 + 8, "{starts:?}");
    ensure!(cut <= 8, "{starts:?}");
    Ok(())
}

#[tokio::test]
async fn a_crash_before_or_after_a_result_is_written_loses_and_repeats_none() -> Result<()> {
    let mut daemon = Daemon::start().await?;
    daemon.stop().await?;
    daemon.start_again_failing_at("batch-written:2").await?;
    let scene = Scene::new(&marking(6))?;
    let mut client = scene.command(&daemon, &["--parallel", "1"]).stderr(Stdio::null()).spawn()?;
    daemon.wait_until_killed().await?;
    let batch = std::fs::read_dir(daemon.data_dir().join("batches"))?.next().context("no batch")??.path();
    let written = results_in(&batch)?;
    assert_eq!(written.len(), 2, "one told, one on the disk alone");
    // As a crash in the middle of a write would leave it.
    let mut cut = std::fs::read(batch.join("results.jsonl"))?;
    cut.extend_from_slice(b"{\"id\": \"t5\", \"exit_co");
    std::fs::write(batch.join("results.jsonl"), cut)?;
    daemon.start_again().await?;
    assert_eq!(tokio::time::timeout(PATIENCE, client.wait()).await??.code(), Some(0));
    let results = scene.results()?;
    assert_eq!(results.keys().collect::<BTreeSet<_>>().len(), 6);
    for (id, result) in written {
        assert_eq!(results[&id], result);
    }
    nothing_left(&daemon).await
}

#[tokio::test]
async fn an_interrupt_ends_what_runs_and_can_be_resumed() -> Result<()> {
    let daemon = Daemon::start().await?;
    let mut tasks = marking(4);
    tasks.push(json!({"id": "endless", "command": "[ -e /nothing ] || sleep 3"}));
    let scene = Scene::new(&tasks)?;
    let client = scene.command(&daemon, &["--parallel", "2"]).stderr(Stdio::piped()).spawn()?;
    until("some results", async || Ok(scene.results().is_ok_and(|results| !results.is_empty()))).await?;
    let pid = client.id().context("it ended")?.to_string();
    ensure!(tokio::process::Command::new("kill").args(["-INT", &pid]).status().await?.success());
    let ended = client.wait_with_output().await?;
    assert_eq!(ended.status.code(), Some(130), "{}", text(&ended.stderr));
    ensure!(text(&ended.stderr).contains("the same command goes on from here"), "{}", text(&ended.stderr));
    nothing_left(&daemon).await?;
    let before = scene.results()?;
    let batches = daemon.client().list_batches().await?;
    assert_eq!((batches.len(), batches[0].state, batches[0].done), (1, BatchState::Cancelled, before.len() as u64));

    let ran = scene.run(&daemon, &[]).await?;
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let results = scene.results()?;
    assert_eq!(results.len(), 5);
    assert!(before.iter().all(|(id, result)| results[id] == *result));
    assert_eq!(daemon.client().list_batches().await?[0].state, BatchState::Done);
    // A daemon that has forgotten the batch runs only what has no result here.
    daemon.client().delete_batch(batches[0].id.as_str()).await?;
    let lines = std::fs::read_to_string(scene.run_dir().join("results.jsonl"))?;
    let kept: String = lines.lines().take(3).flat_map(|line| [line, "\n"]).collect();
    std::fs::write(scene.run_dir().join("results.jsonl"), kept)?;
    assert_eq!(scene.run(&daemon, &[]).await?.status.code(), Some(0));
    assert_eq!(scene.results()?.len(), 5);
    assert_eq!(daemon.client().list_batches().await?[0].tasks, 2);
    nothing_left(&daemon).await
}

#[tokio::test]
async fn many_runs_leave_nothing_with_or_without_a_pool() -> Result<()> {
    let daemon = Daemon::start().await?;
    let client = daemon.client();
    client.set_pool("mini", &SetPool { min: 4, max: 8, engine: None }).await?;
    until("the pool is full", async || Ok(client.pool("mini").await?.ready == 4)).await?;
    let task = Task {
        id: None,
        command: TaskCommand::Argv(vec!["true".to_owned()]),
        env: BTreeMap::new(),
        stdin: None,
        files: Vec::new(),
        timeout: None,
    };
    let request = CreateBatch { tasks: vec![task; many()], retries: 1, ..CreateBatch::default() };
    let began = Instant::now();
    let batch = client.create_batch(&request, Some("once")).await?;
    let again = client.create_batch(&request, Some("once")).await?;
    assert_eq!(batch.id, again.id);
    let other = CreateBatch { retries: 2, ..request.clone() };
    let refused = client.create_batch(&other, Some("once")).await.expect_err("another batch under the same key");
    assert_eq!(refused.code(), Some(ErrorCode::Conflict));
    let mut results = client.batch_results(batch.id.as_str(), 0, true).await?;
    let mut ids = BTreeSet::new();
    while let Some(result) = results.next().await? {
        ensure!(result.succeeded(), "{result:?}");
        ids.insert(result.id);
    }
    assert_eq!(ids.len(), many());
    let took = began.elapsed();
    eprintln!("{} runs in {took:?}: {:.1} per second", many(), many() as f64 / took.as_secs_f64());
    ensure!(client.pool("mini").await?.taken >= 4);
    client.set_pool("mini", &SetPool { min: 0, max: 0, engine: None }).await?;
    nothing_left(&daemon).await
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_runs() -> Result<()> {
    let daemon = Daemon::start().await?;
    for (lines, more, part) in [
        ("{\"command\": \"true\"}\n{\"command\": ", &[][..], "tasks.jsonl, line 2: "),
        (
            "{\"command\": \"true\", \"id\": \"a\"}\n{\"command\": \"true\", \"id\": \"a\"}",
            &[],
            "line 2: the id `a` is already",
        ),
        ("{\"command\": \"true\"}", &["--parallel", "0"], "0 tasks at once"),
        ("{\"command\": \"true\"}", &["--memory", "1"], "limit `memory` of 1"),
        ("\n", &[], "has no tasks"),
    ] {
        let scene = Scene::of(lines)?;
        let refused = scene.run(&daemon, more).await?;
        assert_eq!(refused.status.code(), Some(125), "{part}");
        ensure!(text(&refused.stderr).contains(part), "{part}: {}", text(&refused.stderr));
    }
    let scene = Scene::new(&marking(1))?;
    let unknown = daemon.roost(&["batch", "nope", "--tasks"]).arg(scene.tasks()).output().await?;
    assert_eq!(unknown.status.code(), Some(125));
    ensure!(text(&unknown.stderr).contains("no template named `nope`"), "{}", text(&unknown.stderr));
    // What was refused does not stand in the way of what is right.
    let run_dir = scene.run_dir();
    std::fs::remove_dir_all(&run_dir)?;
    assert_eq!(scene.run(&daemon, &[]).await?.status.code(), Some(0));
    std::fs::write(scene.tasks(), "{\"command\": \"false\"}")?;
    let other = scene.run(&daemon, &[]).await?;
    ensure!(text(&other.stderr).contains("is the run folder of other tasks"), "{}", text(&other.stderr));
    assert_eq!(daemon.client().list_batches().await?.len(), 1);
    Ok(())
}
