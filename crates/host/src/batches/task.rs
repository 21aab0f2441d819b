//! One task: a sandbox, its files, its command, its result.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream;
use jiff::Timestamp;
use roost_model::{ErrorCode, ExecOutput, ExecState, StartExec, Task, TaskCommand, TaskFile, TaskResult};

use super::runner::Shop;
use super::{detail, is_passing, sandbox_of};
use crate::caller::Caller;
use crate::run::Run;
use crate::{HostError, WriteOptions};

/// Most bytes of each stream that a result holds.
const OUTPUT_LIMIT: usize = 256 << 10;
/// Pause before a task is tried again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Runs the task at a place until it has a result, whatever that is.
pub(super) async fn run(shop: &Shop, id: &str, place: usize) -> TaskResult {
    let mut attempts = 0;
    let mut pause = FIRST_PAUSE;
    loop {
        attempts += 1;
        let (started_at, began) = (Timestamp::now(), Instant::now());
        let outcome = attempt(shop, place).await;
        let again = attempts <= shop.wanted.retries
            && match &outcome {
                Ok(output) => shop.wanted.retry_exit && output.exit_code != 0,
                Err(error) => is_passing(error),
            };
        if again {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            continue;
        }
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        return result(id, outcome, TaskResult { started_at, duration_ms, attempts, ..nothing(id) });
    }
}

fn nothing(id: &str) -> TaskResult {
    TaskResult {
        id: id.to_owned(),
        exit_code: None,
        stdout: String::new(),
        stderr: String::new(),
        truncated: false,
        timed_out: false,
        started_at: Timestamp::UNIX_EPOCH,
        duration_ms: 0,
        attempts: 0,
        error: None,
    }
}

fn result(id: &str, outcome: Result<ExecOutput, HostError>, began: TaskResult) -> TaskResult {
    match outcome {
        Ok(output) => TaskResult {
            exit_code: Some(output.exit_code),
            timed_out: matches!(output.exec.status, ExecState::Exited { timed_out: true, .. }),
            stdout: output.stdout,
            stderr: output.stderr,
            truncated: output.truncated,
            ..began
        },
        Err(error) => {
            tracing::debug!(task = id, %error, "a task could not be run");
            // As a shell would say it: that the command is not there is the task's own failure.
            let exit_code = match error.code() {
                ErrorCode::CommandNotFound => Some(127),
                ErrorCode::NotExecutable => Some(126),
                _ => None,
            };
            TaskResult { exit_code, error: Some(detail(&error)), ..began }
        }
    }
}

async fn attempt(shop: &Shop, place: usize) -> Result<ExecOutput, HostError> {
    let Some(task) = shop.wanted.tasks.get(place) else {
        return Err(HostError::Internal("there is no such task".to_owned()));
    };
    let (host, sandbox) = (shop.host.clone(), sandbox_of(&shop.wanted));
    // In a task of its own: if this one is stopped meanwhile, the sandbox is made all the same, and ended.
    let made = shop.ends.spawn(async move { host.open_run(sandbox, &Caller::owner()).await }).await;
    let run = made.map_err(|error| HostError::Internal(format!("the work broke off: {error}")))??;
    let outcome = within(shop, task, &run).await;
    if let Ok(leave) = shop.ending.clone().acquire_owned().await {
        shop.ends.spawn(async move {
            run.end().await;
            drop(leave);
        });
    }
    outcome
}

async fn within(shop: &Shop, task: &Task, run: &Run) -> Result<ExecOutput, HostError> {
    for file in &task.files {
        let options = WriteOptions { mode: file.mode.clone(), parents: true, ..WriteOptions::default() };
        let content = content(file)?;
        run.handle().write_file(&file.path, &options, stream::iter([Ok::<_, HostError>(content)])).await?;
    }
    let attachment = run.start(exec_of(shop, task)).await?;
    let stdin = task.stdin.as_ref().map(|text| Bytes::copy_from_slice(text.as_bytes()));
    attachment.run_out(stdin, OUTPUT_LIMIT).await
}

fn content(file: &TaskFile) -> Result<Bytes, HostError> {
    match (&file.text, &file.base64) {
        (Some(text), _) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(coded)) => BASE64_STANDARD
            .decode(coded)
            .map(Bytes::from)
            .map_err(|error| HostError::BadRequest(format!("file `{}` is not base64: {error}", file.path))),
        (None, None) => Ok(Bytes::new()),
    }
}

fn exec_of(shop: &Shop, task: &Task) -> StartExec {
    let (argv, shell) = match &task.command {
        TaskCommand::Argv(argv) => (argv.clone(), None),
        TaskCommand::Shell(line) => (Vec::new(), Some(line.clone())),
    };
    let mut env = shop.wanted.env.clone();
    env.extend(task.env.clone());
    StartExec {
        argv,
        shell,
        env,
        stdin: task.stdin.is_some(),
        timeout: task.timeout.or(shop.wanted.timeout),
        ..StartExec::default()
    }
}
