//! Everything that runs inside, whoever started it, and signals to it.

pub(crate) mod owner;
pub(crate) mod stat;

use std::fs;

use roost_sys::spawn::{Receiver, send_signal};
use roost_wire::frame::MAX_CONTROL;
use roost_wire::{ErrorCode, Failure, ProcessInfo, ProcessSignal};

use crate::exec::now_ms;
use crate::exec::start::shown;
use crate::failure::{bad_request, failed};
use crate::guest::Guest;
use crate::users::Users;
use owner::Owners;
use stat::Stat;

/// How many are told in one reply at most; fewer if they would fill a frame.
const PAGE: usize = 1024;

/// A page of all processes, by pid.
pub(crate) fn page(guest: &Guest, after: Option<i32>) -> Result<Vec<ProcessInfo>, Failure> {
    let mut all = stat::all().map_err(|error| failed("read `/proc`", &error))?;
    all.sort_unstable_by_key(|process| process.pid);
    let (owners, users, clock) = (Owners::of(guest, &all), Users::load(), Clock::read());
    let mut room = MAX_CONTROL / 2;
    let mut fits = |info: &ProcessInfo| {
        let size = serde_json::to_vec(info).map_or(0, |text| text.len());
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let later = all.iter().filter(|process| after.is_none_or(|after| process.pid > after));
    let told = later.filter_map(|process| info(process, &owners, &users, &clock));
    Ok(told.take(PAGE).take_while(|info| fits(info)).collect())
}

/// What is told of a process; nothing of one that has gone meanwhile.
fn info(process: &Stat, owners: &Owners, users: &Users, clock: &Clock) -> Option<ProcessInfo> {
    let pid = process.pid;
    let status = stat::about(pid, "status").ok()?;
    let uid = effective_uid(&String::from_utf8_lossy(&status))?;
    let owner = owners.owner_of(process);
    let own_start = owner.filter(|owner| owner.leader == pid).map(|owner| owner.started_at_ms);
    Some(ProcessInfo {
        pid,
        parent: process.parent,
        name: process.name.clone(),
        argv: shown(&arguments(&stat::about(pid, "cmdline").unwrap_or_default())),
        user: users.user_name(uid).unwrap_or_else(|| uid.to_string()),
        state: process.state.clone(),
        threads: process.threads,
        cpu_us: clock.micros(process.ticks),
        resident: process.pages.saturating_mul(rustix::param::page_size() as u64),
        // The kernel counts from a wake out of an image; we remember longer.
        started_at_ms: own_start.unwrap_or_else(|| clock.moment(process.started)),
        exec: owner.and_then(|owner| owner.exec.clone()),
        service: owner.and_then(|owner| owner.service.clone()),
    })
}

fn effective_uid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Arguments end with a NUL each; a program that writes over its own may leave more of them.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else { return Vec::new() };
    let bytes = bytes.get(..=last).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// The kernel's way to count time.
struct Clock {
    ticks_per_second: u64,
    /// When the machine started, as far as its clocks say now.
    booted_at_ms: u64,
}

impl Clock {
    fn read() -> Self {
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let booted_at_ms = now_ms().saturating_sub(milliseconds(&uptime).unwrap_or(0));
        Self { ticks_per_second: rustix::param::clock_ticks_per_second().max(1), booted_at_ms }
    }

    fn micros(&self, ticks: u64) -> u64 {
        ticks.saturating_mul(1_000_000) / self.ticks_per_second
    }

    fn moment(&self, ticks: u64) -> u64 {
        self.booted_at_ms.saturating_add(self.micros(ticks) / 1000)
    }
}

/// The first of the two numbers in `/proc/uptime`, seconds with a fraction.
fn milliseconds(uptime: &str) -> Option<u64> {
    let (whole, fraction) = uptime.split_ascii_whitespace().next()?.split_once('.')?;
    let thousandths: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    Some(whole.parse::<u64>().ok()?.saturating_mul(1000) + thousandths)
}

/// Sends a signal to a process.
pub(crate) fn signal(wanted: ProcessSignal) -> Result<(), Failure> {
    let ProcessSignal { pid, signal } = wanted;
    if !(1..=64).contains(&signal) {
        return Err(bad_request(format!("there is no signal {signal}")));
    }
    let not_found = || Failure::new(ErrorCode::ProcessNotFound, format!("no process has the pid {pid}"));
    // To the kernel these would be groups, or everybody.
    if pid < 1 {
        return Err(not_found());
    }
    if u32::try_from(pid) == Ok(std::process::id()) {
        return Err(Failure::new(ErrorCode::PermissionDenied, format!("process {pid} is Roost's own guest")));
    }
    match send_signal(Receiver::Process(pid), signal) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Err(not_found()),
        Err(error) => Err(failed(format_args!("signal process {pid}"), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_as_programs_leave_them() {
        assert_eq!(arguments(b"sh\0-c\0\0x y\0"), ["sh", "-c", "", "x y"]);
        assert_eq!(arguments(b"nginx: worker process\0\0\0\0"), ["nginx: worker process"]);
        assert_eq!(arguments(b"cut in the mid"), ["cut in the mid"]);
        assert_eq!(arguments(b"a\xff\0"), ["a\u{fffd}"]);
        assert!(arguments(b"").is_empty() && arguments(b"\0\0").is_empty());
    }

    #[test]
    fn who_and_when() {
        assert_eq!(effective_uid("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t1\t1\t1\t1\n"), Some(0));
        assert_eq!(effective_uid("Name:\tx\n"), None);
        assert_eq!(milliseconds("1234.5 99.1\n"), Some(1_234_500));
        assert_eq!(milliseconds("7.89 1.0"), Some(7_890));
        assert_eq!(milliseconds("soon"), None);
        let clock = Clock { ticks_per_second: 100, booted_at_ms: 5000 };
        assert_eq!((clock.micros(3), clock.moment(150)), (30_000, 6_500));
    }

    #[test]
    fn signals_go_to_single_processes_alone() {
        let send = |pid, signal| signal_code(ProcessSignal { pid, signal });
        assert_eq!(send(i32::MAX, 9), ErrorCode::ProcessNotFound);
        for group in [0, -1, -42] {
            assert_eq!(send(group, 9), ErrorCode::ProcessNotFound);
        }
        assert_eq!(send(i32::MAX, 65), ErrorCode::BadRequest);
        assert_eq!(send(i32::try_from(std::process::id()).unwrap(), 9), ErrorCode::PermissionDenied);
    }

    fn signal_code(wanted: ProcessSignal) -> ErrorCode {
        signal(wanted).unwrap_err().code
    }
}
