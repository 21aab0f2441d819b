//! Batches: many commands, each in a sandbox of its own, with results that outlive the daemon.
//!
//! A batch is a folder ([`folder::Folder`]): what was asked for, and one line for each result. A task is done when its line
//! is on the disk, and only then is anybody told; what has no line when a daemon starts is run again, once.

mod folder;
mod reader;
mod runner;
mod task;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use roost_model::{
    BatchId, BatchState, BatchView, CreateBatch, CreateSandbox, ErrorCode, ErrorDetail, TaskResult, chain,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::folder::{Folder, FolderError, Meta};
pub use self::reader::BatchReader;
use crate::create::CreateKey;
use crate::host::Host;
use crate::{HostError, blocking};

/// All batches of a host.
#[derive(Debug)]
pub(crate) struct Batches {
    home: PathBuf,
    known: Mutex<BTreeMap<BatchId, Arc<Batch>>>,
    /// One is made at a time, so that a key makes one.
    making: tokio::sync::Mutex<()>,
}

/// One batch.
#[derive(Debug)]
pub(crate) struct Batch {
    meta: Meta,
    folder: Folder,
    progress: watch::Sender<Progress>,
    run: Mutex<Run>,
}

/// What runs of a batch.
#[derive(Debug, Default)]
struct Run {
    stop: CancellationToken,
    work: TaskTracker,
}

/// How far a batch has come; all of it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) state: BatchState,
    pub(crate) done: u64,
    succeeded: u64,
    failed: u64,
    errors: u64,
}

impl Progress {
    fn count(&mut self, result: &TaskResult) {
        self.done += 1;
        match result.exit_code {
            Some(0) => self.succeeded += 1,
            Some(_) => self.failed += 1,
            None => self.errors += 1,
        }
    }
}

impl Batches {
    pub(crate) fn new(home: PathBuf) -> Self {
        Self { home, known: Mutex::default(), making: tokio::sync::Mutex::new(()) }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<BatchId, Arc<Batch>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &str) -> Result<Arc<Batch>, HostError> {
        let unknown = || HostError::BatchNotFound(id.to_owned());
        let id: BatchId = id.parse().map_err(|_| unknown())?;
        self.known().get(&id).cloned().ok_or_else(unknown)
    }

    /// Ends what runs and leaves it for the next daemon.
    pub(crate) async fn pause(&self) {
        let all: Vec<Arc<Batch>> = self.known().values().cloned().collect();
        for batch in all {
            batch.stop().await;
        }
    }
}

impl Batch {
    fn run(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what runs and waits until it has ended.
    async fn stop(&self) {
        let work = {
            let run = self.run();
            run.stop.cancel();
            run.work.close();
            run.work.clone()
        };
        work.wait().await;
    }

    pub(crate) fn view(&self) -> BatchView {
        let progress = *self.progress.borrow();
        BatchView {
            id: self.meta.id.clone(),
            state: progress.state,
            template: self.meta.template.clone(),
            parallel: self.meta.parallel,
            tasks: self.meta.tasks,
            done: progress.done,
            succeeded: progress.succeeded,
            failed: progress.failed,
            errors: progress.errors,
            created_at: self.meta.created_at,
            key: self.meta.key.clone(),
        }
    }
}

impl Host {
    /// Makes a batch and starts it; the flag says whether an earlier request with the same key had made it already.
    pub async fn create_batch(
        &self,
        mut wanted: CreateBatch,
        key: Option<&CreateKey>,
    ) -> Result<(BatchView, bool), HostError> {
        wanted.check().map_err(|error| HostError::BadRequest(error.to_string()))?;
        // Everything that each of its sandboxes would be refused for.
        let (record, _) = self.record_for(sandbox_of(&wanted)).await?;
        crate::create::check_env(&wanted.env)?;
        wanted.template = Some(record.template.clone());
        let parallel = *wanted.parallel.get_or_insert_with(usual_parallel);
        let body = serde_json::to_vec(&wanted).map_err(|error| HostError::Internal(error.to_string()))?;
        let fingerprint = blake3::hash(&body).to_hex().to_string();
        let _one_at_a_time = self.shared.batches.making.lock().await;
        if let Some(key) = key
            && let Some(batch) = self.batch_of(key)
        {
            let same = batch.meta.fingerprint == fingerprint;
            let conflict = || HostError::Conflict("this idempotency key was used for another batch".to_owned());
            return if same { Ok((batch.view(), true)) } else { Err(conflict()) };
        }
        let meta = Meta {
            id: BatchId::generate(),
            template: record.template,
            parallel,
            tasks: wanted.tasks.len() as u64,
            created_at: Timestamp::now(),
            key: key.map(|key| key.as_str().to_owned()),
            fingerprint,
        };
        let (home, described) = (self.shared.batches.home.clone(), meta.clone());
        let folder = blocking(move || Folder::make(&home, &described, &body)).await?;
        let batch = self.know(folder, meta, BatchState::Running, &[]);
        self.start_batch(&batch, wanted, HashSet::new());
        Ok((batch.view(), false))
    }

    fn batch_of(&self, key: &CreateKey) -> Option<Arc<Batch>> {
        let known = self.shared.batches.known();
        known.values().find(|batch| batch.meta.key.as_deref() == Some(key.as_str())).cloned()
    }

    fn know(&self, folder: Folder, meta: Meta, state: BatchState, results: &[TaskResult]) -> Arc<Batch> {
        let mut progress = Progress { state, done: 0, succeeded: 0, failed: 0, errors: 0 };
        results.iter().for_each(|result| progress.count(result));
        let id = meta.id.clone();
        let batch = Arc::new(Batch { meta, folder, progress: watch::Sender::new(progress), run: Mutex::default() });
        self.shared.batches.known().insert(id, batch.clone());
        batch
    }

    /// Every batch, oldest first.
    pub fn batches(&self) -> Vec<BatchView> {
        self.shared.batches.known().values().map(|batch| batch.view()).collect()
    }

    /// One batch.
    pub fn batch(&self, id: &str) -> Result<BatchView, HostError> {
        Ok(self.shared.batches.find(id)?.view())
    }

    /// The results of a batch, from the one after the first `after` on.
    pub async fn batch_results(&self, id: &str, after: u64, follow: bool) -> Result<BatchReader, HostError> {
        let batch = self.shared.batches.find(id)?;
        BatchReader::open(batch.folder.results(), after, follow, batch.progress.subscribe()).await
    }

    /// Ends what runs of a batch; what has no result yet can be resumed.
    pub async fn cancel_batch(&self, id: &str) -> Result<BatchView, HostError> {
        let batch = self.shared.batches.find(id)?;
        if batch.progress.borrow().state == BatchState::Running {
            let folder = batch.folder.clone();
            blocking(move || folder.mark_cancelled(true)).await?;
            batch.stop().await;
            batch.progress.send_if_modified(|progress| {
                let running = progress.state == BatchState::Running;
                if running {
                    progress.state = BatchState::Cancelled;
                }
                running
            });
        }
        Ok(batch.view())
    }

    /// Goes on with a batch that was cancelled; one that runs or is done stays as it is.
    pub async fn resume_batch(&self, id: &str) -> Result<BatchView, HostError> {
        let batch = self.shared.batches.find(id)?;
        let _one_at_a_time = self.shared.batches.making.lock().await;
        if batch.progress.borrow().state == BatchState::Cancelled {
            let folder = batch.folder.clone();
            let (wanted, done) = blocking(move || {
                folder.mark_cancelled(false)?;
                let done = folder.read_results()?.into_iter().map(|result| result.id).collect();
                Ok::<_, FolderError>((folder.read_wanted()?, done))
            })
            .await?;
            batch.progress.send_modify(|progress| progress.state = BatchState::Running);
            self.start_batch(&batch, wanted, done);
        }
        Ok(batch.view())
    }

    /// Ends a batch and forgets it with its results.
    pub async fn delete_batch(&self, id: &str) -> Result<(), HostError> {
        let batch = self.shared.batches.find(id)?;
        self.cancel_batch(id).await?;
        let folder = batch.folder.clone();
        blocking(move || folder.remove()).await?;
        self.shared.batches.known().remove(&batch.meta.id);
        Ok(())
    }

    /// Finds the batches of earlier daemons and goes on with those that were running.
    pub async fn resume_batches(&self) {
        let home = self.shared.batches.home.clone();
        let base = self.shared.config.data_dir.clone();
        let found = match blocking(move || Folder::all(&base, &home)).await {
            Ok(found) => found,
            Err(error) => return tracing::error!(error = %chain(&error), "could not look for batches"),
        };
        for folder in found {
            if let Err(error) = self.find_batch(folder.clone()).await {
                tracing::error!(batch = %folder.path().display(), %error, "a batch is left alone");
            }
        }
    }

    async fn find_batch(&self, folder: Folder) -> Result<(), HostError> {
        let looked = folder.clone();
        let (meta, results, cancelled) = blocking(move || {
            let results = looked.read_results()?;
            Ok::<_, FolderError>((looked.read_meta()?, results, looked.is_cancelled()))
        })
        .await?;
        let state = match () {
            () if results.len() as u64 >= meta.tasks => BatchState::Done,
            () if cancelled => BatchState::Cancelled,
            () => BatchState::Running,
        };
        let batch = self.know(folder.clone(), meta, state, &results);
        if state == BatchState::Running {
            let wanted = blocking(move || folder.read_wanted()).await?;
            self.start_batch(&batch, wanted, results.into_iter().map(|result| result.id).collect());
        }
        Ok(())
    }

    /// Forgets batches that were made before a moment and do not run.
    pub(crate) async fn forget_batches(&self, before: Timestamp) {
        let old: Vec<Arc<Batch>> = self.shared.batches.known().values().cloned().collect();
        for batch in old.into_iter().filter(|batch| batch.meta.created_at < before) {
            if batch.progress.borrow().state != BatchState::Running
                && let Err(error) = self.delete_batch(batch.meta.id.as_str()).await
            {
                tracing::warn!(batch = %batch.meta.id, %error, "could not forget a batch");
            }
        }
    }
}

impl From<FolderError> for HostError {
    fn from(error: FolderError) -> Self {
        if error.is_full() { Self::HostFull(chain(&error)) } else { Self::Internal(chain(&error)) }
    }
}

/// The sandbox of each of a batch's tasks.
fn sandbox_of(wanted: &CreateBatch) -> CreateSandbox {
    CreateSandbox {
        template: wanted.template.clone(),
        engine: wanted.engine.clone(),
        ephemeral: true,
        limits: wanted.limits.clone(),
        network: wanted.network.clone(),
        ..CreateSandbox::default()
    }
}

fn usual_parallel() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(processors * 2).unwrap_or(roost_model::MOST_PARALLEL).min(roost_model::MOST_PARALLEL)
}

fn detail(error: &HostError) -> ErrorDetail {
    ErrorDetail { code: error.code(), message: chain(error), hint: error.hint() }
}

/// Whether an error is Roost's or the host's, so that the same task may work another time.
fn is_passing(error: &HostError) -> bool {
    matches!(error.code(), ErrorCode::Internal | ErrorCode::HostFull | ErrorCode::SandboxTerminated)
}
