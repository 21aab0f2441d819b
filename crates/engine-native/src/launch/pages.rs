//! Gives a restored sandbox its memory while it runs already: CRIU's server of pages, in a process outside of the sandbox.
//!
//! ```text
//! listens -> the restoring CRIU hands over each process's faults -> they run; what they touch comes first, the rest behind
//!         -> all pages are there: done
//!         -> the server fails: what has no memory any more would read zeros, so the sandbox ends
//! ```
//!
//! The image it reads from is made of links of its own: whoever owns the original may remove it as soon as the sandbox runs.
//!
//! It outlives the daemon, as the sandbox does, and ends by itself with the sandbox. With a sandbox that never came to be it
//! ends when it is told to, by anything sent to the socket that is its lock; or when the daemon is gone and the sandbox's
//! group is empty.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use roost_sys::mount::DetachedMount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, set_child_subreaper};

use super::criu::{PageServer, Place};
use super::memory::{make_lock, take_lock};
use super::parent::{Timings, report};
use super::protocol::{Failure, PagesSpec, Report, Step};
use super::root::isolate_mounts;

/// How often it is looked after whom the pages are for, once nobody else does.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// The folder with the server's socket, as CRIU sees it.
const FOLDER: &str = "/run/pages";

pub(super) fn serve(socket: BorrowedFd<'_>, spec: &PagesSpec) -> Result<(), Failure> {
    let mut timings = Timings::start();
    // A signal to the daemon's terminal is none of ours.
    rustix::process::setsid().map_err(Failure::of(Step::Isolate))?;
    set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::of(Step::Isolate))?;
    let lock = make_lock().map_err(Failure::of(Step::Isolate))?;
    take_lock(&lock, &spec.lock).map_err(Failure::of(Step::Isolate))?;
    isolate_mounts()?;
    let folder = DetachedMount::clone_of(&spec.folder).map_err(Failure::of(Step::Isolate))?;
    let place =
        Place::prepare(&spec.criu, Some(&spec.folder.join(PagesSpec::IMAGE))).map_err(Failure::of(Step::Isolate))?;
    fs::create_dir(FOLDER).map_err(Failure::of(Step::Isolate))?;
    folder.attach(FOLDER).map_err(Failure::of(Step::Isolate))?;
    let mut server = place.serve_pages(Path::new(FOLDER)).map_err(Failure::of(Step::Criu))?;
    timings.done(Step::Criu);
    if server.await_readiness().map_err(Failure::of(Step::Criu))? {
        // A daemon that is gone does not hear it; what comes of the restore is seen by the sandbox's group.
        report(socket, &Report::Serving).ok();
    }
    let whole = accompany(socket, lock.as_fd(), &mut server, &spec.members).map_err(Failure::of(Step::Load))?;
    timings.done(Step::Load);
    if !whole {
        end_all(&spec.members).map_err(Failure::of(Step::Load))?;
    }
    let said = if whole {
        Report::Done { kernel_cache: None, timings: timings.parts }
    } else {
        Report::CriuFailed { log: place.errors(), signal: None }
    };
    // Its room may be large; the folder itself is for the daemon, this one or the next.
    roost_sys::tree::remove(&Path::new(FOLDER).join(PagesSpec::IMAGE)).map_err(Failure::of(Step::Load))?;
    // The daemon may be gone.
    report(socket, &said).ok();
    Ok(())
}

/// Stays until the server is through; whether all pages are where they belong.
fn accompany(
    daemon: BorrowedFd<'_>,
    lock: BorrowedFd<'_>,
    server: &mut PageServer,
    members: &Path,
) -> io::Result<bool> {
    let mut watched_by_daemon = true;
    loop {
        let (count, longest) = if watched_by_daemon { (3, None) } else { (2, Some(&LOOK_AGAIN)) };
        let exit = server.exit.as_fd();
        let mut watched = [&exit, &lock, &daemon].map(|fd| PollFd::new(fd, PollFlags::IN));
        rustix::io::retry_on_intr(|| poll(&mut watched[..count], longest))?;
        let [ended, dismissed, daemon_gone] = watched.map(|fd| !fd.revents().is_empty());
        if ended {
            return server.outcome();
        }
        // The daemon says nothing more: that its socket can be read means that it is gone.
        watched_by_daemon &= !daemon_gone;
        if dismissed || !watched_by_daemon && pids(members).is_empty() {
            server.abort()?;
            return Ok(true);
        }
    }
}

fn pids(members: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(members).unwrap_or_default();
    text.lines().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect()
}

/// Ends everybody in the group. Those that are frozen end when they are thawed.
fn end_all(members: &Path) -> io::Result<()> {
    for pid in pids(members) {
        match kill_process(pid, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
