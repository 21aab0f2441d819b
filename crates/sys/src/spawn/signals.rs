//! Signals and the children that they announce.

use std::ffi::c_int;
use std::io;
use std::ptr;
use std::sync::OnceLock;

/// Signals that do not have their default meaning in this process, as of the first call: all that came ignored, and those
/// that the runtime ignores or handles. Nobody here changes any later.
pub(super) fn changed() -> &'static [c_int] {
    static CHANGED: OnceLock<Vec<c_int>> = OnceLock::new();
    const MASK_LEN: usize = 8;
    let is_changed = |signal: &c_int| {
        // The kernel's own layout: the handler comes first, and is zero for the default. The C library would hide the two
        // signals that it keeps for itself.
        let mut action = [0_u64; 4];
        let asked = ptr::null::<u64>();
        // SAFETY: `action` is as large as the kernel's structure; nothing is changed.
        let read = unsafe { libc::syscall(libc::SYS_rt_sigaction, *signal, asked, action.as_mut_ptr(), MASK_LEN) };
        read == 0 && action[0] != 0
    };
    CHANGED.get_or_init(|| (1..=64).filter(is_changed).collect())
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// The pid of a child that has ended and is not reaped yet, if there is one.
pub fn ended_child() -> io::Result<Option<i32>> {
    // SAFETY: `info` is a valid place for the answer; a zeroed siginfo is a valid value.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        match libc::waitid(libc::P_ALL, 0, &mut info, options) {
            0 => Ok(Some(info.si_pid()).filter(|pid| *pid != 0)),
            _ => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// Reaps a child that [`ended_child`] named.
pub fn reap(pid: i32) -> io::Result<Ended> {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer.
    match unsafe { libc::waitpid(pid, &mut status, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ if libc::WIFSIGNALED(status) => Ok(Ended::Signaled(libc::WTERMSIG(status))),
        _ => Ok(Ended::Exited(libc::WEXITSTATUS(status))),
    }
}

/// Whom [`send_signal`] is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// One process.
    Process(i32),
    /// A process group.
    Group(i32),
    /// Every process of this pid namespace but the caller, which must be its PID 1.
    Everyone,
}

/// Sends a signal by number; 0 only asks whether there is a receiver.
pub fn send_signal(receiver: Receiver, signal: i32) -> io::Result<()> {
    let target = match receiver {
        Receiver::Process(pid) if pid > 0 => pid,
        Receiver::Group(group) if group > 1 => -group,
        // Anywhere else this would reach the whole machine.
        Receiver::Everyone if std::process::id() == 1 => -1,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    // SAFETY: `kill` takes plain numbers and touches no memory of ours.
    match unsafe { libc::kill(target, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Blocks every signal in this thread and those it starts later, so that [`next_signal`] gets them.
pub fn block_signals() -> io::Result<()> {
    // SAFETY: `all` is a valid place for the set.
    let result = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

/// Waits for the next signal to this process, all of which must be blocked.
pub fn next_signal() -> io::Result<i32> {
    let mut signal = 0;
    // SAFETY: both are valid places; the set is filled before it is used.
    let result = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigwait(&all, &mut signal)
    };
    if result == 0 { Ok(signal) } else { Err(io::Error::from_raw_os_error(result)) }
}
