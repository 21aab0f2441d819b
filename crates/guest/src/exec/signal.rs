//! Signals to an exec, its process group or its session.

use std::io;

use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::{ErrorCode, Failure, SignalTarget};

use super::Exec;
use super::table::ExecTable;
use crate::failure::{bad_request, failed};
use crate::processes::stat;
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
    for process in stat::all()? {
        if process.session == session {
            match send_signal(Receiver::Process(process.pid), signal) {
                Err(error) if error.raw_os_error() != Some(NO_SUCH_PROCESS) => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
