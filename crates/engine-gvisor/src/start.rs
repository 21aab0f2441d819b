//! Starts or restores a sandbox: control groups, a keeper, the network, runsc, until the guest is there.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use roost_engine::{DiskSource, EngineError, GuestLink, Running, StartSpec};
use roost_engine_group::{Frame, Heard, Spare, blocking, step_failed};
use roost_model::SandboxId;

use crate::bundle;
use crate::engine::Inner;
use crate::keep::{Failure, Graft, Job, Report, Sandbox};
use crate::keeper::{Ahead, Keeper, born};
use crate::limits::{self, bound, widen};

/// How long a sandbox may take until its guest listens; much memory from a slow disk is what takes long.
const LONGEST: Duration = Duration::from_secs(120);

/// What is known of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestIs {
    Awaited,
    There,
    /// It let go of its socket without a word.
    Silent,
}

/// What a sandbox is restored from.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The folder of the image.
    pub(crate) image: PathBuf,
    /// The guest's program that was running, which its memory is mapped from.
    pub(crate) guest: PathBuf,
    /// The host name that its processes know.
    pub(crate) hostname: String,
}

impl Inner {
    /// Starts, or leaves nothing.
    pub(crate) async fn start(&self, spec: StartSpec, origin: Option<Origin>) -> Result<Running, EngineError> {
        self.narrowing.forget(&spec.id);
        if let Some(spare) = self.made_ahead(&spec, origin.is_some()) {
            match self.timed(&spec, self.graft(&spec, origin.as_ref(), spare)).await {
                // Somebody may have ended what waited; that is no reason not to start.
                Err(error) => tracing::warn!(%error, sandbox = %spec.id, "failed to start in what was made ahead"),
                running => return running,
            }
        }
        self.timed(&spec, self.attempt(&spec, origin.as_ref())).await
    }

    fn made_ahead(&self, spec: &StartSpec, restored: bool) -> Option<Spare<Ahead>> {
        let (reserve, memory) = (self.reserve.as_ref()?, spec.limits.memory);
        if !restored {
            reserve.maker().memory.store(memory, Ordering::Relaxed);
        }
        reserve.take_if(|made| restored || made.memory == memory)
    }

    async fn timed(
        &self,
        spec: &StartSpec,
        attempt: impl Future<Output = Result<Running, EngineError>>,
    ) -> Result<Running, EngineError> {
        let outcome = match tokio::time::timeout(LONGEST, attempt).await {
            Ok(outcome) => outcome,
            Err(_) => Err(EngineError::GuestSilent { id: spec.id.clone(), seconds: LONGEST.as_secs() }),
        };
        if outcome.is_err()
            && let Err(error) = self.groups.clear(spec.id.as_str()).await
        {
            tracing::warn!(%error, sandbox = %spec.id, "failed to clear up after a failed start");
        }
        outcome
    }

    async fn attempt(&self, spec: &StartSpec, origin: Option<&Origin>) -> Result<Running, EngineError> {
        let mut laps = Laps::new();
        let id = &spec.id;
        let (group, limits, restored) = (self.groups.group(id), limits::outer(&spec.limits), origin.is_some());
        let made = blocking(move || {
            group.create().map_err(io::Error::other)?;
            group.set_limits(&limits).map_err(io::Error::other)?;
            if restored {
                widen(&group);
            }
            Ok(())
        });
        made.await.map_err(failed("prepare control groups", id))?;
        laps.lap("control groups");
        let keeper = Keeper::start(&self.config.keeper, &self.job(spec, origin)?).await;
        let mut keeper = keeper.map_err(failed("start the keeper", id))?;
        self.converse(&mut keeper, spec, origin.is_none(), &mut laps).await?;
        self.settle(keeper, spec, origin, laps).await
    }

    /// Starts or restores in what was made ahead: its group becomes that of the sandbox, and it gets the sandbox's disk.
    async fn graft(
        &self,
        spec: &StartSpec,
        origin: Option<&Origin>,
        Spare { made, group: from, name }: Spare<Ahead>,
    ) -> Result<Running, EngineError> {
        let mut laps = Laps::new();
        let id = &spec.id;
        let Ahead { mut keeper, first, network, .. } = made;
        let (group, limits, restored) = (self.groups.group(id), limits::outer(&spec.limits), origin.is_some());
        let taken = blocking(move || {
            let taken = group.take_over(&from).and_then(|()| group.create()).and_then(|()| group.set_limits(&limits));
            taken.map_err(io::Error::other)?;
            if restored {
                widen(&group);
            }
            Ok(())
        })
        .await;
        if let Err(source) = taken {
            // Half of it may still have the old name, which the reserve no longer cares for.
            crate::keeper::end(keeper, &first).await;
            self.groups.clear(&name).await.ok();
            self.release(&name);
            return Err(failed("prepare control groups", id)(source));
        }
        self.release(&name);
        laps.lap("control groups");
        let talk = failed("talk to the keeper", id);
        let graft = Graft { guest: self.guest_of(origin), sandbox: sandbox(spec, origin) };
        keeper.tell(&graft).await.map_err(&talk)?;
        self.plug(first, network, spec).await?;
        laps.lap("network");
        keeper.wire.send(&[Frame::PLUGGED]).await.map_err(&talk)?;
        if origin.is_none() {
            keeper.guest.send(&spec.guest_config).await.map_err(&talk)?;
        }
        self.converse(&mut keeper, spec, origin.is_none(), &mut laps).await?;
        self.settle(keeper, spec, origin, laps).await
    }

    fn release(&self, name: &str) {
        if let Some(reserve) = &self.reserve {
            reserve.release(name);
        }
    }

    /// What is left to do once it runs.
    async fn settle(
        &self,
        keeper: Keeper,
        spec: &StartSpec,
        origin: Option<&Origin>,
        mut laps: Laps,
    ) -> Result<Running, EngineError> {
        let id = &spec.id;
        keeper.finish().await.map_err(failed("wait for the keeper", id))?;
        if let Some(origin) = origin
            && origin.hostname != spec.hostname
        {
            let hostname = spec.hostname.clone();
            let renamed =
                self.in_place("change the host name", id, move |place| place.connect()?.set_hostname(&hostname));
            renamed.await?;
            laps.lap("renamed");
        }
        if origin.is_some() {
            self.narrow_soon(id);
        }
        laps.lap("all");
        Ok(Running { link: GuestLink::Slot, parts_us: laps.parts })
    }

    fn guest_of(&self, origin: Option<&Origin>) -> PathBuf {
        origin.map_or_else(|| self.config.guest.clone(), |origin| origin.guest.clone())
    }

    fn job(&self, spec: &StartSpec, origin: Option<&Origin>) -> Result<Job, EngineError> {
        let group = self.groups.group(&spec.id);
        Ok(Job {
            join: group.join_files(),
            unified: group.unified_folder(),
            runsc: self.tool("start a sandbox")?.program.clone(),
            guest: self.guest_of(origin),
            bundle: bundle::of(Some(&spec.hostname), spec.limits.memory),
            sandbox: Some(sandbox(spec, origin)),
        })
    }

    /// Until the sandbox is up and, if it is a new one, its guest has said that it listens.
    async fn converse(
        &self,
        keeper: &mut Keeper,
        spec: &StartSpec,
        new: bool,
        laps: &mut Laps,
    ) -> Result<(), EngineError> {
        let id = &spec.id;
        let talk = failed("talk to the keeper", id);
        let (mut up, mut guest) = (false, if new { GuestIs::Awaited } else { GuestIs::There });
        while !(up && guest == GuestIs::There) {
            let heard = tokio::select! {
                heard = keeper.wire.next() => heard.map_err(&talk)?,
                heard = keeper.guest.next::<Report>(), if guest == GuestIs::Awaited => {
                    guest = match heard.map_err(&talk)? {
                        Some(Heard::Ready) => GuestIs::There,
                        // The keeper knows why, and is about to say so.
                        _ => GuestIs::Silent,
                    };
                    laps.lap("guest ready");
                    continue;
                }
            };
            match heard {
                Some(Heard::Report(Report::Born)) => {
                    laps.lap("born");
                    let (first, network) = born(&mut keeper.wire).map_err(&talk)?;
                    self.plug(first, network, spec).await?;
                    laps.lap("network");
                    keeper.wire.send(&[Frame::PLUGGED]).await.map_err(&talk)?;
                    if new {
                        keeper.guest.send(&spec.guest_config).await.map_err(&talk)?;
                    }
                }
                Some(Heard::Report(Report::Up)) => {
                    if !new {
                        let group = self.groups.group(id);
                        // Processes inside run already: the sooner, the less they take of the raised limit.
                        let bounded = blocking(move || {
                            bound(&group);
                            Ok(())
                        });
                        bounded.await.map_err(&talk)?;
                    }
                    laps.lap("runsc");
                    up = true;
                }
                Some(Heard::Report(Report::Failed(Failure { step, detail, full }))) => {
                    return Err(step_failed(step.name(), detail, full, id));
                }
                Some(Heard::Report(Report::Waiting) | Heard::Ready) | None => {
                    let detail = "the first process ended before the guest listened".to_owned();
                    return Err(EngineError::Failed { step: "start the guest", id: id.clone(), detail });
                }
            }
        }
        Ok(())
    }

    /// From here on its end is noticed. runsc takes the addresses off the device that it finds, so the network comes first.
    async fn plug(&self, first: OwnedFd, network: OwnedFd, spec: &StartSpec) -> Result<(), EngineError> {
        let watched = self.groups.watcher.add(spec.id.as_str(), first);
        watched.map_err(failed("watch the first process", &spec.id))?;
        spec.network.plug(network).await
    }
}

fn sandbox(spec: &StartSpec, origin: Option<&Origin>) -> Sandbox {
    let DiskSource::Layers { lower, subvolume } = &spec.disk;
    Sandbox {
        lower: lower.clone(),
        subvolume: subvolume.clone(),
        hostname: origin.map_or_else(|| spec.hostname.clone(), |origin| origin.hostname.clone()),
        image: origin.map(|origin| origin.image.clone()),
    }
}

/// A stopwatch that says when each part ended.
#[derive(Debug)]
pub(crate) struct Laps {
    begun: Instant,
    pub(crate) parts: Vec<(&'static str, u64)>,
}

impl Laps {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), parts: Vec::with_capacity(8) }
    }

    pub(crate) fn lap(&mut self, what: &'static str) {
        self.parts.push((what, u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)));
    }
}

pub(crate) fn failed(step: roost_engine::Step, id: &SandboxId) -> impl Fn(io::Error) -> EngineError {
    let id = id.clone();
    move |source| EngineError::Io { step, id: id.clone(), source }
}
