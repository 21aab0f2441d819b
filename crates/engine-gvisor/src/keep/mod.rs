//! The keeper: a small single-threaded program that starts runsc in namespaces of its own and stays as their PID 1.
//!
//! ```text
//! keeper (host's namespaces)             child (PID 1 of new pid, mount, net, ipc and uts namespaces)
//! joins control groups
//! clone3 ----------------------------->  mounts the root and all that runsc needs on a tmpfs, which becomes /
//! born: pidfd, netns to the daemon       waits until the network is plugged in
//! exits                                  runsc run, or runsc restore
//!                                        up: to the daemon; reaps until the sentry ends, and ends
//! ```
//!
//! For a sandbox of which nothing is known yet:
//!
//! ```text
//! clone3 ----------------------------->  the same, with an empty root
//! born                                   runsc create: sentry and gofer wait
//! waits for the daemon                   waiting: to the daemon; waits for the keeper
//! graft: the sandbox's root takes the
//! place of the gofer's; exits -------->  waits for the network, runsc start or restore, up, as above
//! ```
//!
//! Everything that runsc leaves (mounts, state, sockets, zombies) is in these namespaces and goes away with PID 1, however
//! it ends. On the tmpfs is nothing of the host's but the few files that runsc needs.

mod child;
mod graft;
mod place;
mod protocol;

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use roost_engine_group::{Frame, send_with};
use roost_sys::cgroup::Group;
use roost_sys::process::{Cloned, Namespaces, clone_process, limit_resource, reset_scheduling};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource};

pub use place::{HOSTNAME, PAUSED, SOCKET};
pub use protocol::{Failure, Graft, Job, Report, Sandbox, Step};

/// The name of the one sandbox in its own folder of runsc's; the same for all, so that images fit.
pub const CONTAINER: &str = "box";
/// The file in the place of a sandbox from which its guest's program comes.
pub const GUEST_SOURCE: &str = "/guest";
/// Where the guest's program appears inside.
pub const GUEST: &str = "/run/roost/guest";
/// What is said of a sandbox that got its root.
const RESTORED: u8 = b'r';
const NEW: u8 = b'n';
/// What runsc notes of the sandbox.
const STATE: &str = "/r/box_sandbox:box.state";
/// The folder in the place of a sandbox that is its root.
pub const ROOT: &str = "/root";

/// Keeps one sandbox over the daemon's socket, which is the standard input. The standard output is another one, for the guest
/// of a sandbox that is started: the sentry shuts a socket down, for everybody who has it, when the last process inside closes it.
///
/// In the process that the daemon started it returns when the first process of the sandbox exists; in that one, when the
/// sandbox has ended.
pub fn run() -> Result<(), Failure> {
    let socket = rustix::stdio::stdin();
    let outcome = work(socket);
    if let Err(failure) = &outcome {
        // A daemon that is gone cannot be told; its successor finds no process to adopt.
        report(socket, &Report::Failed(failure.clone())).ok();
    }
    outcome
}

fn work(socket: BorrowedFd<'_>) -> Result<(), Failure> {
    let job: Job = Frame::read(socket).map_err(Failure::of(Step::Talk))?;
    join(&job).map_err(Failure::of(Step::Join))?;
    shape().map_err(Failure::of(Step::Join))?;
    let (grafted, say_grafted) = pipe_with(PipeFlags::CLOEXEC).map_err(Failure::of(Step::Clone))?;
    match clone_first(&job).map_err(Failure::of(Step::Clone))? {
        Cloned::Child => {
            // So that it hears of the end of the other one.
            drop(say_grafted);
            child::run(socket, &job, grafted)
        }
        Cloned::Parent { pid, pidfd } => {
            let netns = network_of(pid).map_err(Failure::of(Step::Clone))?;
            let born = Frame::encode(&Report::Born).map_err(Failure::of(Step::Talk))?;
            send_with(socket, &born, &[pidfd.as_fd(), netns.as_fd()]).map_err(Failure::of(Step::Talk))?;
            if job.sandbox.is_some() {
                return Ok(());
            }
            let whose = if graft::when_told(socket, pidfd.as_fd())? { RESTORED } else { NEW };
            rustix::io::write(&say_grafted, &[whose]).map(drop).map_err(Failure::of(Step::Talk))
        }
    }
}

fn join(job: &Job) -> io::Result<()> {
    job.join.iter().try_for_each(|file| {
        let mut file = fs::OpenOptions::new().write(true).open(file)?;
        file.write_all(b"0")
    })
}

/// What a sandbox must not inherit from whoever started the daemon.
fn shape() -> io::Result<()> {
    reset_scheduling()?;
    limit_resource(Resource::Core, Some(0), None)?;
    // The sentry holds a descriptor of the host's for each file that is open inside.
    limit_resource(Resource::Nofile, Some(524_288), Some(524_288))?;
    limit_resource(Resource::Nproc, None, None)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    Ok(())
}

fn clone_first(job: &Job) -> io::Result<Cloned> {
    let unified = job.unified.as_deref().map(Group::open_unified).transpose().map_err(io::Error::other)?;
    let namespaces =
        Namespaces::PID.and(Namespaces::MOUNT).and(Namespaces::NET).and(Namespaces::IPC).and(Namespaces::UTS);
    clone_process(namespaces, unified.as_ref().map(AsFd::as_fd))
}

fn network_of(pid: Pid) -> io::Result<std::os::fd::OwnedFd> {
    let path = format!("/proc/{}/ns/net", pid.as_raw_nonzero());
    Ok(rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn report(socket: BorrowedFd<'_>, report: &Report) -> io::Result<()> {
    send_with(socket, &Frame::encode(report)?, &[])
}
