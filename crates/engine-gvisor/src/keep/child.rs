//! The first process of a sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::{Command, Stdio};

use roost_engine_group::Frame;
use rustix::io::FdFlags;
use rustix::process::{Pid, WaitOptions, wait};

use super::protocol::{Failure, Job, Report, Step};
use super::{CONTAINER, place, report};

const PID_FILE: &str = "/pid";
const LOG: &str = "/log";
/// How much of runsc's log explains a failure.
const LAST_LINES: usize = 3;
/// The descriptor by which the guest gets its configuration and says that it listens.
const GUEST_STARTUP_FD: i32 = 3;

/// - `systrap` needs no virtualization, and `overlay2=none` leaves what is written on the sandbox's own disk.
/// - A connection to the outside would stand in the way of every checkpoint but for `net-disconnect-ok`.
/// - Control groups are the daemon's business.
const FLAGS: [&str; 8] = [
    "--root=/r",
    "--log=/log",
    "--platform=systrap",
    "--network=sandbox",
    "--net-disconnect-ok",
    "--net-raw",
    "--overlay2=none",
    "--ignore-cgroups",
];

/// Brings the sandbox up and stays until it has ended.
pub(super) fn run(socket: BorrowedFd<'_>, job: &Job) -> Result<(), Failure> {
    // Not the session of whoever started the daemon.
    rustix::process::setsid().map_err(Failure::of(Step::Place))?;
    place::enter(job)?;
    await_network(socket).map_err(Failure::of(Step::Network))?;
    start_runsc(job)?;
    let sentry = sentry().map_err(Failure::of(Step::Runsc))?;
    report(socket, &Report::Up).map_err(Failure::of(Step::Talk))?;
    let status = reap_until_end_of(sentry);
    // Heard only by a daemon that still waits for the guest.
    let detail = format!("the sentry ended with {status}: {}", last_words());
    report(socket, &Report::Failed(Failure { step: Step::Runsc, detail })).ok();
    Ok(())
}

fn await_network(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [0];
    roost_engine_group::read_exact(socket, &mut byte)?;
    if byte == [Frame::PLUGGED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn start_runsc(job: &Job) -> Result<(), Failure> {
    let failed = Failure::of(Step::Runsc);
    let mut command = Command::new("/runsc");
    command.env_clear().args(FLAGS);
    let startup;
    if job.image.is_some() {
        command.args(["restore", "--image-path=/image", "--direct=false"]);
    } else {
        startup = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 10).map_err(&failed)?;
        rustix::io::fcntl_setfd(&startup, FdFlags::empty()).map_err(&failed)?;
        command.arg("run").arg(format!("--pass-fd={}:{GUEST_STARTUP_FD}", startup.as_raw_fd()));
    }
    command.args(["--detach", "--bundle=/bundle", "--pid-file=/pid", CONTAINER]);
    // They become those of the guest, and have to be the same when it is restored.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(Failure::of(Step::Runsc))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure { step: Step::Runsc, detail: format!("{status}: {}", last_words()) })
}

/// The last messages of runsc's log, which is JSON.
fn last_words() -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        msg: String,
    }
    let log = fs::read(LOG).unwrap_or_default();
    let lines = serde_json::Deserializer::from_slice(&log).into_iter::<Line>();
    let said: Vec<String> = lines.map_while(Result::ok).map(|line| line.msg).collect();
    said.get(said.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("; ")
}

fn sentry() -> io::Result<Pid> {
    let number = fs::read_to_string(PID_FILE)?;
    number.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Orphans of runsc's come here. Without the sentry the others have nothing to do, and end with this process.
fn reap_until_end_of(sentry: Pid) -> String {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == sentry => return format!("{status:?}"),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return format!("nobody to wait for it: {error}"),
        }
    }
}
