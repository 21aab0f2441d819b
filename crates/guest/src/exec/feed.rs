//! Writing to an exec's standard input by a call of its own.

use std::sync::Arc;

use roost_wire::{ErrorCode, Failure, Reply};
use rustix::event::{PollFd, PollFlags, poll};

use super::Exec;
use super::attach::Attachment;
use super::input::Offered;
use crate::conn::{Conn, ConnError, Upload};
use crate::failure::failed;

/// Why a piece of input was not written.
enum Unwritten {
    Refused(Failure),
    Gone,
}

/// Takes an upload as standard input and answers when the process's pipe has all of it.
pub(crate) fn feed(conn: &mut Conn, exec: &Arc<Exec>, close: bool) -> Result<(), ConnError> {
    let bell = match Attachment::bell(exec) {
        Ok(bell) => bell,
        Err(failure) => return conn.refuse_upload(failure),
    };
    let mut upload = Upload::new(conn);
    let mut result = Ok(());
    while let Some(piece) = upload.piece() {
        let piece = piece.to_vec();
        match write_piece(&upload, &bell, &piece) {
            Ok(()) => {}
            Err(Unwritten::Gone) => return Err(ConnError::Gone),
            Err(Unwritten::Refused(failure)) => {
                result = Err(failure);
                break;
            }
        }
    }
    if result.is_ok() && close && !upload.is_cut_short() {
        exec.close_input();
    }
    upload.finish(result.map(|()| Reply::Exec(exec.info())))
}

fn write_piece(upload: &Upload<'_>, bell: &Attachment, mut piece: &[u8]) -> Result<(), Unwritten> {
    while !piece.is_empty() {
        bell.wake().clear();
        let target = match bell.exec().offer_input(piece) {
            Offered::Taken(count) => {
                piece = piece.get(count..).unwrap_or_default();
                continue;
            }
            Offered::AfterOthers => None,
            Offered::WhenWritable(target) => Some(target),
            Offered::Closed => return Err(closed()),
            Offered::Failed(error) => return Err(Unwritten::Refused(failed("write standard input", &error.into()))),
        };
        let mut fds = vec![PollFd::new(upload, PollFlags::RDHUP), PollFd::new(bell.wake(), PollFlags::IN)];
        fds.extend(target.iter().map(|target| PollFd::new(target, PollFlags::OUT)));
        poll(&mut fds, None).ok();
        if fds.first().is_some_and(|socket| !socket.revents().is_empty()) {
            return Err(Unwritten::Gone);
        }
    }
    Ok(())
}

fn closed() -> Unwritten {
    Unwritten::Refused(Failure::new(ErrorCode::Conflict, "standard input is closed"))
}
