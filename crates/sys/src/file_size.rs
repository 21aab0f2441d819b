//! The size of the files that a process may write (`RLIMIT_FSIZE`), as a brake on programs that write for us.
//!
//! A program that ignores the signal of this limit gets an error from its next write, so it can undo its work in order. The
//! kernel checks the limit at each write, also for files that are open already.

use std::fs;
use std::io;

use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, prlimit};

use crate::process::limit_resource;
use crate::remote::while_root;

/// Lets writes of this process beyond `most` bytes of a file fail with `EFBIG`. The programs that it starts inherit that.
pub fn limit_file_size(most: u64) -> io::Result<()> {
    // SAFETY: `SIG_IGN` is a valid disposition, and no handler of this process is replaced.
    if unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    let hard = rustix::process::getrlimit(Resource::Fsize).maximum;
    limit_resource(Resource::Fsize, Some(most), hard)
}

/// Lets the next write to a file fail that `child` makes, a child of this process with one thread.
///
/// Without `CAP_SYS_RESOURCE` a process can limit only those of its own user. So a child that changed its effective user is
/// root again for that moment.
pub fn stop_writes(child: Pid) -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: None };
    // A hard limit that was lower before stays where it is: it takes no privilege to lower it further.
    let lower = || {
        let none_ever = Rlimit { maximum: Some(0), ..none };
        prlimit(Some(child), Resource::Fsize, none).or_else(|_| prlimit(Some(child), Resource::Fsize, none_ever))
    };
    if lower().is_ok() {
        return Ok(());
    }
    let user = effective_user(child)?;
    while_root(child, user, lower)??;
    Ok(())
}

/// Kills what `process` has started and what that has started, as far as it is there at this moment.
pub fn kill_descendants(process: Pid) {
    let (mut parents, mut handles) = (vec![process], Vec::new());
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            // Once the descriptor is there, the number in the list cannot mean another process any more.
            let Ok(handle) = pidfd_open(child, PidfdFlags::empty()) else { continue };
            if children(parent).contains(&child) {
                parents.push(child);
                handles.push(handle);
            }
        }
    }
    for handle in handles {
        pidfd_send_signal(&handle, Signal::KILL).ok();
    }
}

fn effective_user(process: Pid) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()))?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
    user.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn children(process: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    };
    lists.flat_map(pids).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::remote::set_effective_user;

    /// The limit and the signal's disposition are those of a process, so a copy of this test's process tries them.
    #[test]
    fn stopped_program_gets_an_error_from_its_next_write() {
        if std::env::var_os("ROOST_TEST_LIMITED").is_some() {
            return limited();
        }
        let name = "file_size::tests::stopped_program_gets_an_error_from_its_next_write";
        let copy = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("ROOST_TEST_LIMITED", "1")
            .status();
        assert!(copy.unwrap().success());
    }

    fn limited() {
        let file = std::env::temp_dir().join(format!("roost-file-size-{}", std::process::id()));
        limit_file_size(1 << 20).unwrap();
        assert_eq!(fs::write(&file, vec![1; 2 << 20]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        for user in [0, 0x8000_0007] {
            let mut cat = Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(fs::File::create(&file).unwrap())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let pid = Pid::from_child(&cat);
            let mut input = cat.stdin.take().unwrap();
            io::Write::write_all(&mut input, b"x").unwrap();
            while fs::metadata(&file).unwrap().len() == 0 {
                std::thread::yield_now();
            }
            set_effective_user(pid, user).unwrap();
            stop_writes(pid).unwrap();
            assert_eq!(effective_user(pid).unwrap(), user);
            io::Write::write_all(&mut input, b"y").unwrap();
            drop(input);
            assert_eq!(cat.wait().unwrap().code(), Some(1), "user {user}");
            assert_eq!(fs::read(&file).unwrap(), b"x");
        }
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn descendants_of_a_process_are_killed_and_the_process_is_not() {
        let script = "sh -c 'sleep 60 & sleep 60; exit 3'; exit 7";
        let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_child(&shell);
        while children(pid).first().is_none_or(|inner| children(*inner).len() < 2) {
            std::thread::yield_now();
        }
        kill_descendants(pid);
        assert_eq!(shell.wait().unwrap().code(), Some(7));
    }
}
