//! Starts or restores a sandbox: control groups, a keeper, the network, runsc, until the guest is there.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use roost_engine::{DiskSource, EngineError, GuestLink, Running, StartSpec};
use roost_engine_group::{Frame, Heard, Wire, blocking};
use roost_model::SandboxId;
use tokio::process::{Child, Command};

use crate::bundle;
use crate::engine::{Inner, outer_limits};
use crate::keep::{Failure, Job, Report};

/// How long a sandbox may take until its guest listens; much memory from a slow disk is what takes long.
const LONGEST: Duration = Duration::from_secs(120);

/// The daemon's ends of the sockets to those who bring a sandbox up.
#[derive(Debug)]
struct Wires {
    keeper: Wire,
    /// Its own, because it ends for everybody who has it when the guest lets go of it.
    guest: Wire,
}

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
        let outcome = match tokio::time::timeout(LONGEST, self.attempt(&spec, origin)).await {
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

    async fn attempt(&self, spec: &StartSpec, origin: Option<Origin>) -> Result<Running, EngineError> {
        let mut laps = Laps::new();
        let id = &spec.id;
        let (group, limits) = (self.groups.group(id), outer_limits(&spec.limits));
        let made = blocking(move || {
            group.create().map_err(io::Error::other)?;
            group.set_limits(&limits).map_err(io::Error::other)
        });
        made.await.map_err(failed("prepare control groups", id))?;
        laps.lap("control groups");
        let (mut wires, mut keeper) = self.keeper().map_err(failed("start the keeper", id))?;
        let job = Frame::encode(&self.job(spec, origin.as_ref())?).map_err(failed("talk to the keeper", id))?;
        wires.keeper.send(&job).await.map_err(failed("talk to the keeper", id))?;
        self.converse(&mut wires, spec, origin.is_none(), &mut laps).await?;
        keeper.wait().await.map_err(failed("wait for the keeper", id))?;
        if let Some(origin) = origin
            && origin.hostname != spec.hostname
        {
            let hostname = spec.hostname.clone();
            let renamed =
                self.in_place("change the host name", id, move |place| place.connect()?.set_hostname(&hostname));
            renamed.await?;
            laps.lap("renamed");
        }
        laps.lap("all");
        Ok(Running { link: GuestLink::Slot, parts_us: laps.parts })
    }

    fn keeper(&self) -> io::Result<(Wires, Child)> {
        let (keepers, theirs) = Wire::pair()?;
        let (guests, inside) = Wire::pair()?;
        let keeper = Command::new(&self.config.keeper)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(inside))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok((Wires { keeper: keepers, guest: guests }, keeper))
    }

    fn job(&self, spec: &StartSpec, origin: Option<&Origin>) -> Result<Job, EngineError> {
        let DiskSource::Layers { lower, subvolume } = &spec.disk;
        let group = self.groups.group(&spec.id);
        Ok(Job {
            join: group.join_files(),
            unified: group.unified_folder(),
            lower: lower.clone(),
            subvolume: subvolume.clone(),
            runsc: self.tool("start a sandbox")?.program.clone(),
            guest: origin.map_or_else(|| self.config.guest.clone(), |origin| origin.guest.clone()),
            bundle: bundle::of(spec),
            hostname: origin.map_or_else(|| spec.hostname.clone(), |origin| origin.hostname.clone()),
            image: origin.map(|origin| origin.image.clone()),
        })
    }

    /// Until the sandbox is up and, if it is a new one, its guest has said that it listens.
    async fn converse(
        &self,
        wires: &mut Wires,
        spec: &StartSpec,
        new: bool,
        laps: &mut Laps,
    ) -> Result<(), EngineError> {
        let id = &spec.id;
        let talk = failed("talk to the keeper", id);
        let (mut up, mut guest) = (false, if new { GuestIs::Awaited } else { GuestIs::There });
        while !(up && guest == GuestIs::There) {
            let heard = tokio::select! {
                heard = wires.keeper.next() => heard.map_err(&talk)?,
                heard = wires.guest.next::<Report>(), if guest == GuestIs::Awaited => {
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
                    self.plug(wires.keeper.take_descriptors(), spec).await?;
                    laps.lap("network");
                    wires.keeper.send(&[Frame::PLUGGED]).await.map_err(&talk)?;
                    if new {
                        wires.guest.send(&spec.guest_config).await.map_err(&talk)?;
                    }
                }
                Some(Heard::Report(Report::Up)) => {
                    laps.lap("runsc");
                    up = true;
                }
                Some(Heard::Report(Report::Failed(Failure { step, detail }))) => {
                    return Err(EngineError::Failed { step: step.name(), id: id.clone(), detail });
                }
                Some(Heard::Ready) | None => {
                    let detail = "the first process ended before the guest listened".to_owned();
                    return Err(EngineError::Failed { step: "start the guest", id: id.clone(), detail });
                }
            }
        }
        Ok(())
    }

    /// From here on its end is noticed. runsc takes the addresses off the device that it finds, so the network comes first.
    async fn plug(&self, descriptors: Vec<OwnedFd>, spec: &StartSpec) -> Result<(), EngineError> {
        let Ok([pidfd, netns]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(failed("talk to the keeper", &spec.id)(io::ErrorKind::InvalidData.into()));
        };
        let watched = self.groups.watcher.add(spec.id.as_str(), pidfd);
        watched.map_err(failed("watch the first process", &spec.id))?;
        spec.network.plug(netns).await
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
