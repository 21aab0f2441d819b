//! Starts a sandbox: control groups, a launcher, the network beside it, until the guest says that it listens.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use roost_engine::{DiskSource, EngineError, GuestLink, Running, StartSpec, UID_RANGES};
use roost_engine_group::{Heard, Spare, blocking, group_limits, step_failed};
use roost_model::SandboxId;
use roost_sys::cgroup::GroupLimits;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;

use crate::engine::Inner;
use crate::launch::{Failure, Job, LaunchSpec, Layers, Report, ShownGroup};
use crate::launcher::Launcher;

/// Ids of sandboxes' users are in these two areas on the host: above those that systemd gives to containers and that
/// `/etc/subuid` has, and above [`OWNERS`].
const UID_BASE: u32 = 0x7000_0000;
const UPPER_UID_BASE: u32 = 0xc000_0000;
/// Ranges in the lower area.
const LOWER_UID_RANGES: u32 = 4096;
const UID_RANGE: u32 = 65_536;
/// Owners of user namespaces begin here, where hosts and their containers have no users.
const OWNERS: u32 = 0x8000_0000;
/// How long a guest may take from its birth until it listens.
const GUEST_TIMEOUT: Duration = Duration::from_secs(10);

type Plugged = JoinHandle<Result<Duration, EngineError>>;

/// What came of a conversation with a launcher.
pub(crate) struct Progress<'a> {
    pub(crate) spec: &'a StartSpec,
    begun: Instant,
    pub(crate) parts: Vec<(&'static str, u64)>,
    plugged: Option<Plugged>,
}

/// The sandbox's root, in the words of a launcher.
pub(crate) fn layers(spec: &StartSpec) -> Layers {
    let DiskSource::Layers { lower, subvolume } = &spec.disk;
    let uid_base = uid_base(spec.uid_range);
    Layers { lower: lower.clone(), subvolume: subvolume.clone(), uid_base, lasting: spec.lasting }
}

fn uid_base(range: u32) -> u32 {
    // A sandbox of an unknown range gets a known one, never ids of the host.
    match range % UID_RANGES {
        lower if lower < LOWER_UID_RANGES => UID_BASE + UID_RANGE * lower,
        upper => UPPER_UID_BASE + UID_RANGE * (upper - LOWER_UID_RANGES),
    }
}

/// The host's user who owns the sandbox's user namespace, to whom the kernel charges what it counts per user.
///
/// It is the owner of no process and no file, and each sandbox has another one: the ids of its users do not do, because a fork
/// has those of its parent. Derived from the id, it is also apart from those of other daemons. The odds that any two of 8 000
/// sandboxes share an owner are 3 %, and these two then share their counts.
pub(crate) fn owner(id: &SandboxId) -> u32 {
    let hash =
        id.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    OWNERS | (hash & 0x3fff_ffff)
}

impl Inner {
    /// Starts, or leaves nothing.
    pub(crate) async fn start(&self, spec: StartSpec) -> Result<Running, EngineError> {
        let outcome = self.attempt(&spec).await;
        if outcome.is_err()
            && let Err(error) = self.groups.clear(spec.id.as_str()).await
        {
            tracing::warn!(%error, sandbox = %spec.id, "failed to clear up after a failed start");
        }
        outcome
    }

    async fn attempt(&self, spec: &StartSpec) -> Result<Running, EngineError> {
        let mut progress = Progress::of(spec);
        let limits = group_limits(&spec.limits);
        let mut launcher =
            self.launcher_for(&spec.id, &limits).await.map_err(failed("prepare control groups", &spec.id))?;
        progress.lap("control groups");
        // Now, when this sandbox has no more to change about its groups.
        self.reserve.refill();
        let talk = failed("talk to the launcher", &spec.id);
        launcher.begin(&Job::Launch(self.launch_spec(spec)), &spec.guest_config).await.map_err(&talk)?;

        let heard = tokio::time::timeout(GUEST_TIMEOUT, self.converse(&mut launcher, &mut progress)).await;
        let launcher = heard_or_ended(launcher, heard, &spec.id, GUEST_TIMEOUT).await?;
        progress.lap("guest ready");
        progress.await_network().await?;
        launcher.finish().await.map_err(&talk)?;
        progress.lap("all");
        Ok(Running { link: GuestLink::Slot, parts_us: progress.parts })
    }

    /// One from the reserve, its group renamed; or a new one, which pays for joining.
    pub(crate) async fn launcher_for(&self, id: &SandboxId, limits: &GroupLimits) -> io::Result<Launcher> {
        let (group, limits) = (self.group(id), *limits);
        let Some(spare) = self.reserve.take() else {
            let join = group.join_files();
            blocking(move || {
                group.create().map_err(io::Error::other)?;
                group.set_limits(&limits).map_err(io::Error::other)
            })
            .await?;
            return Launcher::spawn(&self.mother, join).await;
        };
        let Spare { made: launcher, group: from, name } = spare;
        let renamed = blocking(move || {
            let done = from.rename_v1(&group).and_then(|()| group.create()).and_then(|()| group.set_limits(&limits));
            if done.is_err() {
                // Half of it may still have the old name.
                from.remove().ok();
            }
            done.map_err(io::Error::other)
        })
        .await;
        self.reserve.release(&name);
        match renamed {
            Ok(()) => Ok(launcher),
            Err(e) => {
                launcher.abort().await;
                Err(e)
            }
        }
    }

    fn launch_spec(&self, spec: &StartSpec) -> LaunchSpec {
        LaunchSpec {
            hostname: spec.hostname.clone(),
            layers: layers(spec),
            guest: self.config.guest.clone(),
            unified: self.group(&spec.id).unified_folder(),
            owner: owner(&spec.id),
            groups: self.shown_groups(&spec.id),
            processors: self.processors.choose(group_limits(&spec.limits).milli_cpus),
            shared_memory: spec.limits.memory / 2,
            filters: self.filters.of(&spec.capabilities),
            capabilities: spec.capabilities.iter().map(|capability| capability.number()).collect(),
        }
    }

    /// The sandbox's control groups, as its processes may see them.
    pub(crate) fn shown_groups(&self, id: &SandboxId) -> Vec<ShownGroup> {
        let shown = self.group(id).shown().into_iter();
        shown.map(|(folder, place)| ShownGroup { folder, place: place.to_owned() }).collect()
    }

    async fn converse(&self, launcher: &mut Launcher, progress: &mut Progress<'_>) -> Result<(), EngineError> {
        let id = &progress.spec.id;
        let mut listens = false;
        loop {
            let message = launcher.next().await.map_err(failed("talk to the launcher", id))?;
            match message {
                Some(Heard::Ready) => listens = true,
                // Only now has it closed its end too: a socket that leads out of the sandbox could not be saved.
                None if listens => return Ok(()),
                Some(Heard::Report(Report::Prepared)) => progress.lap("joined"),
                Some(Heard::Report(Report::Born { .. })) => self.born(launcher.take_descriptors(), progress)?,
                Some(Heard::Report(Report::Timings(steps))) => {
                    progress.parts.extend(steps.into_iter().map(|(step, us)| (step.name(), us)));
                }
                Some(Heard::Report(Report::Failed(Failure { step, detail, full }))) => {
                    return Err(step_failed(step.name(), detail, full, id));
                }
                Some(Heard::Report(
                    Report::Done { .. } | Report::OverRoom | Report::CriuFailed { .. } | Report::Serving,
                )) => {}
                None => {
                    let detail = "the first process ended before the guest listened".to_owned();
                    return Err(EngineError::Failed { step: "start the guest", id: id.clone(), detail });
                }
            }
        }
    }

    /// From here on its end is noticed, and its network is plugged in while its root is mounted.
    pub(crate) fn born(&self, descriptors: Vec<OwnedFd>, progress: &mut Progress<'_>) -> Result<(), EngineError> {
        let id = &progress.spec.id;
        let Ok([pidfd, netns]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            let source = io::Error::from(io::ErrorKind::InvalidData);
            return Err(failed("talk to the launcher", id)(source));
        };
        self.groups.watcher.add(id.as_str(), pidfd).map_err(failed("watch the first process", id))?;
        let network = std::sync::Arc::clone(&progress.spec.network);
        progress.plugged = Some(tokio::spawn(async move {
            let begun = Instant::now();
            network.plug(netns).await.map(|()| begun.elapsed())
        }));
        progress.lap("born");
        Ok(())
    }
}

impl<'a> Progress<'a> {
    pub(crate) fn of(spec: &'a StartSpec) -> Self {
        Self { spec, begun: Instant::now(), parts: Vec::with_capacity(24), plugged: None }
    }

    pub(crate) fn lap(&mut self, what: &'static str) {
        self.parts.push((what, micros(self.begun.elapsed())));
    }

    pub(crate) async fn await_network(&mut self) -> Result<(), EngineError> {
        let Some(plugged) = self.plugged.take() else {
            return Ok(());
        };
        let took = plugged.await.map_err(|e| failed("plug the network in", &self.spec.id)(io::Error::other(e)))??;
        self.parts.push(("network", micros(took)));
        Ok(())
    }
}

/// What came of a conversation with a launcher; one that failed, or took longer than it may, ends it.
pub(crate) async fn heard_or_ended(
    launcher: Launcher,
    heard: Result<Result<(), EngineError>, Elapsed>,
    id: &SandboxId,
    longest: Duration,
) -> Result<Launcher, EngineError> {
    let silent = |_| EngineError::GuestSilent { id: id.clone(), seconds: longest.as_secs() };
    match heard.map_err(silent).flatten() {
        Ok(()) => Ok(launcher),
        Err(error) => {
            launcher.abort().await;
            Err(error)
        }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn failed(step: roost_engine::Step, id: &SandboxId) -> impl Fn(io::Error) -> EngineError {
    let id = id.clone();
    move |source| EngineError::Io { step, id: id.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_differ_and_are_nobody_else() {
        let owners: std::collections::BTreeSet<u32> = (0..1000).map(|_| owner(&SandboxId::generate())).collect();
        assert!(owners.len() >= 999, "{} owners of 1000 sandboxes", owners.len());
        assert!(owners.iter().all(|owner| (0x8000_0000..0xc000_0000).contains(owner)));
    }

    #[test]
    fn ranges_of_users_are_apart_from_each_other_and_from_owners() {
        assert_eq!((uid_base(0), uid_base(4095)), (0x7000_0000, 0x7fff_0000));
        assert_eq!((uid_base(4096), uid_base(UID_RANGES - 1)), (0xc000_0000, 0xefff_0000));
        let bases: std::collections::BTreeSet<u32> = (0..UID_RANGES).map(uid_base).collect();
        assert_eq!(bases.len(), UID_RANGES as usize);
        assert!(bases.iter().all(|base| base % UID_RANGE == 0 && !(OWNERS..UPPER_UID_BASE).contains(base)));
    }
}
