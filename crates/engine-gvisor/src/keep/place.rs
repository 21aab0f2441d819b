//! The place where runsc runs: a tmpfs with the few things it needs, and the sandbox's root among them.
//!
//! ```text
//! /runsc /guest   the programs, read-only         /root    the overlay: template below, the sandbox's own folders above
//! /bundle         what runsc is told              /image   the memory to restore, read-only, during a restore
//! /tmp            where the sentry makes a root of its own
//! /r              runsc's state and its socket    /proc    of the new pid namespace; /dev with three devices
//! ```
//!
//! Before it is known whose place it is, `/root` is a folder with nothing in it, and `/image` is empty.

use std::fs;
use std::io;
use std::path::Path;

use roost_sys::mount::{
    AttributeChange, DetachedMount, FsContext, MountAttrFlags, MountError, MountPropagationFlags, UnmountFlags,
    change_attributes, pivot_root, unmount,
};
use rustix::fs::{CWD, Mode, OFlags};

use super::protocol::{Failure, Job, Sandbox, Step};
use super::{GUEST_SOURCE, ROOT};

/// Where runsc listens for the daemon.
pub const SOCKET: &str = "r/runsc-box.sock";
/// Is there while the sentry has been told to let nothing run.
pub const PAUSED: &str = "paused";
/// Holds the name that processes inside know.
pub const HOSTNAME: &str = "hostname";

/// A folder of the host's that is always there: the new root hangs here for a moment, before all of the host goes away.
const HOOK: &str = "/proc";
/// Enough for runsc's state, and a bound for its log.
const SIZE: &str = "16m";
/// Where in an empty root the one of a sandbox appears, to take its place.
pub(super) const NEW_ROOT: &str = "/new";
const PLAIN: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const DEVICES: [&str; 3] = ["null", "zero", "urandom"];

/// Leaves the host's files for a root with what runsc needs.
pub(super) fn enter(job: &Job) -> Result<(), Failure> {
    let private = AttributeChange::default().propagation(MountPropagationFlags::PRIVATE);
    change_attributes("/", &private, true).map_err(Failure::of(Step::Place))?;
    let root = job.sandbox.as_ref().map(overlay).transpose().map_err(Failure::of(Step::Overlay))?;
    build(job, root.as_ref()).map_err(Failure::of(Step::Place))?;
    leave_host().map_err(Failure::of(Step::Place))?;
    fs::write("/bundle/config.json", &job.bundle).map_err(Failure::of(Step::Place))?;
    job.sandbox.as_ref().map_or(Ok(()), describe).map_err(Failure::of(Step::Place))
}

/// Owners on the disk are those inside: the gofer, alone in reaching these files, is root.
pub(super) fn overlay(sandbox: &Sandbox) -> io::Result<DetachedMount> {
    let open =
        |path: &Path| rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let (lower, disk) = (open(&sandbox.lower)?, open(&sandbox.subvolume)?);
    match rustix::fs::mkdirat(&disk, "work", Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // By descriptor: no path of the host's has to be escaped.
    let path = |fd: &std::os::fd::OwnedFd| {
        let number = std::os::fd::AsRawFd::as_raw_fd(fd);
        Path::new("/proc/self/fd").join(number.to_string())
    };
    let mounted = || {
        FsContext::open("overlay")?
            .option("source", "roost")?
            .option("lowerdir", path(&lower))?
            .option("upperdir", path(&disk).join("root"))?
            .option("workdir", path(&disk).join("work"))?
            .option("index", "off")?
            .option("redirect_dir", "on")?
            .option("metacopy", "off")?
            .option("xino", "on")?
            .create_writable(MountAttrFlags::empty())
    };
    mounted().map_err(io::Error::other)
}

/// What can be looked at, and nothing else.
pub(super) fn read_only(path: &Path) -> io::Result<DetachedMount> {
    let clone = DetachedMount::clone_of(path).map_err(io::Error::other)?;
    let read_only = AttributeChange::default().set(PLAIN | MountAttrFlags::MOUNT_ATTR_RDONLY);
    clone.change(&read_only, false).map_err(io::Error::other)?;
    Ok(clone)
}

fn build(job: &Job, root: Option<&DetachedMount>) -> io::Result<()> {
    let mount = |made: Result<DetachedMount, MountError>| made.map_err(io::Error::other);
    // All of them while the host's files and its /proc are in sight.
    let place = mount(tmpfs(SIZE, PLAIN))?;
    let proc = mount(FsContext::open("proc").and_then(|proc| proc.create(PLAIN)))?;
    let (runsc, guest) = (read_only(&job.runsc)?, read_only(&job.guest)?);
    let image = job.sandbox.as_ref().and_then(|sandbox| sandbox.image.as_deref());
    let image = image.map(read_only).transpose()?;
    let devices = DEVICES.map(|name| DetachedMount::clone_of(Path::new("/dev").join(name)));

    let attach = |mount: &DetachedMount, target: &Path| mount.attach(target).map_err(io::Error::other);
    let hook = Path::new(HOOK);
    attach(&place, hook)?;
    for folder in ["proc", "dev", "r", "bundle", "image", "root", "tmp"] {
        fs::create_dir(hook.join(folder))?;
    }
    let file = |mount: &DetachedMount, name: &str| {
        fs::File::create_new(hook.join(name))?;
        attach(mount, &hook.join(name))
    };
    file(&runsc, "runsc")?;
    file(&guest, GUEST_SOURCE.trim_start_matches('/'))?;
    for (name, device) in DEVICES.iter().zip(devices) {
        file(&mount(device)?, &format!("dev/{name}"))?;
    }
    match root {
        Some(root) => attach(root, &hook.join(ROOT.trim_start_matches('/')))?,
        None => fs::create_dir(hook.join(ROOT.trim_start_matches('/')).join(NEW_ROOT.trim_start_matches('/')))?,
    }
    if let Some(image) = &image {
        attach(image, &hook.join("image"))?;
    }
    attach(&proc, &hook.join("proc"))?;
    // runsc takes a network namespace that shows this folder's settings for the host's, as kernels since 6.18 do in all.
    attach(&mount(tmpfs("4k", PLAIN))?, &hook.join("proc/sys/net"))
}

fn tmpfs(size: &str, attributes: MountAttrFlags) -> Result<DetachedMount, MountError> {
    FsContext::open("tmpfs")?
        .option("source", "roost")?
        .option("mode", "0755")?
        .option("size", size)?
        .create(attributes)
}

fn leave_host() -> io::Result<()> {
    rustix::process::chdir(HOOK)?;
    pivot_root(".", ".").map_err(io::Error::other)?;
    unmount(".", UnmountFlags::DETACH).map_err(io::Error::other)?;
    rustix::process::chdir("/")?;
    Ok(())
}

/// Notes for the daemon, in the place itself.
pub(super) fn describe(sandbox: &Sandbox) -> io::Result<()> {
    fs::write(Path::new("/").join(HOSTNAME), &sandbox.hostname)
}
