//! Runs the tasks of a batch, a bounded number at once, and writes their results down.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use roost_model::{BatchState, CreateBatch, TaskResult, chain};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Batch, Run, task};
use crate::blocking;
use crate::failpoint::fail_point;
use crate::host::Host;

/// Results that may wait to be written; they are written together.
const WAITING: usize = 256;
/// Pause before another attempt to write results.
const RETRY: Duration = Duration::from_secs(1);

/// What the tasks of a batch share.
#[derive(Debug)]
pub(super) struct Shop {
    pub(super) host: Host,
    pub(super) wanted: CreateBatch,
    /// Sandboxes whose task is done go in the background; so many may be on their way out.
    pub(super) ending: Arc<Semaphore>,
    pub(super) ends: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Host {
    /// Runs what has no result yet, in the background.
    pub(super) fn start_batch(&self, batch: &Arc<Batch>, wanted: CreateBatch, done: HashSet<String>) {
        let run = Run { stop: self.shared.leaving.child_token(), work: TaskTracker::new() };
        let (stop, work) = (run.stop.clone(), run.work.clone());
        *batch.run() = run;
        let parallel = usize::try_from(batch.meta.parallel).unwrap_or(1);
        let shop = Shop {
            host: self.clone(),
            wanted,
            ending: Arc::new(Semaphore::new(parallel)),
            ends: TaskTracker::new(),
            stop,
        };
        work.spawn(run_batch(batch.clone(), Arc::new(shop), done, parallel));
    }
}

async fn run_batch(batch: Arc<Batch>, shop: Arc<Shop>, done: HashSet<String>, parallel: usize) {
    let (results, written) = mpsc::channel(WAITING);
    let writer = tokio::spawn(write_results(batch.clone(), written));
    let places = Arc::new(Semaphore::new(parallel));
    let tasks = TaskTracker::new();
    for (place, task) in (1..).zip(&shop.wanted.tasks) {
        let id = task.id_at(place);
        if done.contains(&id) {
            continue;
        }
        let turn = tokio::select! {
            biased;
            () = shop.stop.cancelled() => break,
            turn = places.clone().acquire_owned() => turn,
        };
        let (shop, results) = (shop.clone(), results.clone());
        tasks.spawn(async move {
            let _turn = turn;
            let outcome = tokio::select! {
                biased;
                () = shop.stop.cancelled() => None,
                outcome = task::run(&shop, &id, place - 1) => Some(outcome),
            };
            if let Some(outcome) = outcome {
                // The writer lives until the last of these is gone.
                drop(results.send(outcome).await);
            }
        });
    }
    drop(results);
    tasks.close();
    tasks.wait().await;
    if let Err(error) = writer.await {
        tracing::error!(batch = %batch.meta.id, %error, "the writer of results broke off");
    }
    // Nothing is left of it when it is called done.
    shop.ends.close();
    shop.ends.wait().await;
    let all = batch.progress.borrow().done >= batch.meta.tasks;
    if all {
        batch.progress.send_modify(|progress| progress.state = BatchState::Done);
    }
}

/// Writes what has come meanwhile in one go, and tells of it when it is on the disk.
async fn write_results(batch: Arc<Batch>, mut incoming: mpsc::Receiver<TaskResult>) {
    let mut results = Vec::new();
    while incoming.recv_many(&mut results, WAITING).await > 0 {
        let lines = Arc::new(std::mem::take(&mut results));
        loop {
            let (folder, lines) = (batch.folder.clone(), lines.clone());
            match blocking(move || folder.append(&lines)).await {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(batch = %batch.meta.id, error = %chain(&error), "could not write results");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        fail_point("batch-written");
        batch.progress.send_modify(|progress| lines.iter().for_each(|result| progress.count(result)));
    }
}
