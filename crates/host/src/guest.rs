//! Reaching a sandbox's guest: dialling, and connections kept ready.

mod replies;
mod socket;

use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roost_model::{ErrorCode, SandboxId, chain};
use roost_net::Slot;
use roost_store::SandboxRecord;
use roost_wire::client::{Bounded, CallError, Connection, FromFrame, Incoming, Limits};
use roost_wire::{GUEST_PORT, Key, Reply};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::HostError;
use crate::shared::Shared;

use replies::Replies;
pub use socket::GuestSocket;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a guest's network may be silent, although the kernel inside answers by itself.
const SILENCE: Duration = Duration::from_secs(30);
/// Ready connections kept for each sandbox: enough for a busy client, few enough that a thousand sandboxes cost nothing.
const KEPT: usize = 2;

/// A connection to a guest.
pub type GuestConnection = Connection<GuestSocket>;

/// An attachment on such a connection.
pub type GuestStream = roost_wire::client::ExecStream<GuestSocket>;

/// Connections that have finished a call and can carry another.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    ready: Mutex<HashMap<SandboxId, Vec<GuestConnection>>>,
    /// The connections on which calls from inside are heard.
    lines: Mutex<HashMap<SandboxId, CancellationToken>>,
    /// What tells every connection of a sandbox that its processes have ended.
    ends: Mutex<HashMap<SandboxId, CancellationToken>>,
    /// The memory that their replies take.
    replies: Replies,
}

impl Guests {
    fn take(&self, id: &SandboxId) -> Option<GuestConnection> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).get_mut(id)?.pop()
    }

    fn put(&self, id: &SandboxId, connection: GuestConnection) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = ready.entry(id.clone()).or_default();
        if kept.len() < KEPT {
            kept.push(connection);
        }
    }

    /// Drops what is kept for a sandbox whose guest ends.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(line) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
            line.cancel();
        }
    }

    /// Drops the connections to a guest that broke the protocol.
    fn distrust(&self, id: &SandboxId) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Resolves when a large reply was collected, whose memory can be given back.
    pub(crate) async fn large_reply(&self) {
        self.replies.all().large_reply().await;
    }

    /// Breaks every connection to a sandbox whose processes have ended.
    pub(crate) fn ended(&self, id: &SandboxId) {
        self.forget(id);
        self.replies.forget(id);
        if let Some(ended) = self.ends.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
            ended.cancel();
        }
    }

    /// What is told when the processes that it has now, or will have next, have ended.
    pub(crate) fn life_of(&self, id: &SandboxId) -> CancellationToken {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).entry(id.clone()).or_default().clone()
    }

    /// Notes a connection on which calls are heard; told when it leads nowhere any more.
    pub(crate) fn open_line(&self, id: &SandboxId) -> CancellationToken {
        let line = CancellationToken::new();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), line.clone());
        line
    }
}

/// The way to one awake sandbox's guest.
#[derive(Debug, Clone)]
pub struct Guest {
    shared: Arc<Shared>,
    id: SandboxId,
    name: String,
    address: SocketAddrV4,
    key: Key,
}

impl Guest {
    pub(crate) fn of(shared: Arc<Shared>, record: &SandboxRecord) -> Result<Self, HostError> {
        let lost = |detail: &str| HostError::GuestLost { sandbox: record.name.to_string(), detail: detail.to_owned() };
        let slot = record.slot.ok_or_else(|| lost("it has no network slot"))?;
        let key = Key::from_hex(&record.key).map_err(|error| lost(&error.to_string()))?;
        let address = SocketAddrV4::new(Slot(slot).address(), GUEST_PORT);
        Ok(Self { shared, id: record.id.clone(), name: record.name.to_string(), address, key })
    }

    /// A new connection.
    pub async fn connect(&self) -> Result<GuestConnection, HostError> {
        Connection::new(self.dial().await?, &self.key).map_err(|error| self.lost(&error))
    }

    /// A connected stream on which nothing has been said yet.
    pub(crate) async fn dial(&self) -> Result<GuestSocket, HostError> {
        // Before it is there: an end that comes meanwhile is its end, too.
        let ended = self.shared.guests.life_of(&self.id);
        let dialled = tokio::select! {
            dialled = self.shared.network.connect(self.address, CONNECT_TIMEOUT) => dialled,
            () = ended.cancelled() => Err(std::io::ErrorKind::ConnectionReset.into()),
        };
        let stream = dialled.map_err(|error| self.lost(&error))?;
        stream.set_nodelay(true).map_err(|error| self.lost(&error))?;
        notice_silence(&stream).map_err(|error| self.lost(&error))?;
        Ok(GuestSocket::new(stream, ended))
    }

    /// A connection from those kept ready, or a new one.
    ///
    /// A kept one may have gone stale; only calls that can be repeated may use it.
    pub(crate) fn ready(&self) -> Option<GuestConnection> {
        self.shared.guests.take(&self.id)
    }

    /// Keeps a connection for the next call, if its last one ended cleanly.
    pub(crate) fn give_back(&self, connection: GuestConnection) {
        if connection.is_reusable() {
            self.shared.guests.put(&self.id, connection);
        }
    }

    /// The same for the connection of a stream, if that was read to its end.
    pub(crate) fn release<T: FromFrame>(&self, stream: Incoming<GuestSocket, T>) {
        if let Some(connection) = stream.into_connection() {
            self.give_back(connection);
        }
    }

    /// It did not answer in time.
    pub(crate) fn silent(&self) -> HostError {
        HostError::GuestLost { sandbox: self.name.clone(), detail: "it does not answer".to_owned() }
    }

    pub(crate) fn lost(&self, error: &(dyn std::error::Error + 'static)) -> HostError {
        HostError::GuestLost { sandbox: self.name.clone(), detail: shortened(chain(error)) }
    }

    /// Notes how many bytes a call collected.
    pub(crate) fn note_reply(&self, bytes: usize) {
        self.shared.guests.replies.all().note(bytes);
    }

    /// A count of what one call collects of this guest.
    pub(crate) fn bounded(&self, limits: Limits) -> Bounded {
        self.shared.guests.replies.bounded(&self.id, limits)
    }

    /// Turns a failed call into the host's words.
    pub fn failed(&self, error: CallError) -> HostError {
        match error {
            CallError::Refused(failure) => {
                HostError::Guest { code: code_of(failure.code), message: shortened(failure.message) }
            }
            CallError::NoRoom(_) => HostError::RateLimited(error.to_string()),
            CallError::Unsendable(_) => HostError::BadRequest(chain(&error)),
            error if error.is_breach() => {
                self.shared.guests.distrust(&self.id);
                let too_large = matches!(error, CallError::TooLarge(_));
                let message = format!("sandbox `{}` answered wrongly: {}", self.name, chain(&error));
                HostError::GuestReply { too_large, message: shortened(message) }
            }
            error => self.lost(&error),
        }
    }

    /// A reply that does not fit its request.
    pub(crate) fn unexpected(&self, reply: Reply) -> HostError {
        self.failed(CallError::UnexpectedReply(Box::new(reply)))
    }
}

/// Longest text of a guest that is passed on in an error.
const LONGEST_TEXT: usize = 4096;

/// The beginning of a text that a guest wrote.
fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        text.truncate(text.floor_char_boundary(LONGEST_TEXT));
        text.push('…');
    }
    text
}

/// A sandbox may cut its own network under a call; the kernel answers for a guest that is only busy or frozen.
fn notice_silence(stream: &TcpStream) -> std::io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 3)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 6)?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// The public code of a guest's refusal.
fn code_of(code: roost_wire::ErrorCode) -> ErrorCode {
    use roost_wire::ErrorCode as W;
    match code {
        W::PathNotFound => ErrorCode::PathNotFound,
        W::NotADirectory => ErrorCode::NotADirectory,
        W::IsADirectory => ErrorCode::IsADirectory,
        W::PermissionDenied => ErrorCode::PermissionDenied,
        W::DiskFull => ErrorCode::DiskFull,
        W::ExecNotFound => ErrorCode::ExecNotFound,
        W::ProcessNotFound => ErrorCode::ProcessNotFound,
        W::ServiceNotFound => ErrorCode::ServiceNotFound,
        W::WatchNotFound => ErrorCode::NotFound,
        W::BadRequest => ErrorCode::BadRequest,
        W::Conflict => ErrorCode::Conflict,
        W::LimitExceeded => ErrorCode::LimitExceeded,
        W::CommandNotFound => ErrorCode::CommandNotFound,
        W::NotExecutable => ErrorCode::NotExecutable,
        W::CwdNotFound => ErrorCode::CwdNotFound,
        W::UserNotFound => ErrorCode::UserNotFound,
        W::PortClosed => ErrorCode::PortClosed,
        // A guest that does not know our key is our own fault, never the client's.
        _ => ErrorCode::Internal,
    }
}
