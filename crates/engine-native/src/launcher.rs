//! The daemon's end of a launcher: the conversation with it, and how one is made ahead of time.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use roost_engine_group::{Frame, Heard, Maker, Wire};
use roost_sys::cgroup::Group;

use crate::launch::{DumpTarget, Job, Prepare, Report, RestoreSpec};
use crate::mother::{Forked, Mother};

/// A started launcher.
#[derive(Debug)]
pub(crate) struct Launcher {
    process: Option<Forked>,
    wire: Wire,
    ends_with_this: bool,
}

impl Launcher {
    /// Starts one and tells it which groups to join. It ends when this end is dropped, wherever it is.
    pub(crate) async fn spawn(mother: &Mother, join: Vec<PathBuf>) -> io::Result<Self> {
        Self::start(mother, join, true).await
    }

    /// Starts one that goes on when this end is dropped, and finds out for itself when it is through.
    pub(crate) async fn spawn_lasting(mother: &Mother) -> io::Result<Self> {
        Self::start(mother, Vec::new(), false).await
    }

    async fn start(mother: &Mother, join: Vec<PathBuf>, ends_with_this: bool) -> io::Result<Self> {
        let (wire, theirs) = Wire::pair()?;
        let process = Some(mother.bear(&theirs).await?);
        let mut launcher = Self { process, wire, ends_with_this };
        launcher.wire.send(&Frame::encode(&Prepare { join })?).await?;
        Ok(launcher)
    }

    /// Hands over what is to be done, and the bytes meant for the guest.
    pub(crate) async fn begin(&mut self, job: &Job, guest_config: &[u8]) -> io::Result<()> {
        let mut bytes = Frame::encode(job)?;
        bytes.extend_from_slice(guest_config);
        self.wire.send(&bytes).await?;
        match job {
            Job::Dump(_) | Job::Restore(_) | Job::Pages(_) => Ok(()),
            Job::Launch(_) | Job::Probe(_) => self.wire.shutdown().await,
        }
    }

    /// Says what is to be saved; there is nothing more to say.
    pub(crate) async fn save(&mut self, target: &DumpTarget) -> io::Result<()> {
        self.wire.send(&Frame::encode(target)?).await?;
        self.wire.shutdown().await
    }

    /// Says whether the memory of what is restored is served.
    pub(crate) async fn served(&mut self, served: bool) -> io::Result<()> {
        self.wire.send(&[if served { RestoreSpec::SERVED } else { RestoreSpec::ALONE }]).await
    }

    /// Says that the network is there, during a restore; there is nothing more to say.
    pub(crate) async fn plugged(&mut self) -> io::Result<()> {
        self.wire.send(&[Frame::PLUGGED]).await?;
        self.wire.shutdown().await
    }

    /// The next message; `None` when nobody is left who could send one.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Heard<Report>>> {
        self.wire.next().await
    }

    /// The descriptors that came along; [`Report::Born`] has some.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.wire.take_descriptors()
    }

    /// Says that there is nothing to be done after all.
    pub(crate) async fn dismiss(mut self) {
        let ended = match self.wire.shutdown().await {
            Ok(()) => self.finish().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "failed to dismiss a launcher");
        }
    }

    /// Waits until the launcher itself is gone; what it made lives on, or died before it.
    pub(crate) async fn finish(mut self) -> io::Result<()> {
        let Some(process) = &self.process else { return Ok(()) };
        process.wait().await?;
        self.process = None;
        Ok(())
    }

    /// Ends the launcher, wherever it is.
    pub(crate) async fn abort(self) {
        if let Some(process) = &self.process
            && let Err(error) = process.kill()
        {
            tracing::warn!(%error, "failed to end a launcher");
        }
        if let Err(error) = self.finish().await {
            tracing::warn!(%error, "failed to wait for the end of a launcher");
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        if self.ends_with_this
            && let Err(error) = process.kill()
        {
            tracing::warn!(%error, "failed to end a launcher");
        }
        // Without a runtime the daemon is about to end, and others wait for its children.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { process.wait().await });
        }
    }
}

/// Makes launchers that join their groups ahead of time, which is the slow part on v1 hosts.
#[derive(Debug)]
pub(crate) struct Launchers {
    pub(crate) mother: Arc<Mother>,
}

#[async_trait]
impl Maker for Launchers {
    type Made = Launcher;

    async fn make(&self, group: &Group) -> io::Result<Launcher> {
        group.create_v1().map_err(io::Error::other)?;
        let mut launcher = Launcher::spawn(&self.mother, group.join_files()).await?;
        match launcher.next().await? {
            Some(Heard::Report(Report::Prepared)) => Ok(launcher),
            Some(Heard::Report(Report::Failed(failure))) => Err(io::Error::other(failure)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    async fn end(&self, launcher: Launcher) {
        launcher.abort().await;
    }
}
