//! The first process of a sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use roost_engine_group::Frame;
use rustix::io::FdFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::protocol::{Failure, Job, Report, Step};
use super::{CONTAINER, RESTORED, place, report};

const PID_FILE: &str = "/pid";
const PID: &str = "--pid-file=/pid";
const BUNDLE: &str = "--bundle=/bundle";
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
///
/// Whoever put the sandbox's root in place of an empty one says so by `grafted`.
pub(super) fn run(socket: BorrowedFd<'_>, job: &Job, grafted: OwnedFd) -> Result<(), Failure> {
    // Not the session of whoever started the daemon.
    rustix::process::setsid().map_err(Failure::of(Step::Place))?;
    place::enter(job)?;
    let (created, restored) = match &job.sandbox {
        Some(sandbox) => (false, sandbox.image.is_some()),
        None => {
            let output = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 10);
            runsc(&["create", BUNDLE, PID], output.map_err(Failure::of(Step::Runsc))?.into())?;
            // A sentry uses some hundredths of a core whether anything is to be done or not.
            signal_sentry(Signal::STOP).map_err(Failure::of(Step::Runsc))?;
            report(socket, &Report::Waiting).map_err(Failure::of(Step::Talk))?;
            let mut whose = [0];
            roost_engine_group::read_exact(&grafted, &mut whose).map_err(Failure::of(Step::Graft))?;
            (true, whose == [RESTORED])
        }
    };
    drop(grafted);
    await_network(socket).map_err(Failure::of(Step::Network))?;
    if created {
        signal_sentry(Signal::CONT).map_err(Failure::of(Step::Runsc))?;
    }
    match (restored, created) {
        (true, _) => {
            let image = ["--image-path=/image", "--direct=false", "--detach"];
            runsc(&[&["restore", BUNDLE, PID], &image[..]].concat(), Stdio::null())?;
        }
        (false, true) => runsc(&["start"], Stdio::null())?,
        (false, false) => run_with_socket()?,
    }
    let sentry = sentry().map_err(Failure::of(Step::Runsc))?;
    report(socket, &Report::Up).map_err(Failure::of(Step::Talk))?;
    let status = reap_until_end_of(sentry);
    // Heard only by a daemon that still waits for the guest.
    let detail = format!("the sentry ended with {status}: {}", last_words());
    report(socket, &Report::Failed(Failure { step: Step::Runsc, detail, full: false })).ok();
    Ok(())
}

fn await_network(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [0];
    roost_engine_group::read_exact(socket, &mut byte)?;
    if byte == [Frame::PLUGGED] { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Starts a sandbox whose guest has the socket for it as its third descriptor.
fn run_with_socket() -> Result<(), Failure> {
    let failed = Failure::of(Step::Runsc);
    let startup = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 10).map_err(&failed)?;
    rustix::io::fcntl_setfd(&startup, FdFlags::empty()).map_err(&failed)?;
    let pass = format!("--pass-fd={}:{GUEST_STARTUP_FD}", startup.as_raw_fd());
    runsc(&["run", "--detach", &pass, BUNDLE, PID], Stdio::null())
}

/// Calls runsc once. What it has as input, output and errors when it creates the sandbox becomes the guest's, and has to be
/// the same when that is restored, or a socket that the guest let go of.
fn runsc(call: &[&str], output: Stdio) -> Result<(), Failure> {
    let mut command = Command::new("/runsc");
    command.env_clear().args(FLAGS).args(call).arg(CONTAINER);
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let status = command.status().map_err(Failure::of(Step::Runsc))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure { step: Step::Runsc, detail: format!("{status}: {}", last_words()), full: false })
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

fn signal_sentry(signal: Signal) -> io::Result<()> {
    Ok(kill_process(sentry()?, signal)?)
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
