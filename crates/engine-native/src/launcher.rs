//! The daemon's end of a launcher: the conversation with it, and the reserve of launchers that wait.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use roost_engine_group::{Frame, Heard, Wire};
use roost_sys::cgroup::{Cgroups, Group};
use tokio::sync::Notify;

use crate::launch::{Job, Prepare, Report};
use crate::mother::{Forked, Mother};

/// What names of groups in reserve begin with; no sandbox's id does.
pub(crate) const SPARE: &str = "spare-";

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
            Job::Restore(_) | Job::Pages(_) => Ok(()),
            Job::Launch(_) | Job::Dump(_) | Job::Probe(_) => self.wire.shutdown().await,
        }
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

/// A launcher that has joined a group of its own and waits there.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) launcher: Launcher,
    pub(crate) group: Group,
    name: String,
}

/// Launchers that joined their groups ahead of time, which is the slow part on v1 hosts.
#[derive(Debug)]
pub(crate) struct Reserve {
    mother: Arc<Mother>,
    cgroups: Cgroups,
    size: usize,
    counter: AtomicU64,
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Spare>,
    /// Names of groups that are being made, wait, or are just being renamed.
    names: HashSet<String>,
    coming: usize,
    closed: bool,
}

impl Reserve {
    pub(crate) fn new(mother: Arc<Mother>, cgroups: Cgroups, size: usize) -> Arc<Self> {
        Arc::new(Self {
            mother,
            cgroups,
            size,
            counter: AtomicU64::new(0),
            state: Mutex::default(),
            settled: Notify::new(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one that waits, if there is one.
    pub(crate) fn take(&self) -> Option<Spare> {
        self.state().waiting.pop_front()
    }

    /// Says that a taken spare's group has got another name or is gone.
    pub(crate) fn release(&self, spare_name: &str) {
        self.state().names.remove(spare_name);
    }

    /// Whether a group of this name is in this reserve's care.
    pub(crate) fn owns(&self, name: &str) -> bool {
        self.state().names.contains(name)
    }

    /// Brings the reserve back to its size, in the background, once half of it is used up.
    ///
    /// Joining holds a lock that makes every change of control groups wait, for those 8 to 20 ms that the first of several
    /// joins takes: so rather several at once, and less often.
    pub(crate) fn refill(self: &Arc<Self>) {
        for name in self.wanted() {
            let reserve = Arc::clone(self);
            tokio::spawn(async move { reserve.add(name).await });
        }
    }

    fn wanted(&self) -> Vec<String> {
        let mut state = self.state();
        let present = state.waiting.len() + state.coming;
        if state.closed || present > self.size / 2 {
            return Vec::new();
        }
        let names: Vec<String> = (present..self.size)
            .map(|_| format!("{SPARE}{}-{}", std::process::id(), self.counter.fetch_add(1, Ordering::Relaxed)))
            .collect();
        state.coming += names.len();
        state.names.extend(names.iter().cloned());
        names
    }

    async fn add(self: Arc<Self>, name: String) {
        match self.make(&name).await {
            Ok(spare) => {
                if let Some(late) = self.put(spare) {
                    self.discard(late).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to keep a launcher in reserve");
                self.cgroups.group(&name).remove().ok();
                self.release(&name);
            }
        }
        self.state().coming -= 1;
        self.settled.notify_waiters();
    }

    /// Gives it back if the reserve has been closed meanwhile.
    fn put(&self, spare: Spare) -> Option<Spare> {
        let mut state = self.state();
        if state.closed {
            return Some(spare);
        }
        state.waiting.push_back(spare);
        None
    }

    async fn make(&self, name: &str) -> io::Result<Spare> {
        let group = self.cgroups.group(name);
        group.create_v1().map_err(io::Error::other)?;
        let mut launcher = Launcher::spawn(&self.mother, group.join_files()).await?;
        match launcher.next().await? {
            Some(Heard::Report(Report::Prepared)) => Ok(Spare { launcher, group, name: name.to_owned() }),
            Some(Heard::Report(Report::Failed(failure))) => Err(io::Error::other(failure)),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    async fn discard(&self, spare: Spare) {
        spare.launcher.abort().await;
        if let Err(error) = spare.group.remove() {
            tracing::warn!(%error, "failed to remove a group in reserve");
        }
        self.release(&spare.name);
    }

    /// Ends all that wait and makes no more.
    pub(crate) async fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        for spare in waiting {
            self.discard(spare).await;
        }
        loop {
            let settled = self.settled.notified();
            if self.state().coming == 0 {
                return;
            }
            settled.await;
        }
    }
}

impl Spare {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}
