//! Keeps a handle on the first process of each running sandbox, notices its end and reaps it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roost_sys::cgroup::Group;
use roost_sys::process::depth_as_first;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// How often, and how long apart, an ended process is looked at again until its launcher let go of it.
const REAP_TRIES: u32 = 40;
const REAP_PAUSE: Duration = Duration::from_millis(5);

/// The first process of a sandbox. Its end is the end of all processes in its pid namespace.
#[derive(Debug, Clone)]
pub struct First {
    pidfd: Arc<OwnedFd>,
    gone: watch::Receiver<bool>,
}

impl First {
    /// Ends it, and with it everything in the sandbox.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Changes the host name in the sandbox.
    pub fn set_hostname(&self, hostname: String) -> io::Result<()> {
        let pidfd = Arc::clone(&self.pidfd);
        // A thread of its own, which ends where it went: no other thread of this process sees those names.
        let renamed = std::thread::spawn(move || -> io::Result<()> {
            let names = ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME;
            move_into_thread_name_spaces(pidfd.as_fd(), names)?;
            Ok(rustix::system::sethostname(hostname.as_bytes())?)
        });
        renamed.join().unwrap_or_else(|_| Err(io::Error::other("the thread broke off")))
    }

    /// The root of what it sees of files; `None` if it has ended.
    pub fn root(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = number_of(&self.pidfd)? else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty()) {
            // The number can have come to mean another process only after this one was reaped.
            Ok(root) => Ok(number_of(&self.pidfd)?.map(|_| root)),
            Err(Errno::NOENT | Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A table of its network namespace, by its name in `/proc/PID/net`; `None` if it has ended.
    pub fn network_table(&self, name: &str) -> io::Result<Option<File>> {
        let Some(pid) = number_of(&self.pidfd)? else { return Ok(None) };
        match File::open(format!("/proc/{pid}/net/{name}")) {
            // The number can have come to mean another process only after this one was reaped.
            Ok(table) => Ok(number_of(&self.pidfd)?.map(|_| table)),
            Err(_) if number_of(&self.pidfd)?.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Resolves when it is gone.
    pub async fn gone(mut self) {
        // The sender goes away only after it has said so.
        self.gone.wait_for(|gone| *gone).await.ok();
    }
}

/// The first processes known, by the name of their group.
#[derive(Debug, Default, Clone)]
pub struct Watcher {
    known: Arc<Mutex<HashMap<String, First>>>,
}

impl Watcher {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<String, First>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first process of the group, from memory or found in the group itself; `None` if there is none.
    pub fn find(&self, name: &str, group: &Group) -> io::Result<Option<First>> {
        if let Some(first) = self.known().get(name) {
            return Ok(Some(first.clone()));
        }
        first_member(group)?.map(|(_, pidfd)| self.add(name, pidfd)).transpose()
    }

    /// Watches a first process until its end.
    pub fn add(&self, name: &str, pidfd: OwnedFd) -> io::Result<First> {
        let pidfd = Arc::new(pidfd);
        #[expect(
            deprecated,
            reason = "its replacement is unsafe to call; an owned descriptor stays the same while registered"
        )]
        let event = AsyncFd::with_interest(Arc::clone(&pidfd), Interest::READABLE)?;
        let (say, gone) = watch::channel(false);
        let first = First { pidfd, gone };
        self.known().insert(name.to_owned(), first.clone());
        let (watcher, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            if let Err(error) = event.readable().await {
                tracing::warn!(%error, sandbox = %name, "failed to watch the first process");
            }
            reap(event.get_ref()).await;
            watcher.known().remove(&name);
            say.send_replace(true);
        });
        Ok(first)
    }
}

/// The first process in the group, with a handle on it; `None` if there is none.
///
/// Others may be the first in namespaces that they made themselves, which are below its own.
fn first_member(group: &Group) -> io::Result<Option<(u32, OwnedFd)>> {
    let pids = group.pids().map_err(io::Error::other)?;
    let depth = |pid: &u32| depth_as_first(*pid).ok().filter(|depth| *depth > 0);
    let first = pids.into_iter().filter_map(|pid| Some((depth(&pid)?, pid))).min();
    let Some((_, pid)) = first else { return Ok(None) };
    Ok(open_member(pid, group)?.map(|pidfd| (pid, pidfd)))
}

/// A handle on `pid`, if it is still in the group now that the number can no longer come to mean another process.
pub(crate) fn open_member(pid: u32, group: &Group) -> io::Result<Option<OwnedFd>> {
    let Some(pidfd) = handle_on(pid) else {
        return Ok(None);
    };
    let still = group.pids().map_err(io::Error::other)?.contains(&pid);
    Ok(still.then_some(pidfd))
}

/// The number of the process behind a handle; `None` once it was reaped.
fn number_of(pidfd: &OwnedFd) -> io::Result<Option<u32>> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    Ok(number.and_then(|number| number.trim().parse().ok()))
}

/// A handle on whatever process has this number now; `None` if none has.
pub(crate) fn handle_on(pid: u32) -> Option<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    pidfd_open(number, PidfdFlags::empty()).ok()
}

/// A process that ended while its launcher was still there becomes our child, to be reaped, a moment later; one that an
/// earlier daemon started is reaped by the host's init.
async fn reap(pidfd: &OwnedFd) {
    for _ in 0..REAP_TRIES {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) => return,
            // No signal can be sent to what was reaped by somebody else.
            Err(_) if pidfd_send_signal(pidfd, Signal::CONT).is_err() => return,
            _ => tokio::time::sleep(REAP_PAUSE).await,
        }
    }
}
