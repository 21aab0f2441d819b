//! What the child does between the fork and its program. Only async-signal-safe calls are allowed here.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use super::SpawnSpec;

/// The steps of the child, as it names them in a failure.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Step {
    Setup = 1,
    Chdir = 2,
    Exec = 3,
}

/// Where the child keeps the pipe for its failure: right behind standard error.
pub(super) const FAILURE_FD: RawFd = 3;

/// Pointers into a [`SpawnSpec`], laid out as the kernel wants them.
pub(super) struct Prepared {
    pub(super) candidates: Vec<*const c_char>,
    pub(super) argv: Vec<*const c_char>,
    pub(super) env: Vec<*const c_char>,
    pub(super) stdio: [RawFd; 3],
    /// Signals that do not have their default meaning here.
    pub(super) signals: &'static [c_int],
}

/// All that the child is handed.
pub(super) struct Child<'a> {
    pub(super) spec: &'a SpawnSpec<'a>,
    pub(super) prepared: &'a Prepared,
    pub(super) report: RawFd,
}

/// Words of the child's stack, 16 bytes each: it calls little, and nothing that calls itself.
const STACK: usize = 2048;

impl Child<'_> {
    /// Makes the process, which goes on by itself; one that was lent our memory has given it back when this returns.
    pub(super) fn clone_process(&self, lend_memory: bool) -> io::Result<i32> {
        let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK);
        let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
        let shared = if lend_memory { libc::CLONE_VM | libc::CLONE_VFORK } else { 0 };
        let argument = ptr::from_ref(self).cast_mut().cast::<c_void>();
        // SAFETY: the child runs nothing but `run` on a stack of its own, which is aligned and lives until it has its program
        // or is gone: without a copy of our memory it has us wait for that. Until then it only reads what `self` borrows.
        let pid = unsafe { libc::clone(run, top.cast(), shared | libc::SIGCHLD, argument) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        if lend_memory {
            // What became another user in our memory has made it nobody's to look at, us included.
            // SAFETY: a plain setting of this process.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        }
        Ok(pid)
    }
}

extern "C" fn run(argument: *mut c_void) -> c_int {
    // SAFETY: it is the `Child` that `clone_process` handed over, which stays where it is until this process has its program;
    // this is the child, right after it was made.
    unsafe {
        let child = &*argument.cast::<Child<'_>>();
        become_program(child.spec, child.prepared, child.report)
    }
}

/// The child's way from the fork to its program.
///
/// # Safety
/// Only right after a fork in the child. `prepared` must point to NUL-terminated strings and arrays that end with a null
/// pointer, and `report` must be above [`FAILURE_FD`].
pub(super) unsafe fn become_program(spec: &SpawnSpec<'_>, prepared: &Prepared, mut report: RawFd) -> ! {
    // SAFETY: raw system calls on plain values and on memory of `spec` and `prepared`, which this process has, or has a copy of.
    unsafe {
        let outcome = set_up(spec, prepared, &mut report);
        let failure = match outcome {
            Err(step) => (step, *libc::__errno_location()),
            Ok(()) if libc::chdir(spec.cwd.as_ptr()) != 0 => (Step::Chdir, *libc::__errno_location()),
            Ok(()) => (Step::Exec, execute(prepared)),
        };
        let [e0, e1, e2, e3] = failure.1.to_ne_bytes();
        let message = [failure.0 as u8, e0, e1, e2, e3];
        libc::write(report, message.as_ptr().cast(), message.len());
        libc::_exit(127)
    }
}

/// # Safety
/// As [`become_program`].
unsafe fn set_up(spec: &SpawnSpec<'_>, prepared: &Prepared, report: &mut RawFd) -> Result<(), Step> {
    let check = |result: c_long| if result < 0 { Err(Step::Setup) } else { Ok(()) };
    // SAFETY: see `become_program`; the signal set and the action are plain values on this stack.
    unsafe {
        check(c_long::from(libc::setsid()))?;
        let [input, output, error] = prepared.stdio;
        // Standard descriptors may themselves be given as sources: they are lifted out of the way before the copies.
        let mut lifted = [input, output, error];
        for fd in &mut lifted {
            if *fd <= FAILURE_FD {
                *fd = libc::fcntl(*fd, libc::F_DUPFD, FAILURE_FD + 1);
                check(c_long::from(*fd))?;
            }
        }
        check(c_long::from(libc::dup3(*report, FAILURE_FD, libc::O_CLOEXEC)))?;
        *report = FAILURE_FD;
        for (target, source) in (0..).zip(lifted) {
            check(c_long::from(libc::dup2(source, target)))?;
        }
        check(libc::syscall(libc::SYS_close_range, FAILURE_FD + 1, c_int::MAX, 0))?;
        if spec.terminal {
            check(c_long::from(libc::ioctl(0, libc::TIOCSCTTY, 0)))?;
        }
        reset_signals(prepared.signals);
        libc::umask(0o022);
        set_oom_score(&spec.oom_score);
        check(libc::syscall(libc::SYS_setgroups, spec.groups.len(), spec.groups.as_ptr()))?;
        check(libc::syscall(libc::SYS_setresgid, spec.gid, spec.gid, spec.gid))?;
        check(libc::syscall(libc::SYS_setresuid, spec.uid, spec.uid, spec.uid))
    }
}

/// Tries the candidates and returns the errno that tells most: a program that may not be executed beats one that is absent.
///
/// # Safety
/// As [`become_program`].
unsafe fn execute(prepared: &Prepared) -> c_int {
    let mut worst = libc::ENOENT;
    for &path in &prepared.candidates {
        // SAFETY: NUL-terminated strings in arrays that end with a null pointer.
        let errno = unsafe {
            libc::execve(path, prepared.argv.as_ptr(), prepared.env.as_ptr());
            *libc::__errno_location()
        };
        match errno {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => worst = errno,
            _ => return errno,
        }
    }
    worst
}

/// Gives signals their default meaning and blocks none: ignored signals and the mask outlive an exec, and a handler must not
/// run in memory that is lent.
///
/// # Safety
/// As [`become_program`].
unsafe fn reset_signals(changed: &[c_int]) {
    // The kernel's own layout (handler, flags, restorer, mask), all zero: the default. The C library would refuse the two
    // signals that it keeps for itself, which may well have come to us ignored.
    const DEFAULT: [u64; 4] = [0; 4];
    const MASK_LEN: usize = 8;
    // SAFETY: `DEFAULT` is as large as the kernel's structure, an emptied set is a valid mask; both calls are
    // async-signal-safe.
    unsafe {
        for &signal in changed {
            libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), ptr::null::<u64>(), MASK_LEN);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

/// PID 1 is to outlive what it starts when memory runs out.
///
/// # Safety
/// As [`become_program`].
unsafe fn set_oom_score(score: &CStr) {
    const PATH: &CStr = c"/proc/self/oom_score_adj";
    // SAFETY: NUL-terminated strings; a failure only leaves the score as it is.
    unsafe {
        let fd = libc::open(PATH.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd >= 0 {
            libc::write(fd, score.as_ptr().cast(), score.count_bytes());
            libc::close(fd);
        }
    }
}
