//! The sandbox's first process, until it becomes the guest.

use std::ffi::CString;
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use roost_sys::cgroup::confine_self;
use roost_sys::mount::{
    AttributeChange, DetachedMount, FsContext, MountAttrFlags, MountError, UnmountFlags, pivot_root, unmount,
};
use roost_sys::process::{Namespaces, become_user, execute, limit_bounding_set, unshare};
use roost_sys::seccomp;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::mount_bind;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::groups::GroupView;
use super::parent::{MAPPED, ROOT, Timings, report};
use super::protocol::{Failure, LaunchSpec, Report, Step};
use super::root::Masks;
use super::{clocks, numbers};

/// Where the guest's program appears inside.
pub(super) const GUEST: &str = "/run/roost/guest";

/// What identifies this life of the sandbox, where programs look for it and where the guest changes it after a fork.
const BOOT_ID: &str = "/run/roost/boot_id";
const BOOT_ID_SHOWN: &str = "/proc/sys/kernel/random/boot_id";

/// The most terminals of one sandbox.
const TERMINALS: &str = "256";

/// Where the new root hangs for a moment: a folder of the host's that is always there and open to everybody. The whole tree
/// around it goes away.
const PLACE: &str = "/proc";

/// Parts of /proc that may be read but not written.
const READ_ONLY: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
/// Files that say too much about the host: its secrets, its devices, its command line and its load.
pub(super) const MASKED_FILES: [&str; 19] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/kallsyms",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/partitions",
    "/proc/diskstats",
    "/proc/swaps",
    "/proc/vmstat",
    "/proc/zoneinfo",
    "/proc/buddyinfo",
    "/proc/interrupts",
    "/proc/softirqs",
    "/proc/schedstat",
    "/sys/kernel/vmcoreinfo",
    "/sys/kernel/notes",
];
/// Folders that say too much about the host.
pub(super) const MASKED_FOLDERS: [&str; 10] = [
    "/proc/scsi",
    "/proc/acpi",
    "/proc/pressure",
    "/sys/firmware",
    "/sys/kernel/security",
    "/sys/kernel/btf",
    "/sys/fs/btrfs",
    "/sys/fs/ext4",
    "/sys/fs/xfs",
    "/sys/devices/system/node",
];
/// Where programs look for their control groups.
pub(super) const GROUPS: &str = "/sys/fs/cgroup";

/// Mounts made of the host's own files; the inside cannot make them.
#[derive(Debug)]
pub(super) struct FromHost {
    pub(super) guest: DetachedMount,
    pub(super) masks: Masks,
    pub(super) groups: GroupView,
}

/// Capabilities that root inside keeps, all of them over the sandbox's own namespaces only.
///
/// Left out on purpose: `SYS_ADMIN` (mounts, nested namespaces), `MKNOD`, `SYS_MODULE`, `SYS_TIME`, `SYS_BOOT`, `SYSLOG`,
/// `BPF`, `PERFMON`, `DAC_READ_SEARCH` (opening by handle; reading is covered by `DAC_OVERRIDE`), and those that mean
/// nothing in a user namespace (`SYS_NICE`, `SYS_RESOURCE`, `IPC_LOCK`, `LINUX_IMMUTABLE`, `SYS_RAWIO`).
///
/// A sandbox has `NET_ADMIN` (12) and `NET_RAW` (13) only if its spec names them: they open packet rings, which no control
/// group is charged for, the neighbour table that all network namespaces share, nf_tables, xfrm and traffic control.
const CAPABILITIES: [u32; 15] = [
    0,  // CHOWN
    1,  // DAC_OVERRIDE
    3,  // FOWNER
    4,  // FSETID
    5,  // KILL
    6,  // SETGID
    7,  // SETUID
    8,  // SETPCAP
    10, // NET_BIND_SERVICE
    15, // IPC_OWNER
    18, // SYS_CHROOT
    19, // SYS_PTRACE
    28, // LEASE
    29, // AUDIT_WRITE
    31, // SETFCAP
];

/// Builds the inside and becomes the guest; returns only on failure, its own or the launcher's.
pub(super) fn run(
    daemon: BorrowedFd<'_>,
    launcher: &OwnedFd,
    spec: &LaunchSpec,
    from_host: &FromHost,
) -> Result<(), Failure> {
    let mut timings = Timings::start();
    let Some(_) = receive(launcher, MAPPED).map_err(Failure::of(Step::Wait))? else { return Ok(()) };
    timings.done(Step::Wait);
    become_inside(spec).map_err(Failure::of(Step::Inside))?;
    timings.done(Step::Inside);
    let system = SystemMounts::make(spec).map_err(Failure::of(Step::System))?;
    timings.done(Step::System);

    let Some(root) = receive(launcher, ROOT).map_err(Failure::of(Step::Wait))? else { return Ok(()) };
    timings.done(Step::Wait);
    change_root(root).map_err(Failure::of(Step::Pivot))?;
    timings.done(Step::Pivot);
    system.attach(&from_host.guest).map_err(Failure::of(Step::Attach))?;
    from_host.groups.attach(Path::new(GROUPS)).map_err(Failure::of(Step::Attach))?;
    // Everybody inside may ping, as on an ordinary system. Where the kernel has no such setting, root still can.
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 65535").ok();
    timings.done(Step::Attach);
    mask(&from_host.masks).map_err(Failure::of(Step::Mask))?;
    show_boot_id().map_err(Failure::of(Step::Mask))?;
    numbers::show().map_err(Failure::of(Step::Mask))?;
    timings.done(Step::Mask);

    let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Failure::of(Step::Execute))?;
    let socket = rustix::io::fcntl_dupfd_cloexec(daemon, 4).map_err(Failure::of(Step::Execute))?;
    report(daemon, &Report::Timings(timings.parts)).map_err(Failure::of(Step::Talk))?;
    // The launch is timed by these clocks, so they change after its last step.
    clocks::start().map_err(Failure::of(Step::Inside))?;
    restrict(spec).map_err(Failure::of(Step::Restrict))?;
    Err(Failure::of(Step::Execute)(execute_guest(null, socket)))
}

/// What came from the launcher, with the descriptor that it sent along.
struct Received(Option<OwnedFd>);

/// Waits for `wanted`; `None` if the launcher gave up, which it reports itself.
fn receive(launcher: &OwnedFd, wanted: u8) -> io::Result<Option<Received>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(launcher, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    if byte != [wanted] {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(Some(Received(descriptor)))
}

fn become_inside(spec: &LaunchSpec) -> io::Result<()> {
    become_user(0, 0)?;
    // A session of its own: one led from outside could not be saved and restored with the sandbox.
    rustix::process::setsid()?;
    // Only now, born in its control group, is that group what the new namespace takes for the root.
    unshare(Namespaces::CGROUP)?;
    rustix::system::sethostname(spec.hostname.as_bytes())?;
    Ok(())
}

/// Filesystems of the sandbox's own, made while the host's /proc and /sys are in sight (the kernel asks for that), attached
/// later.
struct SystemMounts {
    proc: DetachedMount,
    sys: DetachedMount,
    pts: DetachedMount,
    shm: DetachedMount,
    run: DetachedMount,
}

impl SystemMounts {
    fn make(spec: &LaunchSpec) -> Result<Self, MountError> {
        let plain = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let inert = plain | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Self {
            proc: FsContext::open("proc")?.create(inert)?,
            sys: FsContext::open("sysfs")?.create(inert | MountAttrFlags::MOUNT_ATTR_RDONLY)?,
            pts: FsContext::open("devpts")?
                .option("ptmxmode", "0666")?
                .option("mode", "0620")?
                .option("gid", "5")?
                // All instances share the terminals of the host, and without a bound one sandbox may take all of them.
                .option("max", TERMINALS)?
                .create(MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)?,
            shm: FsContext::open("tmpfs")?
                .option("source", "shm")?
                .option("mode", "1777")?
                .option("size", spec.shared_memory.to_string())?
                .create(plain)?,
            run: FsContext::open("tmpfs")?
                .option("source", "run")?
                .option("mode", "0755")?
                .option("size", "64m")?
                .create(plain)?,
        })
    }

    fn attach(&self, guest: &DetachedMount) -> Result<(), MountError> {
        for (mount, target) in [
            (&self.proc, "/proc"),
            (&self.sys, "/sys"),
            (&self.pts, "/dev/pts"),
            (&self.shm, "/dev/shm"),
            (&self.run, "/run"),
        ] {
            ensure_folder(Path::new(target));
            mount.attach(target)?;
        }
        ensure_folder(Path::new("/run/roost"));
        // Made by nobody else: /run is new. If it fails, attaching says why.
        fs::File::create_new(GUEST).ok();
        guest.attach(GUEST)
    }
}

/// The sandbox's root may have done anything to its own folders before this start; a mount point is put right again.
/// What cannot be mended shows when something is attached there.
fn ensure_folder(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => return,
        Ok(_) => fs::remove_file(path).ok(),
        Err(_) => None,
    };
    fs::create_dir_all(path).ok();
}

fn change_root(Received(root): Received) -> io::Result<()> {
    let root = root.ok_or(io::ErrorKind::InvalidData)?;
    rustix::mount::move_mount(&root, "", CWD, PLACE, rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    rustix::process::chdir(PLACE)?;
    pivot_root(".", ".").map_err(io::Error::other)?;
    unmount(".", UnmountFlags::DETACH).map_err(io::Error::other)?;
    rustix::process::chdir("/")?;
    Ok(())
}

fn mask(masks: &Masks) -> io::Result<()> {
    for path in READ_ONLY.iter().filter(|path| Path::new(path).exists()) {
        put_in_place_of(path, path).map_err(io::Error::other)?;
    }
    put_over(&masks.file, &MASKED_FILES)?;
    put_over(&masks.folder, &MASKED_FOLDERS)
}

/// The host's own would be the same for all sandboxes, over every sleep and fork.
fn show_boot_id() -> io::Result<()> {
    fs::write(BOOT_ID, fs::read("/proc/sys/kernel/random/uuid")?)?;
    put_in_place_of(BOOT_ID, BOOT_ID_SHOWN).map_err(io::Error::other)
}

/// Shows a file or folder, read-only, in the place of another.
pub(super) fn put_in_place_of(source: &str, shown: &str) -> Result<(), MountError> {
    let source = DetachedMount::clone_of(source)?;
    source.change(&AttributeChange::default().set(MountAttrFlags::MOUNT_ATTR_RDONLY), false)?;
    source.attach(shown)
}

/// Attaches a mask once and binds it to the other paths from there. A bind is one call and keeps the attributes.
fn put_over(mask: &DetachedMount, paths: &[&str]) -> io::Result<()> {
    let mut present = paths.iter().filter(|path| Path::new(path).exists());
    let Some(first) = present.next() else { return Ok(()) };
    mask.attach(first).map_err(io::Error::other)?;
    Ok(present.try_for_each(|path| mount_bind(*first, *path))?)
}

/// Without `no_new_privs`, so that sudo works; the filter needs `SYS_ADMIN` here, which is gone with the execution.
fn restrict(spec: &LaunchSpec) -> io::Result<()> {
    // Only at the end, because this process and the launcher have worked on different processors until now.
    // Where an administrator took these processors away meanwhile, the quota is still the limit.
    confine_self(&spec.processors).ok();
    let keep = CAPABILITIES.iter().chain(&spec.capabilities).fold(0_u64, |mask, number| mask | (1 << number));
    limit_bounding_set(keep)?;
    spec.filters.iter().try_for_each(|program| seccomp::install(program))
}

fn execute_guest(null: OwnedFd, socket: OwnedFd) -> io::Error {
    let strings = |texts: &[&str]| texts.iter().map(|text| CString::new(*text)).collect::<Result<Vec<_>, _>>();
    let (program, arguments, environment) = (
        CString::new(GUEST),
        strings(&["roost-guest", "init"]),
        strings(&["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
    );
    match (program, arguments, environment) {
        (Ok(program), Ok(arguments), Ok(environment)) => execute(&program, &arguments, &environment, null, socket),
        _ => io::Error::from(io::ErrorKind::InvalidInput),
    }
}
