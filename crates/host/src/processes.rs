//! Everything that runs inside a sandbox, and signals to it.

use roost_lifecycle::Phase;
use roost_model::{ErrorCode, ExecId, Level, Name, ProcessList, ProcessState, ProcessView, SignalExec, State};
use roost_wire::client::Limits;
use roost_wire::{ProcessInfo, ProcessSignal, Request, parse_signal};

use crate::HostError;
use crate::convert::moment_unsigned;
use crate::guards::Busy;
use crate::handle::Handle;

impl Handle {
    /// All processes inside; neither wakes it nor keeps it awake any longer.
    pub async fn processes(&self) -> Result<ProcessList, HostError> {
        self.living()?;
        let glance = self.glance("list of processes");
        let awake = self.is_awake();
        let record = self.record();
        let state = match record.phase.state() {
            // It is about to fall asleep, and has not said so yet.
            State::Active if !awake => State::Suspending,
            state => state,
        };
        let items = if awake { self.processes_during(&glance).await? } else { Vec::new() };
        Ok(ProcessList { state, level: record.phase.level(), items: items.into_iter().map(process_view).collect() })
    }

    async fn processes_during(&self, glance: &Busy) -> Result<Vec<ProcessInfo>, HostError> {
        let guest = self.guest(glance).await?;
        if let Some(mut kept) = guest.ready() {
            match kept.processes(guest.bounded(Limits::PROCESSES)).await {
                Ok(found) => {
                    guest.give_back(kept);
                    return Ok(found);
                }
                // It had gone stale; a fresh one decides.
                Err(error) if error.is_lost() => {}
                Err(error) => return Err(self.not_understood(guest.failed(error))),
            }
        }
        let (guest, mut connection) = self.connection(glance).await?;
        let found = connection.processes(guest.bounded(Limits::PROCESSES)).await;
        let found = found.map_err(|error| self.not_understood(guest.failed(error)))?;
        guest.give_back(connection);
        Ok(found)
    }

    /// Sends a signal to one process; wakes the sandbox if its processes sleep with it.
    pub async fn signal_process(&self, pid: u32, signal: &SignalExec) -> Result<(), HostError> {
        let number = parse_signal(&signal.signal)
            .ok_or_else(|| HostError::BadRequest(format!("`{}` is not a signal", signal.signal)))?;
        self.living()?;
        let not_found =
            || HostError::Guest { code: ErrorCode::ProcessNotFound, message: format!("no process has the pid {pid}") };
        let inside = i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or_else(not_found)?;
        // What would have the number after a start from files is another process.
        if self.record().phase == Phase::Suspended(Level::Files) {
            return Err(not_found());
        }
        let busy = self.request(format!("signal to process {pid}"));
        // Not through a kept connection: a signal must not be sent twice.
        let (guest, mut connection) = self.connection(&busy).await?;
        let request = Request::ProcessSignal(ProcessSignal { pid: inside, signal: number });
        connection.call_done(&request).await.map_err(|error| self.not_understood(guest.failed(error)))?;
        guest.give_back(connection);
        Ok(())
    }

    /// What a refusal of these requests means: they are always well-formed, so a guest that cannot read one is older than
    /// they are, asleep in an image since.
    fn not_understood(&self, error: HostError) -> HostError {
        match error {
            HostError::Guest { code: ErrorCode::BadRequest, .. } => {
                HostError::GuestOutdated { sandbox: self.record().name.to_string(), what: "its processes" }
            }
            other => other,
        }
    }
}

fn process_view(info: ProcessInfo) -> ProcessView {
    ProcessView {
        pid: u32::try_from(info.pid).unwrap_or(0),
        ppid: u32::try_from(info.parent).unwrap_or(0),
        name: info.name,
        argv: info.argv,
        user: info.user,
        state: ProcessState::of_letter(&info.state),
        threads: info.threads,
        cpu_us: info.cpu_us,
        rss: info.resident,
        started_at: moment_unsigned(info.started_at_ms),
        exec: info.exec.and_then(|id| id.parse::<ExecId>().ok()),
        service: info.service.and_then(|name| name.parse::<Name>().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_becomes_what_the_api_says() {
        let id = ExecId::generate();
        let info = ProcessInfo {
            pid: 7,
            parent: 1,
            name: "sh".to_owned(),
            state: "Z".to_owned(),
            exec: Some(id.to_string()),
            service: Some("Not A Name".to_owned()),
            ..ProcessInfo::default()
        };
        let view = process_view(info);
        assert_eq!((view.pid, view.ppid, view.state), (7, 1, ProcessState::Zombie));
        assert_eq!((view.exec, view.service), (Some(id), None));
    }
}
