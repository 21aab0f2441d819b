//! The daemon's end of a keeper: the conversation with it, and how one is made ahead of time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use roost_engine_group::{Frame, Heard, Maker, Wire, blocking};
use roost_sys::cgroup::Group;
use rustix::process::{Signal, pidfd_send_signal};
use serde::Serialize;
use tokio::process::{Child, Command};

use crate::bundle;
use crate::keep::{Job, Report};

/// Starting runsc takes a tenth of a second on an idle host.
const LONGEST: Duration = Duration::from_secs(60);

/// The daemon's ends of the sockets to those who bring a sandbox up, and the process that the daemon started.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) wire: Wire,
    /// Its own, because it ends for everybody who has it when the guest lets go of it.
    pub(crate) guest: Wire,
    process: Child,
}

impl Keeper {
    /// Starts one and tells it what to do.
    pub(crate) async fn start(program: &PathBuf, job: &Job) -> io::Result<Self> {
        let (wire, theirs) = Wire::pair()?;
        let (guest, inside) = Wire::pair()?;
        let process = Command::new(program)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(inside))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut keeper = Self { wire, guest, process };
        keeper.tell(job).await?;
        Ok(keeper)
    }

    pub(crate) async fn tell<T: Serialize>(&mut self, what: &T) -> io::Result<()> {
        self.wire.send(&Frame::encode(what)?).await
    }

    /// Waits until the process that the daemon started is through; the sandbox stays.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        self.process.wait().await.map(drop)
    }
}

/// The first process of a sandbox and its network, as a keeper reports them.
pub(crate) fn born(wire: &mut Wire) -> io::Result<(OwnedFd, OwnedFd)> {
    let Ok([first, network]) = <[OwnedFd; 2]>::try_from(wire.take_descriptors()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    Ok((first, network))
}

/// A keeper with a sentry and a gofer, for a sandbox that will come.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) keeper: Keeper,
    pub(crate) first: OwnedFd,
    pub(crate) network: OwnedFd,
    /// What its filesystems in memory were made for, unless they come from an image.
    pub(crate) memory: u64,
}

/// Makes keepers that wait.
#[derive(Debug)]
pub(crate) struct Keepers {
    pub(crate) program: PathBuf,
    pub(crate) guest: PathBuf,
    pub(crate) runsc: PathBuf,
    /// How much memory the next one will probably be promised.
    pub(crate) memory: AtomicU64,
}

#[async_trait]
impl Maker for Keepers {
    type Made = Ahead;

    async fn make(&self, group: &Group) -> io::Result<Ahead> {
        let made = group.clone();
        blocking(move || made.create().map_err(io::Error::other)).await?;
        let memory = self.memory.load(Ordering::Relaxed);
        let job = Job {
            join: group.join_files(),
            unified: group.unified_folder(),
            runsc: self.runsc.clone(),
            guest: self.guest.clone(),
            bundle: bundle::of(None, memory),
            sandbox: None,
        };
        let mut keeper = Keeper::start(&self.program, &job).await?;
        let mut handles = None;
        let waiting = async {
            loop {
                match keeper.wire.next().await? {
                    Some(Heard::Report(Report::Born)) => handles = Some(born(&mut keeper.wire)?),
                    Some(Heard::Report(Report::Waiting)) => return Ok(()),
                    Some(Heard::Report(Report::Failed(failure))) => return Err(io::Error::other(failure)),
                    _ => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
        };
        let waiting = tokio::time::timeout(LONGEST, waiting).await.unwrap_or_else(|late| Err(late.into()));
        match (waiting, handles) {
            (Ok(()), Some((first, network))) => Ok(Ahead { keeper, first, network, memory }),
            (outcome, handles) => {
                if let Some((first, _)) = handles {
                    end(keeper, &first).await;
                }
                outcome.and(Err(io::ErrorKind::InvalidData.into()))
            }
        }
    }

    async fn end(&self, Ahead { keeper, first, .. }: Ahead) {
        end(keeper, &first).await;
    }
}

/// Ends the first process, and with it all; the one that the daemon started ends with its socket.
pub(crate) async fn end(keeper: Keeper, first: &OwnedFd) {
    // It may have ended by itself.
    pidfd_send_signal(first.as_fd(), Signal::KILL).ok();
    let Keeper { wire, guest, mut process } = keeper;
    drop((wire, guest));
    if let Err(error) = process.wait().await {
        tracing::warn!(%error, "failed to wait for a keeper");
    }
}
