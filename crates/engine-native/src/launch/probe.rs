//! Tries CRIU on something small: a process in namespaces of its own with a listening socket is saved and restored.
//!
//! CRIU's own check says little: there are versions that pass it and cannot save a single socket on a newer kernel.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use roost_sys::process::{Cloned, Namespaces, clone_process, execute};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions, set_child_subreaper, waitid};

use super::SLEEPER;
use super::criu::{Place, SCRATCH, own_program};
use super::memory::{COMMON, Ended, conclude, end, end_stragglers, follow};
use super::parent::Timings;
use super::protocol::{Criu, Failure, Step};
use super::root::isolate_mounts;
use super::rpc::Kind;

pub(super) fn probe(socket: BorrowedFd<'_>, criu: &Criu) -> Result<(), Failure> {
    let mut timings = Timings::start();
    isolate_mounts()?;
    // What CRIU restores is its child, and ours when it is gone.
    set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::of(Step::Isolate))?;
    let place = Place::prepare(criu, None).map_err(Failure::of(Step::Isolate))?;
    let pid = match clone_process(Namespaces::PID.and(Namespaces::NET), None).map_err(Failure::of(Step::Clone))? {
        Cloned::Child => return Err(Failure::of(Step::Execute)(sleep())),
        Cloned::Parent { pid, .. } => pid,
    };
    let outcome = cycle(&place, pid, &mut timings);
    end_stragglers();
    conclude(socket, &place, outcome?, timings)
}

fn cycle(place: &Place, pid: Pid, timings: &mut Timings) -> Result<Ended, Failure> {
    await_program(pid).map_err(Failure::of(Step::Execute))?;
    let options = COMMON.map(str::to_owned);
    let number = pid.as_raw_nonzero().get().unsigned_abs();
    let begin = |kind, pid| place.start().and_then(|criu| place.begin(criu, kind, pid, &options));
    let session = begin(Kind::Dump, Some(number)).map_err(Failure::of(Step::Criu))?;
    let outcome = follow(&session, None, |_, _| Ok(()));
    let saved = end(session, outcome).map_err(Failure::of(Step::Save))?;
    timings.done(Step::Save);
    if !saved.success {
        return Ok(saved);
    }
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED).map_err(Failure::of(Step::Save))?;
    let session = begin(Kind::Restore, None).map_err(Failure::of(Step::Criu))?;
    let outcome = follow(&session, None, |_, _| Ok(()));
    let restored = end(session, outcome).map_err(Failure::of(Step::Load))?;
    timings.done(Step::Load);
    Ok(restored)
}

/// Becomes a process that has nothing of ours but a listening socket.
///
/// CRIU makes a folder of a fixed name where such a process is, to see its part of /proc: a folder that nobody else has,
/// or two trials at once would meet.
fn sleep() -> io::Error {
    let attempt = || -> io::Result<std::convert::Infallible> {
        rustix::process::setsid()?;
        rustix::process::chdir(SCRATCH)?;
        let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let listener = OwnedFd::from(TcpListener::bind("0.0.0.0:0")?);
        let program = CString::new(own_program().into_os_string().into_vec())?;
        Err(execute(&program, &[CString::new(SLEEPER)?], &[], null, listener))
    };
    match attempt() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// Until it has executed it holds descriptors of ours.
fn await_program(pid: Pid) -> io::Result<()> {
    let name = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
    while !fs::read(&name)?.starts_with(SLEEPER.as_bytes()) {
        rustix::thread::sched_yield();
    }
    Ok(())
}
