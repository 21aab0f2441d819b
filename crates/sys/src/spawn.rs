//! Starting and reaping processes from a program with threads: what the guest needs as PID 1.
//!
//! A start is a fork and an exec with everything prepared before the fork, because between the two only
//! async-signal-safe calls are allowed: no allocation, no locks, and raw system calls where the C library's wrapper does
//! more than the call (`setuid` would signal threads that a forked child does not have). A failure in the child comes
//! back through a pipe that a successful exec closes.
//!
//! The child can have a copy of our memory, or be lent it while the thread that made it stands still (`vfork`). The second is
//! quicker, twice so in a kernel that has to copy an address space by itself, but whoever looks at the two of them in that
//! moment finds two processes with one memory.

mod child;
mod signals;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use child::{Child, FAILURE_FD, Prepared, Step};
pub use signals::{Ended, Receiver, block_signals, ended_child, next_signal, reap, send_signal};

/// Everything about a process that is to be started.
#[derive(Debug)]
pub struct SpawnSpec<'a> {
    /// Paths of the program, tried in this order.
    pub candidates: Vec<CString>,
    /// Its arguments, the zeroth included.
    pub argv: Vec<CString>,
    /// Its environment, `NAME=value` each.
    pub env: Vec<CString>,
    /// Its working folder, entered as its user.
    pub cwd: CString,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Its `oom_score_adj`.
    pub oom_score: CString,
    /// Standard input is a terminal that becomes the one of its session.
    pub terminal: bool,
    /// It is lent our memory until it runs its program, in place of a copy; this thread waits for that.
    pub lend_memory: bool,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No process could be made.
    #[error("failed to fork")]
    Fork(#[source] io::Error),
    /// The new process could not take its identity, terminal or file descriptors.
    #[error("failed to set the new process up")]
    Setup(#[source] io::Error),
    /// The working folder could not be entered.
    #[error("failed to enter the working folder")]
    Chdir(#[source] io::Error),
    /// None of the candidates could be executed.
    #[error("failed to execute")]
    Exec(#[source] io::Error),
}

/// A child that has been forked and may not have reached its program yet.
#[derive(Debug)]
pub struct Forked {
    /// Its process id, which is also its process group and session.
    pub pid: i32,
    failures: File,
}

impl SpawnSpec<'_> {
    /// Forks. The child goes on by itself; [`Forked::executed`] tells whether it reached its program.
    ///
    /// The caller must arrange that nobody reaps the child before its pid is known.
    pub fn fork(&self) -> Result<Forked, SpawnError> {
        let (failures, report) = failure_pipe().map_err(SpawnError::Fork)?;
        let prepared = Prepared {
            candidates: self.candidates.iter().map(|path| path.as_ptr()).collect(),
            argv: self.argv.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect(),
            env: self.env.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect(),
            stdio: self.stdio.map(|fd| fd.as_raw_fd()),
            signals: signals::changed(),
        };
        let child = Child { spec: self, prepared: &prepared, report: report.as_raw_fd() };
        let pid = child.clone_process(self.lend_memory).map_err(SpawnError::Fork)?;
        Ok(Forked { pid, failures: File::from(failures) })
    }
}

impl Forked {
    /// Waits until the child runs its program, or says why it does not. It is left to the reaper either way.
    pub fn executed(mut self) -> Result<(), SpawnError> {
        let mut report = [0; 5];
        let mut filled = 0;
        while let Some(rest) = report.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.failures.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SpawnError::Setup(error)),
            }
        }
        let [step, errno @ ..] = report;
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        match step {
            // An early death by a signal looks like a success here, and is told by the reaper.
            _ if filled < report.len() => Ok(()),
            step if step == Step::Chdir as u8 => Err(SpawnError::Chdir(error)),
            step if step == Step::Exec as u8 => Err(SpawnError::Exec(error)),
            _ => Err(SpawnError::Setup(error)),
        }
    }
}

/// A pipe whose write end is above the descriptors that the child will replace.
fn failure_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read, rustix::io::fcntl_dupfd_cloexec(&write, FAILURE_FD + 1)?))
}

/// Takes over a descriptor that this process was started with; fails if it is not open.
///
/// To be called once for a number, before anything else could have opened it.
pub fn inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `fcntl` on a number that is not open only fails.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, came from whoever started this process, and by the contract above nobody here owns it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Keeps the heap of a small program with threads small: one arena, and freed memory goes back early.
pub fn keep_heap_small() {
    const LARGE: std::ffi::c_int = 64 * 1024;
    // SAFETY: plain settings of the allocator; an unknown one is refused without effect.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn start(lend_memory: bool, program: &str, argument: &str, cwd: &str) -> (Forked, Result<Ended, io::Error>) {
        start_as(0, lend_memory, program, argument, cwd)
    }

    fn start_as(
        uid: u32,
        lend_memory: bool,
        program: &str,
        argument: &str,
        cwd: &str,
    ) -> (Forked, Result<Ended, io::Error>) {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let spec = SpawnSpec {
            candidates: vec![c"/nonexistent/sh".into(), CString::new(program).unwrap()],
            argv: vec![c"sh".into(), c"-c".into(), CString::new(argument).unwrap()],
            env: vec![],
            cwd: CString::new(cwd).unwrap(),
            uid,
            gid: uid,
            groups: vec![],
            stdio: [null.as_fd(); 3],
            oom_score: c"100".into(),
            terminal: false,
            lend_memory,
        };
        let forked = spec.fork().unwrap();
        let pid = forked.pid;
        (forked, reap(pid))
    }

    #[test]
    fn a_program_runs_and_its_end_is_told() {
        for lend in [false, true] {
            let (forked, ended) = start(lend, "/bin/sh", "exit $(cat /proc/self/oom_score_adj)", "/");
            assert_eq!(ended.unwrap(), Ended::Exited(100));
            assert!(forked.executed().is_ok());
            let (_, ended) = start(lend, "/bin/sh", "kill -9 $$", "/");
            assert_eq!(ended.unwrap(), Ended::Signaled(9));
        }
    }

    #[test]
    fn failures_of_the_child_come_back() {
        let errno = |error: &io::Error| error.raw_os_error().unwrap();
        for lend in [false, true] {
            let (forked, ended) = start(lend, "/nonexistent", "", "/");
            assert_eq!(ended.unwrap(), Ended::Exited(127));
            assert!(matches!(forked.executed(), Err(SpawnError::Exec(error)) if errno(&error) == libc::ENOENT));
            let (forked, _) = start(lend, "/etc/passwd", "", "/");
            assert!(matches!(forked.executed(), Err(SpawnError::Exec(error)) if errno(&error) == libc::EACCES));
            let (forked, _) = start(lend, "/bin/sh", "", "/nonexistent");
            assert!(matches!(forked.executed(), Err(SpawnError::Chdir(_))));
        }
    }

    /// The runtime ignores `SIGPIPE` here, and an ignored signal would be one in the program, too.
    #[test]
    fn a_program_finds_no_signal_ignored_or_blocked() {
        for lend in [false, true] {
            let line = r#"test "$(grep -E '^Sig(Blk|Ign)' /proc/self/status | tr -d '[:space:]0')" = SigBlk:SigIgn:"#;
            let (forked, ended) = start(lend, "/bin/sh", line, "/");
            assert!(forked.executed().is_ok());
            assert_eq!(ended.unwrap(), Ended::Exited(0), "memory lent: {lend}");
        }
    }

    /// Somebody else's memory is not to be looked at, and for a moment ours was one of those.
    #[test]
    fn our_own_memory_stays_ours() {
        for lend in [false, true] {
            let (forked, _) = start_as(1000, lend, "/bin/sh", "exit 0", "/");
            assert!(forked.executed().is_ok());
            // SAFETY: asks for a plain value.
            assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1);
        }
    }

    #[test]
    fn a_signal_to_everyone_needs_to_be_pid_1() {
        assert!(send_signal(Receiver::Everyone, 0).is_err());
        for receiver in [Receiver::Process(0), Receiver::Process(-1), Receiver::Group(0), Receiver::Group(1)] {
            assert!(send_signal(receiver, 0).is_err(), "{receiver:?}");
        }
        assert!(inherited_fd(987_654).is_err());
    }
}
