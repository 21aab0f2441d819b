//! `roost batch`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::{BatchResults, Client, ClientError};
use roost_model::{
    BatchState, BatchView, CreateBatch, ErrorCode, LimitsRequest, NetworkPolicy, Span, Task, TaskResult,
};
use serde::Serialize;

use crate::batch::{Begun, RunFolder, Signs, read_tasks};
use crate::complete;
use crate::failure::{INTERRUPTED, hinted};
use crate::output;
use crate::units::{parse_env, parse_size, show_time};

/// Results that are written together.
const TOGETHER: usize = 256;
/// How long a daemon that restarts is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Run many commands, each in a sandbox of its own that is gone afterwards
///
/// The daemon runs them; results are written to a run folder as they come. The same command with the same folder goes on
/// where it was cut off: a task that has a result is not run again. Ctrl-C ends what runs.
#[derive(Debug, Args)]
#[command(after_help = "\
A task is a line of JSON: {\"command\": \"echo hello\"} or {\"command\": [\"echo\", \"hello\"]}, and where wanted
\"id\", \"env\", \"stdin\", \"timeout\" and \"files\": [{\"path\": \"/root/a\", \"text\": \"…\"}] (or \"base64\").

Exit codes: 0 if every command ended with 0; 1 otherwise; 125 Roost failed; 130 interrupted.

Examples:
  roost batch mini --tasks tasks.jsonl
  roost batch base --tasks tasks.jsonl --parallel 8 --timeout 5m --memory 512m --retries 2
  roost batch base --tasks tasks.jsonl --run-dir monday --json
  generate-tasks | roost batch base --tasks - --run-dir monday")]
pub(crate) struct BatchArgs {
    /// Start each sandbox from TEMPLATE
    #[arg(add = ArgValueCompleter::new(complete::templates))]
    template: String,
    /// Read tasks from FILE, one line of JSON each; `-` for standard input
    #[arg(long, value_name = "FILE")]
    tasks: PathBuf,
    /// Run N at once; twice the daemon's processors otherwise
    #[arg(long, value_name = "N")]
    parallel: Option<u32>,
    /// Keep results in DIR; beside the tasks otherwise, `tasks.run` for `tasks.jsonl`
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Try a task that Roost could not run N more times
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Try a task again also if its command fails
    #[arg(long, requires = "retries")]
    retry_exit: bool,
    /// Kill a task after TIME, for example 10s, unless it says otherwise
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// Set a variable for every task; KEY alone takes the value it has here
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = parse_env)]
    env: Vec<(String, String)>,
    /// Isolate with ENGINE
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Give each N CPUs, for example 0.5
    #[arg(long, value_name = "N", help_heading = "Limits")]
    cpus: Option<f64>,
    /// Give each this much memory, for example 512m
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    memory: Option<u64>,
    /// Give each this much disk, for example 10g
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    disk: Option<u64>,
    /// Give each at most N processes and threads
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pids: Option<u64>,
    /// Cut them off from the network
    #[arg(long)]
    no_network: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What came of a run.
#[derive(Debug, Serialize)]
struct Summary {
    batch: String,
    run_dir: PathBuf,
    state: BatchState,
    tasks: u64,
    succeeded: u64,
    failed: u64,
    errors: u64,
    seconds: f64,
}

pub(crate) async fn batch(client: &Client, wanted: BatchArgs) -> anyhow::Result<u8> {
    let began = Instant::now();
    if wanted.parallel == Some(0) {
        return Err(hinted("0 tasks at once would never end", "leave --parallel out, or give it a number from 1 on"));
    }
    let (tasks, bytes) = read_tasks(&wanted.tasks)?;
    let mut folder = RunFolder::open(&run_dir(&wanted)?)?;
    let digest = blake3::hash(&[wanted.template.as_bytes(), b"\n", &bytes].concat()).to_hex().to_string();
    let total = tasks.len() as u64;
    let resumed = folder.begun()?;
    if let Some(begun) = &resumed
        && begun.digest != digest
    {
        let message = format!("`{}` is the run folder of other tasks or another template", folder.path().display());
        return Err(hinted(message, "give another --run-dir, or remove that one"));
    }
    let mut signs = Signs::new(total, folder.count);
    if resumed.is_some() && folder.count >= total {
        signs.say(&format!("every task has a result in `{}` already", folder.path().display()));
        drop(signs);
        return finish(&wanted, &folder, "", BatchState::Done, total, began);
    }
    let (batch, begun) = ask(client, &wanted, tasks, &folder, resumed, digest).await?;
    let id = batch.id.as_str().to_owned();
    let followed = tokio::select! {
        followed = follow(client, &id, &begun, &mut folder, &mut signs) => followed,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            signs.say("ending what runs…");
            client.cancel_batch(&id).await?;
            // What came to its end before it was cancelled is kept.
            drain(client, &id, &begun, &mut folder).await?;
            drop(signs);
            eprintln!("{} of {total} tasks done; the same command goes on from here", folder.count);
            return Ok(INTERRUPTED);
        }
    };
    let state = followed?;
    drop(signs);
    finish(&wanted, &folder, &id, state, total, began)
}

/// Where results go unless told otherwise: beside the tasks.
fn run_dir(wanted: &BatchArgs) -> anyhow::Result<PathBuf> {
    match &wanted.run_dir {
        Some(path) => Ok(path.clone()),
        None if wanted.tasks == Path::new("-") => {
            Err(hinted("tasks from standard input need a folder for their results", "add --run-dir DIR"))
        }
        None => Ok(wanted.tasks.with_extension("run")),
    }
}

/// The batch of this run: the one that the folder is of, or a new one of all tasks that have no result.
async fn ask(
    client: &Client,
    wanted: &BatchArgs,
    tasks: Vec<Task>,
    folder: &RunFolder,
    resumed: Option<Begun>,
    digest: String,
) -> anyhow::Result<(BatchView, Begun)> {
    if let Some(begun) = resumed {
        let all = client.list_batches().await?;
        let known = all.into_iter().find(|batch| batch.key.as_deref() == Some(begun.key.as_str()));
        if let Some(mut batch) = known {
            if batch.state == BatchState::Cancelled {
                batch = client.resume_batch(batch.id.as_str()).await?;
            }
            return Ok((batch, begun));
        }
    }
    let done = folder.done()?;
    // The place of a task is its id, and must not change when others are left out.
    let tasks = (1..).zip(tasks).map(|(place, task)| Task { id: Some(task.id_at(place)), ..task });
    let tasks: Vec<Task> = tasks.filter(|task| task.id.as_ref().is_none_or(|id| !done.contains(id))).collect();
    let limits =
        LimitsRequest { cpus: wanted.cpus, memory: wanted.memory, disk: wanted.disk, pids: wanted.pids, images: None };
    let request = CreateBatch {
        template: Some(wanted.template.clone()),
        engine: wanted.engine.clone(),
        tasks,
        parallel: wanted.parallel,
        retries: wanted.retries,
        retry_exit: wanted.retry_exit,
        timeout: wanted.timeout,
        limits: (limits != LimitsRequest::default()).then_some(limits),
        network: wanted.no_network.then_some(NetworkPolicy { enabled: false }),
        env: wanted.env.iter().cloned().collect(),
    };
    let begun = Begun { digest, key: roost_model::BatchId::generate().to_string(), before: folder.count };
    folder.begin(&begun)?;
    let batch = client.create_batch(&request, Some(&begun.key)).await?;
    Ok((batch, begun))
}

/// Writes results down until the batch has ended; a daemon that restarts meanwhile is waited for.
async fn follow(
    client: &Client,
    id: &str,
    begun: &Begun,
    folder: &mut RunFolder,
    signs: &mut Signs,
) -> anyhow::Result<BatchState> {
    let mut away: Option<Instant> = None;
    loop {
        let before = folder.count;
        let ended = match client.batch_results(id, folder.count - begun.before, true).await {
            Ok(results) => copy(results, folder, Some(signs)).await?,
            Err(error) => Some(error),
        };
        if folder.count > before {
            away = None;
        }
        let state = match ended {
            None => client.batch(id).await.map(|batch| batch.state),
            Some(error) => Err(error),
        };
        match state {
            Ok(BatchState::Running) => away = None,
            Ok(state) => return Ok(state),
            Err(error) if error.is_retryable() => {
                let since = *away.get_or_insert_with(|| {
                    signs.say("the daemon is away; waiting for it");
                    Instant::now()
                });
                if since.elapsed() > PATIENCE {
                    return Err(error.into());
                }
            }
            Err(error) if error.code() == Some(ErrorCode::BatchNotFound) => {
                bail!("the batch {id} was removed; the same command runs what is left");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Takes in what there is already.
async fn drain(client: &Client, id: &str, begun: &Begun, folder: &mut RunFolder) -> anyhow::Result<()> {
    let results = client.batch_results(id, folder.count - begun.before, false).await?;
    match copy(results, folder, None).await? {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Writes results as they come, several at once where they come fast; returns what broke the stream, if anything did.
async fn copy(
    mut results: BatchResults,
    folder: &mut RunFolder,
    mut signs: Option<&mut Signs>,
) -> anyhow::Result<Option<ClientError>> {
    let mut gathered: Vec<TaskResult> = Vec::new();
    loop {
        // What is at hand goes together; the first one is waited for.
        let next = tokio::select! {
            biased;
            next = results.next() => next,
            () = std::future::ready(()), if !gathered.is_empty() => {
                write(&mut gathered, folder, signs.as_deref_mut())?;
                continue;
            }
        };
        match next {
            Ok(Some(result)) => gathered.push(result),
            Ok(None) => {
                write(&mut gathered, folder, signs)?;
                return Ok(None);
            }
            Err(error) => {
                write(&mut gathered, folder, signs)?;
                return Ok(Some(error));
            }
        }
        if gathered.len() >= TOGETHER {
            write(&mut gathered, folder, signs.as_deref_mut())?;
        }
    }
}

fn write(gathered: &mut Vec<TaskResult>, folder: &mut RunFolder, signs: Option<&mut Signs>) -> anyhow::Result<()> {
    if gathered.is_empty() {
        return Ok(());
    }
    folder.append(gathered)?;
    gathered.clear();
    if let Some(signs) = signs {
        signs.tell(folder.count, folder.failed + folder.errors);
    }
    Ok(())
}

fn finish(
    wanted: &BatchArgs,
    folder: &RunFolder,
    batch: &str,
    state: BatchState,
    tasks: u64,
    began: Instant,
) -> anyhow::Result<u8> {
    let took = began.elapsed();
    let summary = Summary {
        batch: batch.to_owned(),
        run_dir: folder.path().to_owned(),
        state,
        tasks,
        succeeded: folder.succeeded,
        failed: folder.failed,
        errors: folder.errors,
        seconds: took.as_secs_f64(),
    };
    if wanted.json {
        output::json(&summary)?;
    } else {
        let Summary { succeeded, failed, errors, .. } = summary;
        output::line(format!(
            "{tasks} tasks: {succeeded} succeeded, {failed} failed, {errors} could not be run; {}, results in {}",
            show_time(took),
            folder.path().display()
        ))?;
    }
    if state == BatchState::Cancelled {
        return Err(hinted("the batch was cancelled", "the same command goes on with what is left"));
    }
    Ok(u8::from(summary.succeeded != tasks))
}
