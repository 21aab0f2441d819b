//! The mother of launchers: started once, it forks one for every sandbox, which is a fraction of what starting the program costs.
//!
//! ```text
//! daemon                     mother                        launcher
//! an end of a socket ----->  clone3, beside the mother --> the socket is its standard input: see `parent`
//!        <------- its pidfd
//! ```
//!
//! A launcher is the daemon's child, not the mother's: the daemon waits for it, and it goes on when the mother is gone. She
//! ends when the daemon's end of her own socket is closed.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use roost_engine_group::send_with;
use roost_sys::process::{Cloned, clone_sibling};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::parent::{run, shape};
use super::protocol::{Failure, Step};

/// Comes with each descriptor, in both directions.
pub const BIRTH: u8 = b'L';

/// Forks launchers until the daemon leaves; in a launcher it returns what came of its work.
pub fn bear(daemon: BorrowedFd<'_>) -> Result<(), Failure> {
    // All launchers have it from her.
    shape().map_err(Failure::of(Step::Shape))?;
    while let Some(socket) = next(daemon).map_err(Failure::of(Step::Talk))? {
        match clone_sibling().map_err(Failure::of(Step::Clone))? {
            Cloned::Child => {
                // In the place of the mother's own, which a launcher must not keep.
                rustix::stdio::dup2_stdin(&socket).map_err(Failure::of(Step::Talk))?;
                drop(socket);
                return run(rustix::stdio::stdin());
            }
            Cloned::Parent { pidfd, .. } => {
                drop(socket);
                send_with(daemon, &[BIRTH], &[pidfd.as_fd()]).map_err(Failure::of(Step::Talk))?;
            }
        }
    }
    Ok(())
}

/// The socket of the next launcher; `None` when the daemon has left.
fn next(daemon: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(daemon, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    socket.map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}
