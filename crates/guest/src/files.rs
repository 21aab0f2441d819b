//! Files, as the sandbox sees them.
//!
//! All of it happens as the sandbox's own root inside the sandbox's own root folder, so a link can lead nowhere else.
//! What is created belongs to the user of the call.

mod archive;
mod attributes;
mod change;
mod copy;
mod list;
mod read;
mod regular;
mod stat;
pub(crate) mod watch;
mod write;

use roost_wire::{Failure, Reply, Request};

use crate::conn::{Conn, ConnError};
use crate::failure::bad_request;
use crate::guest::{Guest, Place};
use crate::users::Users;

/// Whose files a call is about, and the names of everybody else.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) users: Users,
    pub(crate) place: Place,
}

impl Caller {
    fn new(guest: &Guest, user: Option<&str>) -> Result<Self, Failure> {
        let users = Users::load();
        let place = guest.place(&users, user)?;
        Ok(Self { users, place })
    }
}

/// Carries a request about files to its end.
pub(crate) fn respond(guest: &Guest, conn: &mut Conn, request: Request) -> Result<(), ConnError> {
    match request {
        Request::List(request) => list::list(guest, conn, &request),
        Request::Read(request) => read::read(guest, conn, &request),
        Request::Write(request) => write::write(guest, conn, &request),
        Request::ArchiveOut(request) => archive::pack(guest, conn, &request),
        Request::ArchiveIn(request) => archive::unpack(guest, conn, &request),
        Request::Watch(request) => watch::watch(guest, conn, &request),
        Request::WatchEvents(which) => guest.watches.tell(conn, &which.id),
        other => {
            let result = simple(guest, other);
            conn.answer(result)
        }
    }
}

/// Requests with one reply.
fn simple(guest: &Guest, request: Request) -> Result<Reply, Failure> {
    let caller = |user: &Option<String>| Caller::new(guest, user.as_deref());
    match request {
        Request::Stat(request) => {
            let caller = caller(&request.user)?;
            stat::stat(&caller.users, &caller.place.resolve(&request.path)?).map(Reply::Stat)
        }
        Request::ReadLink(request) => change::read_link(&caller(&request.user)?, &request).map(Reply::Link),
        Request::MakeDir(request) => change::make_dir(&caller(&request.user)?, &request).map(Reply::Stat),
        Request::Move(request) => change::move_path(&caller(&request.user)?, &request).map(Reply::Stat),
        Request::Remove(request) => change::remove(&caller(&request.user)?, &request).map(|()| Reply::Done),
        Request::Chmod(request) => change::chmod(&caller(&request.user)?, &request).map(Reply::Stat),
        Request::Chown(request) => change::chown(&caller(&request.user)?, &request).map(Reply::Stat),
        Request::Join(request) => write::join(&caller(&request.user)?, &request).map(Reply::Stat),
        Request::KeepWatch(request) => {
            let caller = caller(&request.watch.user)?;
            guest.watches.begin(&caller, request).map(Reply::Stat)
        }
        Request::EndWatch(which) => guest.watches.end(&which.id).map(|()| Reply::Done),
        Request::Symlink(request) => change::symlink(&caller(&request.user)?, &request).map(Reply::Stat),
        _ => Err(bad_request("this guest does not know the request")),
    }
}
