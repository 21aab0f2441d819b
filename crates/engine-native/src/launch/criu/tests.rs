//! The conversation with a CRIU that dies.

use super::*;
use crate::launch::memory::{end, follow};

/// A program that stands in for CRIU, and its end of the conversation.
fn stand_in() -> (Session, OwnedFd) {
    // Before there is a socket: the new process would have both ends for a moment.
    let process = Command::new("sleep").arg("60").spawn().unwrap();
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    (Session::of(process, ours, None).unwrap(), theirs)
}

fn kill(session: &Session) {
    rustix::process::pidfd_send_signal(&session.exit, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_criu_that_is_killed_while_it_is_spoken_to_was_ended_by_a_signal() {
    let (session, theirs) = stand_in();
    let notify = [8, 6, 16, 1, 42, 8, 10, 4, b'a', b'b', b'c', b'd', 16, 9];
    send(&theirs, &notify, SendFlags::NOSIGNAL).unwrap();
    let mut theirs = Some(theirs);
    let outcome = follow(&session, None, |_, _| {
        kill(&session);
        theirs.take();
        Ok(())
    });
    assert_eq!(outcome.as_ref().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    let ended = end(session, outcome).unwrap();
    assert_eq!((ended.success, ended.signal), (false, Some(9)));
}

#[test]
fn a_criu_that_lives_on_is_ended_for_a_fault_of_ours() {
    let (session, _theirs) = stand_in();
    let fault = end(session, Err(io::ErrorKind::InvalidData.into())).unwrap_err();
    assert_eq!(fault.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn nobody_waits_for_a_criu_whose_sandbox_has_ended() {
    let (mut session, _theirs) = stand_in();
    let mut sandbox = Command::new("true").spawn().unwrap();
    sandbox.wait().unwrap();
    session.saves = Some(sandbox.id());
    let outcome = follow(&session, None, |_, _| Ok(()));
    assert_eq!(outcome.as_ref().unwrap_err().to_string(), "what it saves has ended");
    end(session, outcome).unwrap_err();
}
