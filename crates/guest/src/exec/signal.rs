//! Signals to an exec, its process group or its session.

use std::fs;
use std::io;

use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::{ErrorCode, Failure, SignalTarget};

use super::Exec;
use super::table::ExecTable;
use crate::failure::{bad_request, failed};
use crate::wake::lock;

impl ExecTable {
    /// Sends a signal. While the process is not reaped its pid cannot mean another one, so that is checked under the
    /// lock that the reaper takes.
    pub(crate) fn signal(&self, exec: &Exec, signal: i32, target: SignalTarget) -> Result<(), Failure> {
        if !(1..=64).contains(&signal) {
            return Err(bad_request(format!("there is no signal {signal}")));
        }
        let children = lock(&self.children);
        let pid = exec.pid();
        let alive = children.contains_key(&pid);
        let sent = match target {
            SignalTarget::Process if alive => send_signal(Receiver::Process(pid), signal),
            SignalTarget::Group if alive => send_signal(Receiver::Group(pid), signal),
            SignalTarget::Session => {
                // Once the leader is reaped its number can be given anew; then nobody of the old session is left.
                let reused = !alive && send_signal(Receiver::Process(pid), 0).is_ok();
                if reused { Ok(()) } else { signal_session(pid, signal) }
            }
            _ => return Err(Failure::new(ErrorCode::Conflict, format!("exec `{}` has ended", exec.id()))),
        };
        drop(children);
        match sent {
            Err(error) if error.kind() != io::ErrorKind::NotFound && error.raw_os_error() != Some(NO_SUCH_PROCESS) => {
                Err(failed(format_args!("signal exec `{}`", exec.id()), &error))
            }
            _ => Ok(()),
        }
    }
}

const NO_SUCH_PROCESS: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// Signals every process of a session, the ones with a process group of their own included.
fn signal_session(session: i32, signal: i32) -> io::Result<()> {
    for process in processes()? {
        if process.session == session {
            match send_signal(Receiver::Process(process.pid), signal) {
                Err(error) if error.raw_os_error() != Some(NO_SUCH_PROCESS) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) session: i32,
    /// CPU time in clock ticks.
    pub(crate) ticks: u64,
}

/// Every process there is.
pub(crate) fn processes() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may be gone by now.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        found.extend(parse_stat(pid, &String::from_utf8_lossy(&stat)));
    }
    Ok(found)
}

fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    // The name in parentheses can hold anything, parentheses and blanks included.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let session = i32::try_from(number(3)?).ok()?;
    Some(Process { pid, session, ticks: number(11)? + number(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_confuse_the_parser() {
        let stat = "42 (a) b (c)) S 1 42 7 0 -1 4194560 1 2 3 4 10 32 6 7 20 0 1";
        assert_eq!(parse_stat(42, stat), Some(Process { pid: 42, session: 7, ticks: 42 }));
        assert_eq!(parse_stat(42, "42 (a"), None);
        assert_eq!(parse_stat(42, ""), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(processes().unwrap().iter().any(|process| process.pid == own));
    }
}
