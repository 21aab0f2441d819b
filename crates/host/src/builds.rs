//! Builds: templates made step by step, in a real sandbox.
//!
//! ```text
//! from -> [state] -step-> [state] -step-> … -> [state] -start, ready-> template
//! ```
//!
//! Each state that a step leads to is a checkpoint of the disk and is found again by the template and the steps that led
//! to it ([`plan::keys`]), so that what was done before is not done again. A build's sandbox lives no longer than the
//! daemon: one that is cut off has failed when the next daemon starts.

mod copy;
mod folder;
mod image;
mod kept;
mod plan;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use roost_model::{LimitsRequest, Name, Tag, TemplateId};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

pub use self::folder::{BuildLevel, BuildLine, BuildPart, BuildState, BuildView};
use self::folder::{Folder, failed};
use self::kept::{Kept, check_hash};
pub use self::plan::{BuildFrom, BuildPlan, BuildStep, PlannedStep};
use crate::host::Host;
use crate::{HostError, blocking};

/// Builds that are at work side by side; more wait.
const AT_ONCE: usize = 4;
/// Lines of a log that are kept; what a build says beyond is left out.
const MOST_LINES: usize = 20_000;
const LONGEST_LINE: usize = 4096;
const MOST_STEPS: usize = 500;
/// Bytes of one archive that is handed in.
const LARGEST_ARCHIVE: u64 = 4 << 30;

/// All builds of a host.
#[derive(Debug)]
pub(crate) struct Builds {
    home: PathBuf,
    known: Mutex<BTreeMap<TemplateId, Arc<Build>>>,
    turns: Arc<Semaphore>,
}

/// One build.
#[derive(Debug)]
struct Build {
    folder: Folder,
    view: Mutex<BuildView>,
    log: Mutex<Vec<BuildLine>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is replaced as a whole or appended to.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Builds {
    pub(crate) fn new(home: PathBuf) -> Self {
        Self { home, known: Mutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    fn find(&self, id: &TemplateId) -> Result<Arc<Build>, HostError> {
        let found = lock(&self.known).get(id).cloned();
        found.ok_or_else(|| HostError::BuildNotFound(id.to_string()))
    }

    fn files(&self) -> Kept {
        Kept::files(&self.home)
    }

    fn layers(&self) -> Kept {
        Kept::layers(&self.home)
    }
}

impl Build {
    fn view(&self) -> BuildView {
        lock(&self.view).clone()
    }

    /// Comes to a new state, if it is in one of which that can be said.
    async fn change(self: &Arc<Self>, from: fn(&BuildState) -> bool, to: BuildState) -> Result<(), HostError> {
        let next = {
            let mut view = lock(&self.view);
            if !from(&view.state) {
                return Err(HostError::Conflict(format!("build {} was started already", view.id)));
            }
            view.state = to;
            view.changed_at = Timestamp::now();
            view.clone()
        };
        let folder = self.folder.clone();
        blocking(move || folder.write(&next)).await.map_err(|error| failed("write a build down", &error))
    }

    /// Adds a line to the log.
    fn say(&self, part: BuildPart, level: BuildLevel, message: impl Into<String>) {
        let mut message: String = message.into();
        let mut log = lock(&self.log);
        match log.len() {
            MOST_LINES => "what follows is left out".clone_into(&mut message),
            lines if lines > MOST_LINES => return,
            _ => {}
        }
        if message.len() > LONGEST_LINE {
            let end = (0..=LONGEST_LINE).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        let line = BuildLine { at: Timestamp::now(), level, message, part };
        if let Err(error) = self.folder.append(&line) {
            tracing::debug!(%error, "could not write a line of a build's log");
        }
        log.push(line);
    }
}

impl Host {
    /// Takes a build down that is to make a template; what it does is said by [`Host::start_build`].
    pub async fn request_build(
        &self,
        name: Name,
        tags: Vec<Tag>,
        limits: LimitsRequest,
    ) -> Result<BuildView, HostError> {
        let config = &self.shared.config;
        config.default_limits.at_most(&config.host_limits).with(&limits).check(&config.host_limits)?;
        let now = Timestamp::now();
        let id = TemplateId::generate();
        let state = BuildState::Waiting;
        let view = BuildView { id: id.clone(), name, tags, limits, state, created_at: now, changed_at: now };
        let folder = Folder::of(&self.shared.builds.home, &id);
        let (written, described) = (folder.clone(), view.clone());
        blocking(move || written.write(&described)).await.map_err(|error| failed("write a build down", &error))?;
        let build = Build { folder, view: Mutex::new(view.clone()), log: Mutex::default() };
        lock(&self.shared.builds.known).insert(id, Arc::new(build));
        Ok(view)
    }

    /// Says what a build does, and lets it begin.
    pub async fn start_build(&self, id: &TemplateId, plan: BuildPlan) -> Result<(), HostError> {
        let build = self.shared.builds.find(id)?;
        if plan.steps.len() > MOST_STEPS {
            return Err(HostError::BadRequest(format!("a build has at most {MOST_STEPS} steps")));
        }
        for planned in &plan.steps {
            if let BuildStep::Copy { files, .. } = &planned.step {
                check_hash(files)?;
            }
        }
        build.change(|state| *state == BuildState::Waiting, BuildState::Building).await?;
        let (host, leaving) = (self.clone(), self.shared.leaving.clone());
        self.shared.actors.spawn(async move {
            tokio::select! {
                biased;
                // Its sandbox ends with the daemon, and the next one says what became of the build.
                () = leaving.cancelled() => {}
                () = host.carry_out(&build, &plan) => {}
            }
        });
        Ok(())
    }

    /// One build.
    pub fn build(&self, id: &TemplateId) -> Result<BuildView, HostError> {
        Ok(self.shared.builds.find(id)?.view())
    }

    /// Every build that is remembered, oldest first.
    pub fn builds(&self) -> Vec<BuildView> {
        lock(&self.shared.builds.known).values().map(|build| build.view()).collect()
    }

    /// A part of what a build said.
    pub fn build_log(&self, id: &TemplateId, from: usize, most: usize) -> Result<Vec<BuildLine>, HostError> {
        let build = self.shared.builds.find(id)?;
        let log = lock(&build.log);
        Ok(log.iter().skip(from).take(most).cloned().collect())
    }

    /// Whether an archive was handed in that steps can copy from.
    pub async fn has_build_files(&self, hash: &str) -> Result<bool, HostError> {
        check_hash(hash)?;
        let (files, hash) = (self.shared.builds.files(), hash.to_ascii_lowercase());
        let found = blocking(move || files.open(&hash)).await;
        Ok(found.map_err(|error| failed("look for an archive", &error))?.is_some())
    }

    /// Takes an archive in that steps can copy from; whole or not at all.
    pub async fn put_build_files<E>(
        &self,
        hash: &str,
        mut data: impl Stream<Item = Result<Bytes, E>> + Send + Unpin,
    ) -> Result<(), HostError>
    where
        E: std::fmt::Display,
    {
        check_hash(hash)?;
        self.shared.pool.check_room().map_err(|error| HostError::HostFull(error.to_string()))?;
        let write_error = |error: std::io::Error| failed("keep an archive", &error);
        let (files, hash) = (self.shared.builds.files(), hash.to_ascii_lowercase());
        let begun = files.clone();
        let (staged, copy) = blocking(move || {
            begun.sweep_files()?;
            let staged = begun.begin()?;
            let copy = staged.reopen()?;
            Ok((staged, copy))
        })
        .await
        .map_err(write_error)?;
        let mut file = tokio::fs::File::from_std(copy);
        let mut size = 0;
        while let Some(piece) = data.next().await {
            let piece = piece.map_err(|error| HostError::BadRequest(format!("the archive broke off: {error}")))?;
            size += piece.len() as u64;
            if size > LARGEST_ARCHIVE {
                let text = format!("an archive has at most {} GiB", LARGEST_ARCHIVE >> 30);
                return Err(HostError::LimitExceeded(text));
            }
            file.write_all(&piece).await.map_err(write_error)?;
        }
        file.flush().await.map_err(write_error)?;
        blocking(move || files.put(&hash, staged)).await.map_err(write_error)
    }

    /// Finds the builds of earlier daemons; those that were at work have failed.
    pub(crate) async fn find_builds(&self) {
        let home = self.shared.builds.home.clone();
        let found = blocking(move || {
            let folders = Folder::all(&home)?.into_iter();
            let read = folders.map(|folder| {
                let log = folder.log().unwrap_or_default();
                folder.read().map(|view| (folder, view, log))
            });
            Ok::<Vec<_>, std::io::Error>(read.collect())
        });
        let found = match found.await {
            Ok(found) => found,
            Err(error) => return tracing::error!(%error, "could not look for builds"),
        };
        for build in found {
            let (folder, view, log) = match build {
                Ok(build) => build,
                Err(error) => {
                    tracing::warn!(%error, "a build is left alone");
                    continue;
                }
            };
            let id = view.id.clone();
            let build = Arc::new(Build { folder, view: Mutex::new(view), log: Mutex::new(log) });
            let cut_off = build.view().state == BuildState::Building;
            if cut_off {
                let part = lock(&build.log).last().map_or(BuildPart::Base, |line| line.part);
                build.fail(part, "the daemon ended during the build: start it again").await;
            }
            lock(&self.shared.builds.known).insert(id, build);
        }
    }

    /// Forgets builds that ended before a moment, and what is kept for others and has not been used for long.
    pub(crate) async fn forget_builds(&self, before: Timestamp) {
        let old: Vec<Arc<Build>> = lock(&self.shared.builds.known).values().cloned().collect();
        for build in old.into_iter().filter(|build| build.view().changed_at < before) {
            let (view, folder) = (build.view(), build.folder.clone());
            if view.state == BuildState::Building {
                continue;
            }
            lock(&self.shared.builds.known).remove(&view.id);
            if let Err(error) = blocking(move || folder.remove()).await {
                tracing::warn!(build = %view.id, %error, "could not forget a build");
            }
        }
        self.sweep_builds().await;
    }

    /// Removes archives and states that are too many.
    async fn sweep_builds(&self) {
        let (files, layers) = (self.shared.builds.files(), self.shared.builds.layers());
        let swept = blocking(move || {
            files.sweep_files()?;
            layers.sweep_layers()
        });
        match swept.await {
            Ok(forgotten) => {
                for checkpoint in forgotten {
                    self.drop_layer(checkpoint.as_str()).await;
                }
            }
            Err(error) => tracing::warn!(%error, "could not sweep what builds keep"),
        }
    }

    /// Removes the checkpoint of a state that nothing is remembered by any more.
    async fn drop_layer(&self, checkpoint: &str) {
        match self.delete_checkpoint(checkpoint).await {
            Ok(()) | Err(HostError::CheckpointNotFound(_)) => {}
            Err(error) => tracing::warn!(%checkpoint, %error, "could not remove a state of a build"),
        }
    }
}
