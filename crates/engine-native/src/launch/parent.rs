//! The launcher's own half: what needs the host's privileges.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use roost_engine_group::{Frame, send_with};
use roost_sys::cgroup::Group;
use roost_sys::process::{Cloned, Namespaces, clone_owned, limit_resource, reset_scheduling};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Resource, getrlimit};

use super::child::FromHost;
use super::groups::GroupView;
use super::protocol::{Failure, Job, LaunchSpec, Prepare, Report, Step};
use super::root::{Masks, guest_mount, isolate_mounts, map_ids, mount_root, namespace};
use super::{child, devices, memory, pages, probe};

/// Tells the child that its users are mapped.
pub(super) const MAPPED: u8 = b'M';
/// Tells the child that its root comes along.
pub(super) const ROOT: u8 = b'O';

/// Runs a launch to its end over the daemon's socket; a failure has been reported there when it returns.
pub(super) fn run(socket: BorrowedFd<'_>) -> Result<(), Failure> {
    let outcome = work(socket);
    if let Err(failure) = &outcome {
        // A daemon that is gone cannot be told; its successor finds no process to adopt.
        report(socket, &Report::Failed(failure.clone())).ok();
    }
    outcome
}

fn work(socket: BorrowedFd<'_>) -> Result<(), Failure> {
    let prepare: Prepare = Frame::read(socket).map_err(Failure::of(Step::Talk))?;
    join(&prepare).map_err(Failure::of(Step::Join))?;
    report(socket, &Report::Prepared).map_err(Failure::of(Step::Talk))?;
    match Frame::read(socket).map_err(Failure::of(Step::Talk))? {
        Job::Launch(spec) => launch(socket, &spec),
        Job::Dump(spec) => memory::dump(socket, &spec),
        Job::Restore(spec) => memory::restore(socket, &spec),
        Job::Pages(spec) => pages::serve(socket, &spec),
        Job::Probe(criu) => probe::probe(socket, &criu),
    }
}

fn launch(socket: BorrowedFd<'_>, spec: &LaunchSpec) -> Result<(), Failure> {
    let mut timings = Timings::start();
    isolate_mounts()?;
    let guest = guest_mount(&spec.guest).map_err(Failure::of(Step::Isolate))?;
    let masks = Masks::make().map_err(Failure::of(Step::Isolate))?;
    let groups = GroupView::make(&spec.groups).map_err(Failure::of(Step::Isolate))?;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(Failure::of(Step::Isolate))?;
    timings.done(Step::Isolate);

    match clone_sandbox(spec.unified.as_deref(), spec.owner).map_err(Failure::of(Step::Clone))? {
        Cloned::Child => {
            drop(ours);
            child::run(socket, &theirs, spec, &FromHost { guest, masks, groups })
        }
        Cloned::Parent { pid, pidfd } => {
            drop(theirs);
            timings.done(Step::Clone);
            raise(socket, &ours, spec, pid, &pidfd, timings)
        }
    }
}

fn join(prepare: &Prepare) -> io::Result<()> {
    prepare.join.iter().try_for_each(|file| {
        let mut file = fs::OpenOptions::new().write(true).open(file)?;
        file.write_all(b"0")
    })
}

/// Limits that the kernel takes over, when a user namespace is made, as those of all its users together: pending signals and
/// timers, bytes of message queues, bytes of memory locked by other means than `mlock`.
///
/// The hard limits stay: an image has those of its processes, and a restore cannot raise them.
const PER_USER: [(Resource, u64); 3] =
    [(Resource::Sigpending, 16_384), (Resource::Msgqueue, 819_200), (Resource::Memlock, 8 << 20)];

/// What a sandbox must not inherit from whoever started the daemon.
pub(super) fn shape() -> io::Result<()> {
    reset_scheduling()?;
    spare_from_oom_killer();
    limit_resource(Resource::Core, Some(0), None)?;
    limit_resource(Resource::Rtprio, Some(0), Some(0))?;
    limit_resource(Resource::Nofile, Some(65_536), Some(524_288))?;
    for (resource, most) in PER_USER {
        let hard = getrlimit(resource).maximum;
        limit_resource(resource, Some(most), hard)?;
    }
    // Processes are counted by the control group, whoever owns them.
    limit_resource(Resource::Nproc, None, None)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    rustix::process::chdir("/")?;
    Ok(())
}

/// Lets the kernel take any process inside before PID 1, without giving them a way to be spared as well.
///
/// A privileged write to `oom_score_adj` also moves the floor down to which a process, and all its descendants, may lower
/// themselves later. The old file `oom_adj` moves only the score: -16 of -17 there. Both are refused without
/// `CAP_SYS_RESOURCE`, and then the guest's small size has to do.
fn spare_from_oom_killer() {
    fs::write("/proc/self/oom_score_adj", "0").ok();
    fs::write("/proc/self/oom_adj", "-16").ok();
}

fn clone_sandbox(unified: Option<&Path>, owner: u32) -> io::Result<Cloned> {
    let unified = unified.map(Group::open_unified).transpose().map_err(io::Error::other)?;
    let unified = unified.as_ref().map(AsFd::as_fd);
    let namespaces = Namespaces::USER
        .and(Namespaces::PID)
        .and(Namespaces::MOUNT)
        .and(Namespaces::NET)
        .and(Namespaces::IPC)
        .and(Namespaces::UTS);
    clone_owned(namespaces, unified, owner)
}

fn raise(
    socket: BorrowedFd<'_>,
    child: &OwnedFd,
    spec: &LaunchSpec,
    pid: Pid,
    pidfd: &OwnedFd,
    mut timings: Timings,
) -> Result<(), Failure> {
    let netns = namespace(pid, "net").map_err(Failure::of(Step::Clone))?;
    let userns = namespace(pid, "user").map_err(Failure::of(Step::Clone))?;
    report_birth(socket, pid, pidfd.as_fd(), netns.as_fd()).map_err(Failure::of(Step::Talk))?;

    map_ids(pid, spec.layers.uid_base).map_err(Failure::of(Step::Map))?;
    send_with(child.as_fd(), &[MAPPED], &[]).map_err(Failure::of(Step::Map))?;
    timings.done(Step::Map);

    devices::mend(&spec.layers.subvolume.join("root")).map_err(Failure::of(Step::Devices))?;
    let root = mount_root(&spec.layers, userns.as_fd(), &mut timings)?;
    // The last word: from here on the child is on its own, and it reports for itself. Its parts come after ours.
    report(socket, &Report::Timings(timings.parts)).map_err(Failure::of(Step::Talk))?;
    send_with(child.as_fd(), &[ROOT], &[root.as_fd()]).map_err(Failure::of(Step::Overlay))
}

/// Tells the daemon of the first process, with handles on it and on its network.
pub(super) fn report_birth(
    socket: BorrowedFd<'_>,
    pid: Pid,
    pidfd: BorrowedFd<'_>,
    netns: BorrowedFd<'_>,
) -> io::Result<()> {
    let born = Frame::encode(&Report::Born { pid: pid.as_raw_nonzero().get().unsigned_abs() })?;
    send_with(socket, &born, &[pidfd, netns])
}

pub(super) fn report(socket: impl AsFd, report: &Report) -> io::Result<()> {
    send_with(socket.as_fd(), &Frame::encode(report)?, &[])
}

/// A stopwatch with laps.
#[derive(Debug)]
pub(super) struct Timings {
    lap: Instant,
    pub(super) parts: Vec<(Step, u64)>,
}

impl Timings {
    pub(super) fn start() -> Self {
        Self { lap: Instant::now(), parts: Vec::with_capacity(8) }
    }

    pub(super) fn done(&mut self, step: Step) {
        let now = Instant::now();
        let took = now.duration_since(self.lap).as_micros();
        self.parts.push((step, u64::try_from(took).unwrap_or(u64::MAX)));
        self.lap = now;
    }
}
