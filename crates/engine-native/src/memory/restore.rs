//! Brings a sandbox back from its image.

use std::io;
use std::path::Path;
use std::time::Duration;

use roost_engine::{EngineError, GuestLink, Running, StartSpec};
use roost_engine_group::{Heard, blocking, group_limits, step_failed};
use roost_sys::cgroup::GroupLimits;

use super::image::{ImageInfo, size_of};
use super::refusal::{Refusal, ended_by};
use crate::engine::Inner;
use crate::launch::{Failure, Job, Report, RestoreSpec};
use crate::launcher::Launcher;
use crate::processors::confine;
use crate::start::{Progress, failed, heard_or_ended, layers, owner};

/// How long a restore may take; reading much memory from a slow disk is what takes long.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(120);

/// What the parts of a restore name when memory comes while it runs already.
const PAGES_SERVED: &str = "pages served";

/// Limits for CRIU on top of what it restores: it has processes and memory of its own in there, and is in a hurry.
fn with_room(spec: &StartSpec) -> GroupLimits {
    let limits = group_limits(&spec.limits);
    GroupLimits {
        memory: limits.memory + (64 << 20),
        milli_cpus: limits.milli_cpus.max(64_000),
        pids: limits.pids + 64,
    }
}

impl Inner {
    /// Restores, or leaves nothing.
    pub(crate) async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError> {
        let outcome = self.attempt_restore(&spec, image).await;
        if outcome.is_err()
            && let Err(error) = self.groups.clear(spec.id.as_str()).await
        {
            tracing::warn!(%error, sandbox = %spec.id, "failed to clear up after a failed restore");
        }
        outcome
    }

    async fn attempt_restore(&self, spec: &StartSpec, image: &Path) -> Result<Running, EngineError> {
        let mut progress = Progress::of(spec);
        let criu = self.criu("restore memory")?;
        let layers = layers(spec);
        let (info, bytes) = self.read_image(spec, image, layers.uid_base).await?;
        let control = failed("prepare control groups", &spec.id);
        let room = with_room(spec);
        let mut launcher = self.launcher_for(&spec.id, &room).await.map_err(&control)?;
        progress.lap("control groups");
        self.reserve.refill();
        let place = self.place_for_pages(&spec.id, bytes).await.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %spec.id, %error, "nobody can serve its memory: all of it is read first");
            None
        });
        let job = RestoreSpec {
            criu: criu.clone(),
            layers,
            guest: info.guest,
            image: image.to_owned(),
            lost: info.lost,
            unified: self.group(&spec.id).unified_folder(),
            owner: owner(&spec.id),
            groups: self.shown_groups(&spec.id),
            hostname: spec.hostname.clone(),
            pages: place.clone(),
        };
        // Side by side: the launcher mounts its root and starts CRIU meanwhile.
        let begin = launcher.begin(&Job::Restore(job), &[]).await;
        let pages = match &place {
            Some(folder) => self.serve_pages(&spec.id, &criu, image, folder).await,
            None => None,
        };
        let begun = match (begin, &place) {
            (Ok(()), Some(_)) => launcher.served(pages.is_some()).await,
            (begin, _) => begin,
        };
        if let Err(error) = begun {
            tracing::debug!(sandbox = %spec.id, %error, "the launcher has ended: it says why");
        }
        if pages.is_some() {
            progress.lap(PAGES_SERVED);
        }
        let outcome = self.run_restore(launcher, &mut progress).await;
        match (outcome.is_ok(), pages) {
            (true, Some(pages)) => pages.follow(&spec.id),
            (false, Some(pages)) => self.dismiss_pages(&spec.id, pages).await,
            (_, None) => {}
        }
        outcome?;
        let (group, limits) = (self.group(&spec.id), group_limits(&spec.limits));
        let processors = self.processors.choose(limits.milli_cpus);
        let narrow = self.processors.is_narrow(&processors);
        let limited = blocking(move || {
            group.set_limits(&limits).map_err(io::Error::other)?;
            // CRIU restores threads to every processor that it has itself.
            if narrow {
                confine(&group, &processors);
            }
            Ok(())
        });
        limited.await.map_err(&control)?;
        progress.lap("all");
        Ok(Running { link: GuestLink::Slot, parts_us: progress.parts })
    }

    async fn run_restore(&self, mut launcher: Launcher, progress: &mut Progress<'_>) -> Result<(), EngineError> {
        let spec = progress.spec;
        let talk = failed("talk to the launcher", &spec.id);
        let heard = tokio::time::timeout(RESTORE_TIMEOUT, self.follow_restore(&mut launcher, progress)).await;
        let launcher = heard_or_ended(launcher, heard, &spec.id, RESTORE_TIMEOUT).await?;
        launcher.finish().await.map_err(&talk)
    }

    /// What is known of the image, and its size.
    async fn read_image(&self, spec: &StartSpec, image: &Path, uid_base: u32) -> Result<(ImageInfo, u64), EngineError> {
        let unfit = |why: String| EngineError::ImageUnfit { id: spec.id.clone(), why };
        let folder = image.to_owned();
        let read = blocking(move || Ok((ImageInfo::read(&folder)?, size_of(&folder)?))).await;
        let (info, bytes) = read.map_err(|e| unfit(format!("it cannot be read: {e}")))?;
        match info.misfit(&self.memory.image_version().unwrap_or_default(), uid_base) {
            Some(why) => Err(unfit(why)),
            None => Ok((info, bytes)),
        }
    }

    async fn follow_restore(&self, launcher: &mut Launcher, progress: &mut Progress<'_>) -> Result<(), EngineError> {
        let id = &progress.spec.id;
        loop {
            match launcher.next().await.map_err(failed("talk to the launcher", id))? {
                Some(Heard::Report(Report::Born { .. })) => {
                    self.born(launcher.take_descriptors(), progress)?;
                    // Connections are restored with their addresses, which must be there by then.
                    progress.await_network().await?;
                    launcher.plugged().await.map_err(failed("talk to the launcher", id))?;
                }
                Some(Heard::Report(Report::Done { kernel_cache, timings })) => {
                    if let Some(cache) = kernel_cache {
                        self.memory.learn(cache);
                    }
                    progress.parts.extend(timings.into_iter().map(|(step, us)| (step.name(), us)));
                    return Ok(());
                }
                Some(Heard::Report(Report::CriuFailed { signal: Some(signal), .. })) => {
                    let detail = ended_by(signal);
                    return Err(EngineError::Failed { step: "restore memory", id: id.clone(), detail });
                }
                Some(Heard::Report(Report::CriuFailed { log, .. })) => {
                    tracing::debug!(sandbox = %id, log, "criu could not restore a sandbox");
                    return Err(EngineError::ImageUnfit { id: id.clone(), why: Refusal::read(&log).why });
                }
                Some(Heard::Report(Report::Failed(Failure { step, detail, full }))) => {
                    return Err(step_failed(step.name(), detail, full, id));
                }
                Some(_) => {}
                None => {
                    let detail = "the launcher ended in the middle".to_owned();
                    return Err(EngineError::Failed { step: "restore memory", id: id.clone(), detail });
                }
            }
        }
    }
}
