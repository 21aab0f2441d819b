//! Birth and shape of processes: `clone3` with namespaces, credentials, scheduling, `execve`.
//!
//! Everything here acts on the calling process and is meant for small single-threaded programs; what would be unsound with
//! more threads checks for them.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit};

/// Wider than the type libc gives it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Namespaces a new process is born into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None: the new process shares all of the caller's.
    pub const NONE: Self = Self(0);
    /// Users and groups.
    pub const USER: Self = Self(libc::CLONE_NEWUSER as u64);
    /// Process ids.
    pub const PID: Self = Self(libc::CLONE_NEWPID as u64);
    /// Mounts.
    pub const MOUNT: Self = Self(libc::CLONE_NEWNS as u64);
    /// Network devices, addresses, sockets.
    pub const NET: Self = Self(libc::CLONE_NEWNET as u64);
    /// System V IPC and message queues.
    pub const IPC: Self = Self(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Self = Self(libc::CLONE_NEWUTS as u64);
    /// The root of what is seen of control groups.
    pub const CGROUP: Self = Self(libc::CLONE_NEWCGROUP as u64);
    /// Offsets of the monotonic and boot clocks; kernels since 5.6.
    pub const TIME: Self = Self(0x80);

    /// These and those.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// On which side of [`clone_process`] the caller finds itself.
#[derive(Debug)]
pub enum Cloned {
    /// In the caller, with the new process.
    Parent {
        /// Its pid as the caller sees it.
        pid: Pid,
        /// A handle on it that never means another process.
        pidfd: OwnedFd,
    },
    /// In the new process.
    Child,
}

/// Makes a copy of this process in new namespaces, born in the v2 control group behind `cgroup` if one is given.
///
/// Refused with `EBUSY` when the caller has more than one thread: a copy would hold locks whose owners it lacks.
pub fn clone_process(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    clone_with(namespaces.0, libc::SIGCHLD, cgroup)
}

/// Makes a copy of this process as [`clone_process`] does, with `owner` as the user who owns its user namespace.
///
/// The kernel charges all that it counts per user of the namespace (watches, timers, queues, pending signals, locked memory,
/// namespaces) to its owner as well. An owner that is nobody else's keeps these counts apart from those of all other users.
pub fn clone_owned(namespaces: Namespaces, cgroup: Option<BorrowedFd<'_>>, owner: u32) -> io::Result<Cloned> {
    use rustix::thread::{CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits};
    let before = capabilities_secure_bits()?;
    set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_effective_user(owner)?;
    let cloned = clone_process(namespaces, cgroup);
    if !matches!(cloned, Ok(Cloned::Child)) {
        // The clone's namespace has secure bits of its own, and maps neither user yet.
        set_effective_user(0)?;
        set_capabilities_secure_bits(before)?;
    }
    cloned
}

/// The user who owns the user namespace behind a descriptor.
pub fn owner_of_namespace(namespace: BorrowedFd<'_>) -> io::Result<u32> {
    const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;
    let mut owner: libc::uid_t = 0;
    // SAFETY: the kernel writes one `uid_t` to `owner`, which outlives the call.
    check(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut owner) })?;
    Ok(owner)
}

/// Stays dumpable, as the kernel would not have it.
fn set_effective_user(uid: u32) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // SAFETY: the call takes integers only, and changes this thread's credentials alone.
    check(unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, uid, u32::MAX) as i32 })?;
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Makes a copy of this process that is not its child but its parent's, for whom it is like one of its own.
///
/// Refused with `EBUSY` when the caller has more than one thread.
pub fn clone_sibling() -> io::Result<Cloned> {
    // How its end is signalled is taken from this process.
    clone_with(libc::CLONE_PARENT as u64, 0, None)
}

fn clone_with(flags: u64, exit_signal: libc::c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    if !is_single_threaded()? {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    let mut pidfd: libc::c_int = -1;
    // SAFETY: all fields of `clone_args` are integers for which zero is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = exit_signal as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
    }
    // SAFETY: without CLONE_VM the child gets a copy of this address space, so it behaves as after `fork`; no other
    // thread exists that could leave a lock held in the copy. `args` outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match i32::try_from(result).ok().map(Pid::from_raw) {
        _ if result < 0 => Err(io::Error::last_os_error()),
        Some(Some(pid)) => Ok(Cloned::Parent {
            pid,
            // SAFETY: the kernel stored a fresh descriptor that nobody else owns.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
        _ => Ok(Cloned::Child),
    }
}

/// A folder of processes counts two links for itself and one for each thread.
fn is_single_threaded() -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self/task")?.nlink() == 3)
}

/// Leaves the shared namespaces named for new ones.
pub fn unshare(namespaces: Namespaces) -> io::Result<()> {
    let flags = i32::try_from(namespaces.0).map_err(io::Error::other)?;
    // SAFETY: `unshare` takes no pointers, and without CLONE_FILES and CLONE_VM no memory or descriptor changes owner.
    check(unsafe { libc::unshare(flags) })
}

/// Becomes this user and group, real, effective and saved, with no further groups.
///
/// Stays dumpable: `/proc/self` keeps belonging to the process, although its credentials changed.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Runs `work` with other filesystem ids and all capabilities kept, then returns to root's.
///
/// Overlayfs makes its own files with the ids of whoever mounts it.
pub fn with_filesystem_ids<T>(uid: u32, gid: u32, work: impl FnOnce() -> T) -> io::Result<T> {
    use rustix::thread::{CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits};
    let before = capabilities_secure_bits()?;
    set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_filesystem_ids(uid, gid)?;
    let result = work();
    set_filesystem_ids(0, 0)?;
    set_capabilities_secure_bits(before)?;
    Ok(result)
}

/// Both calls return the previous id and never fail openly: asking again with an impossible id shows what holds.
fn set_filesystem_ids(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: neither call takes pointers; they change only this thread's credentials.
    let holds = unsafe {
        libc::setfsgid(gid);
        libc::setfsuid(uid);
        libc::setfsgid(u32::MAX).cast_unsigned() == gid && libc::setfsuid(u32::MAX).cast_unsigned() == uid
    };
    if holds { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Takes every capability that is not in `keep` (one bit per capability) out of the bounding set.
pub fn limit_bounding_set(keep: u64) -> io::Result<()> {
    for number in 0..64 {
        if keep & (1 << number) != 0 {
            continue;
        }
        // SAFETY: this prctl takes integers only.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number as u32), 0, 0, 0) };
        match check(result) {
            // The first number the kernel does not know ends the list.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => break,
            other => other?,
        }
    }
    Ok(())
}

/// Returns to the ordinary scheduling class at nice 0 and to best-effort disk priority.
pub fn reset_scheduling() -> io::Result<()> {
    // SAFETY: zero is a valid value of every field of `sched_param`.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `parameters` outlives the call; pid 0 is the caller.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) })?;
    Ok(rustix::process::setpriority_process(None, 0)?)
}

/// Sets a resource limit, as near to the wish as the caller's privileges allow.
pub fn limit_resource(resource: Resource, soft: Option<u64>, hard: Option<u64>) -> io::Result<()> {
    let wish = Rlimit { current: soft, maximum: hard };
    if rustix::process::setrlimit(resource, wish).is_ok() {
        return Ok(());
    }
    // Without CAP_SYS_RESOURCE the hard limit only goes down.
    let ceiling = rustix::process::getrlimit(resource).maximum;
    let lower = |limit: Option<u64>| match (limit, ceiling) {
        (Some(limit), Some(ceiling)) => Some(limit.min(ceiling)),
        (limit, ceiling) => limit.or(ceiling),
    };
    Ok(rustix::process::setrlimit(resource, Rlimit { current: lower(soft), maximum: lower(hard) })?)
}

/// Replaces this process by the program at `path`; returns only on failure.
///
/// The program gets `stdio` as descriptors 0, 1 and 2, `extra` as 3, and no other.
pub fn execute(path: &CStr, argv: &[CString], env: &[CString], stdio: OwnedFd, extra: OwnedFd) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    if let Err(e) = arrange_descriptors(&stdio, &extra) {
        return e;
    }
    // SAFETY: `path` and all strings are NUL-terminated and outlive the call, both arrays end with a null pointer.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

fn arrange_descriptors(stdio: &OwnedFd, extra: &OwnedFd) -> io::Result<()> {
    // Moved out of the way first, so that neither is overwritten before it was duplicated.
    let stdio = rustix::io::fcntl_dupfd_cloexec(stdio, 10)?;
    let extra = rustix::io::fcntl_dupfd_cloexec(extra, 10)?;
    for (source, target) in [(&stdio, 0), (&stdio, 1), (&stdio, 2), (&extra, 3)] {
        // SAFETY: the process is about to be replaced, nothing of it uses 0 to 3 afterwards.
        if unsafe { libc::dup2(source.as_raw_fd(), target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: only marks descriptors; the owners in this process stay valid until `execve`.
    check(unsafe { libc::syscall(libc::SYS_close_range, 4, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) as i32 })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The CPU time that a process has used, with all of its threads, also those that have ended.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let failed = |_| io::Error::from_raw_os_error(libc::ESRCH);
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: writes the number of a clock to a place of ours.
    let error = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).map_err(failed)?, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: writes a time to a place of ours; a process that has ended meanwhile is an error.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Ok(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
}

/// Which pid a process has in the innermost pid namespace it is in, from `/proc/<pid>/status`.
pub fn innermost_pid(pid: u32) -> io::Result<Option<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(parse_innermost_pid(&status))
}

/// How many pid namespaces below our own is the one whose first process this is: 1 for one made here, 2 for one
/// made in that; 0 if it is the first of none.
pub fn depth_as_first(pid: u32) -> io::Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(parse_depth_as_first(&status))
}

fn parse_depth_as_first(status: &str) -> usize {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let depth = numbers.split_whitespace().count().saturating_sub(1);
    if parse_innermost_pid(status) == Some(1) { depth } else { 0 }
}

fn parse_innermost_pid(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let numbers: Vec<&str> = numbers.split_whitespace().collect();
    // One number alone: the process is in our own pid namespace.
    (numbers.len() > 1).then(|| numbers.last()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_cloned() {
        // The test harness runs every test in a thread of its own.
        let error = clone_process(Namespaces::PID, None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn cpu_time_grows_with_work_of_any_thread() {
        let own = std::process::id();
        let before = cpu_time(own).unwrap();
        let work = || (0..1_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        std::thread::spawn(work).join().unwrap();
        assert!(cpu_time(own).unwrap() > before);
        assert!(cpu_time(u32::MAX).is_err());
    }

    #[test]
    fn the_innermost_pid_is_the_last() {
        assert_eq!(parse_innermost_pid("Name:\tx\nNSpid:\t4711\t1\n"), Some(1));
        assert_eq!(parse_innermost_pid("NSpid:\t4711\n"), None);
        let depths =
            ["4711\t1", "4711\t8\t1", "4711\t8", "1"].map(|pids| parse_depth_as_first(&format!("NSpid:\t{pids}\n")));
        assert_eq!(depths, [1, 2, 0, 0]);
        assert_eq!(parse_innermost_pid("Name:\tx\n"), None);
    }

    #[test]
    fn a_limit_beyond_reach_goes_as_far_as_it_can() {
        let before = rustix::process::getrlimit(Resource::Core);
        limit_resource(Resource::Core, Some(0), before.maximum).unwrap();
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        limit_resource(Resource::Core, None, None).unwrap();
        rustix::process::setrlimit(Resource::Core, before).ok();
    }

    #[test]
    fn filesystem_ids_come_and_go() {
        let file = std::env::temp_dir().join(format!("roost-fsid-{}", std::process::id()));
        with_filesystem_ids(70_000, 70_001, || std::fs::write(&file, b"x").unwrap()).unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&file).unwrap());
        std::fs::remove_file(&file).unwrap();
        assert_eq!(owner, 70_000);
    }
}
