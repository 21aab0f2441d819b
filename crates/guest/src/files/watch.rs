//! Watching files and folders: for as long as somebody listens, or by itself.

mod kept;
mod watcher;

use roost_wire::frame::Kind;
use roost_wire::{Reply, Watch};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub(crate) use self::kept::KeptWatches;
use self::watcher::Watcher;
use super::Caller;
use crate::conn::{Conn, ConnError};
use crate::guest::Guest;

/// Tells of changes until the peer hangs up.
pub(crate) fn watch(guest: &Guest, conn: &mut Conn, request: &Watch) -> Result<(), ConnError> {
    let opened = Caller::new(guest, request.user.as_deref()).and_then(|caller| Watcher::open(&caller, request));
    let mut watcher = match opened {
        Ok((watcher, _)) => watcher,
        Err(failure) => return conn.answer(Err(failure)),
    };
    conn.answer(Ok(Reply::Done))?;
    loop {
        let mut fds = [PollFd::new(&watcher, PollFlags::IN), PollFd::new(conn, PollFlags::IN | PollFlags::RDHUP)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(ConnError::Gone),
        }
        let [_, peer] = &fds;
        if !peer.revents().is_empty() {
            // A watch ends only by hanging up.
            return Err(ConnError::Gone);
        }
        for event in watcher.events().map_err(|_| ConnError::Gone)? {
            conn.queue(Kind::WatchEvent, &event)?;
        }
        conn.flush()?;
    }
}
