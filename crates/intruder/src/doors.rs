//! Tries every door: calls of the kernel, and files by which the host is configured.

use std::fs::File;
use std::io;

use roost_sys::doors::DOORS;
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A door that was tried.
#[derive(Debug)]
pub struct Tried {
    /// What was tried.
    pub name: String,
    /// The kernel's refusal, or how far the attempt came.
    pub outcome: Result<String, String>,
}

/// Files that configure the host or show its memory and log.
const FILES: [&str; 12] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sysrq-trigger",
    "/proc/kcore",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/uevent_helper",
    "/sys/kernel/mm/ksm/run",
    "/dev/mem",
    "/dev/kmsg",
];

/// Tries all doors, as the user who runs this.
#[must_use]
pub fn try_doors() -> Vec<Tried> {
    let calls = DOORS
        .iter()
        .map(|door| Tried { name: door.name.to_owned(), outcome: door.try_open().map(|error| error.to_string()) });
    let files =
        FILES.iter().map(|path| tried(&format!("write {path}"), File::options().write(true).open(path).map(drop)));
    calls.chain(files).chain(mounts()).collect()
}

fn mounts() -> [Tried; 4] {
    let none = None::<&std::ffi::CStr>;
    let device = rustix::fs::makedev(8, 0);
    [
        tried("mount tmpfs", mount("none", "/tmp", "tmpfs", MountFlags::empty(), none).map_err(io::Error::from)),
        tried("mount proc", mount("none", "/tmp", "proc", MountFlags::empty(), none).map_err(io::Error::from)),
        tried("unmount /proc/sys", unmount("/proc/sys", UnmountFlags::DETACH).map_err(io::Error::from)),
        tried(
            "mknod of a disk",
            rustix::fs::mknodat(CWD, "/tmp/disk", FileType::BlockDevice, Mode::RUSR, device).map_err(io::Error::from),
        ),
    ]
}

/// Success is an open door.
fn tried(name: &str, outcome: io::Result<()>) -> Tried {
    let outcome = match outcome {
        Ok(()) => Err("it was done".to_owned()),
        Err(error) => Ok(error.to_string()),
    };
    Tried { name: name.to_owned(), outcome }
}
