//! Connections to what processes inside can reach, and listeners inside for somebody outside.
//!
//! A listener lives as long as the connection that asked for it. Whoever connects to it is told to the host and waits until
//! the host takes it on a connection of its own:
//!
//! ```text
//! Listen      host ------> guest   bind, listen          arrival 1 -> host
//! TakeArrival host ------> guest   arrival 1 <== relay ==> host
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::chown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use roost_wire::frame::Kind;
use roost_wire::{Arrival, Endpoint, ErrorCode, Failure, Listening, Reply, TakeArrival};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::conn::{Conn, ConnError};
use crate::failure::{bad_request, failed};
use crate::guest::Guest;
use crate::users::Users;
use crate::wake::lock;

const CONNECT_TIME: Duration = Duration::from_secs(20);
/// Who has connected and was not taken yet, of one listener; more wait in the kernel's queue.
const MOST_WAITING: usize = 64;

/// Connects to an address or a socket.
pub(crate) fn connect(to: &Endpoint) -> Result<OwnedFd, Failure> {
    match to {
        Endpoint::Tcp { address, port } => {
            let to = SocketAddr::new(*address, *port);
            let stream = TcpStream::connect_timeout(&to, CONNECT_TIME).map_err(|error| {
                Failure::new(ErrorCode::PortClosed, format!("failed to connect to {to} from inside: {error}"))
            })?;
            stream.set_nodelay(true).ok();
            Ok(stream.into())
        }
        Endpoint::Unix { path } => {
            let stream = UnixStream::connect(path).map_err(|error| {
                Failure::new(ErrorCode::PortClosed, format!("failed to connect to `{path}` inside: {error}"))
            })?;
            Ok(stream.into())
        }
    }
}

/// Who has arrived at each listener and was not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    inner: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    arrived: BTreeMap<u64, BTreeMap<u64, OwnedFd>>,
}

impl Listeners {
    fn open(&self) -> u64 {
        let mut waiting = lock(&self.inner);
        waiting.next += 1;
        let listener = waiting.next;
        waiting.arrived.insert(listener, BTreeMap::new());
        listener
    }

    fn close(&self, listener: u64) {
        drop(lock(&self.inner).arrived.remove(&listener));
    }

    /// Notes an arrival under a number; nothing if too many wait.
    fn arrived(&self, listener: u64, stream: OwnedFd) -> Option<u64> {
        let mut waiting = lock(&self.inner);
        waiting.next += 1;
        let number = waiting.next;
        let line = waiting.arrived.get_mut(&listener).filter(|line| line.len() < MOST_WAITING)?;
        line.insert(number, stream);
        Some(number)
    }

    /// Hands out one that has arrived.
    pub(crate) fn take(&self, wanted: TakeArrival) -> Result<OwnedFd, Failure> {
        let mut waiting = lock(&self.inner);
        let stream = waiting.arrived.get_mut(&wanted.listener).and_then(|line| line.remove(&wanted.number));
        stream.ok_or_else(|| bad_request("nobody waits there"))
    }
}

/// What is listened on.
#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    fn bind(guest: &Guest, at: &Endpoint) -> Result<Self, Failure> {
        match at {
            Endpoint::Tcp { address, port } => {
                let at = SocketAddr::new(*address, *port);
                let listener = TcpListener::bind(at).map_err(|error| failed(format_args!("listen on {at}"), &error))?;
                listener.set_nonblocking(true).map_err(|error| failed("listen", &error))?;
                Ok(Self::Tcp(listener))
            }
            Endpoint::Unix { path } => {
                let bind = || -> io::Result<UnixListener> {
                    let listener = UnixListener::bind(path)?;
                    listener.set_nonblocking(true)?;
                    // For the user whose session asked for it, not for root alone.
                    if let Ok(user) = Users::load().find(&guest.default_place().user) {
                        chown(path, Some(user.uid), Some(user.gid))?;
                    }
                    Ok(listener)
                };
                let listener = bind().map_err(|error| failed(format_args!("listen on `{path}`"), &error))?;
                Ok(Self::Unix(listener, PathBuf::from(path)))
            }
        }
    }

    fn port(&self) -> u16 {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or(0, |address| address.port()),
            Self::Unix(..) => 0,
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, String, u16)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                stream.set_nodelay(true).ok();
                Ok((stream.into(), from.ip().to_string(), from.port()))
            }
            Self::Unix(listener, _) => listener.accept().map(|(stream, _)| (stream.into(), String::new(), 0)),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Somebody may have removed it already.
            fs::remove_file(path).ok();
        }
    }
}

/// Forgets who waits when the listener goes.
struct Open<'a> {
    listeners: &'a Listeners,
    listener: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.listeners.close(self.listener);
    }
}

/// Listens, and tells of everybody who connects, until the host hangs up or says something else.
pub(crate) fn listen(guest: &Guest, conn: &mut Conn, at: &Endpoint) -> Result<(), ConnError> {
    let socket = match Listener::bind(guest, at) {
        Ok(socket) => socket,
        Err(failure) => return conn.answer(Err(failure)),
    };
    let open = Open { listeners: &guest.listeners, listener: guest.listeners.open() };
    conn.answer(Ok(Reply::Listening(Listening { listener: open.listener, port: socket.port() })))?;
    loop {
        let mut ready = [PollFd::new(&*conn, PollFlags::IN | PollFlags::RDHUP), PollFd::new(&socket, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [host, arrival] = [0, 1].map(|place: usize| ready.get(place).is_some_and(|fd| !fd.revents().is_empty()));
        if host {
            return Err(ConnError::Gone);
        }
        if !arrival {
            continue;
        }
        // One that has left again, or no descriptor for it: the next poll tells.
        let Ok((stream, from, port)) = socket.accept() else { continue };
        if let Some(number) = guest.listeners.arrived(open.listener, stream) {
            conn.send(Kind::Arrival, &Arrival { number, from, port })?;
        }
    }
}
