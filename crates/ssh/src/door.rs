//! Accepts connections and sees them to their end.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roost_host::Host;
use roost_model::ExecId;
use russh::keys::PrivateKey;
use russh::server::{Config, run_stream};
use russh::{Disconnect, MethodKind, MethodSet, SshId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Connection;

/// How long somebody may take to be let in.
const GRACE: Duration = Duration::from_secs(60);
/// How many may be at that at once; further ones wait to be accepted.
const STRANGERS: usize = 100;
/// A client that is silent for this long is asked whether it is there, and this many times.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TRIES: usize = 3;
/// Pieces of input that wait for one channel before the whole connection does.
const INPUT_PIECES: usize = 512;
const EVENTS: usize = 64;
/// Waited when the kernel has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long clients have to hear that the daemon stops.
const GOODBYE: Duration = Duration::from_secs(2);

/// What all connections share.
#[derive(Debug)]
pub struct Door {
    pub(crate) host: Host,
    /// Ends what has no end of its own.
    pub(crate) closing: CancellationToken,
    attached: Mutex<HashSet<ExecId>>,
}

impl Door {
    /// A door to a host.
    pub fn new(host: Host) -> Arc<Self> {
        Arc::new(Self { host, closing: CancellationToken::new(), attached: Mutex::default() })
    }

    fn attached(&self) -> MutexGuard<'_, HashSet<ExecId>> {
        self.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody is at a terminal.
    pub(crate) fn attach(self: &Arc<Self>, exec: &ExecId) -> Attached {
        self.attached().insert(exec.clone());
        Attached { door: self.clone(), exec: exec.clone() }
    }

    /// Whether somebody is at a terminal now.
    pub(crate) fn is_attached(&self, exec: &ExecId) -> bool {
        self.attached().contains(exec)
    }
}

/// Somebody is at a terminal for as long as this lives.
#[derive(Debug)]
pub(crate) struct Attached {
    door: Arc<Door>,
    exec: ExecId,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.door.attached().remove(&self.exec);
    }
}

fn config(key: PrivateKey) -> Config {
    Config {
        server_id: SshId::Standard(concat!("SSH-2.0-Roost_", env!("CARGO_PKG_VERSION")).into()),
        // The second lets nobody in; it is where a client shows a person why.
        methods: MethodSet::from([MethodKind::PublicKey, MethodKind::KeyboardInteractive].as_slice()),
        // Public keys are no secrets that could be found out by the time an answer takes.
        auth_rejection_time: Duration::ZERO,
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![key],
        max_auth_attempts: 30,
        inactivity_timeout: None,
        keepalive_interval: Some(KEEP_ALIVE),
        keepalive_max: KEEP_ALIVE_TRIES,
        channel_buffer_size: INPUT_PIECES,
        event_buffer_size: EVENTS,
        nodelay: true,
        ..Config::default()
    }
}

/// Serves a listener until `stopped`.
pub async fn serve(
    listener: TcpListener,
    door: Arc<Door>,
    key: PrivateKey,
    stopped: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let config = Arc::new(config(key));
    let (strangers, connections) = (Arc::new(Semaphore::new(STRANGERS)), TaskTracker::new());
    let accepting = async {
        loop {
            // Never closed.
            let Ok(place) = strangers.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let admitted = CancellationToken::new();
                    let connection = Connection::new(door.clone(), addresses(&stream, peer), admitted.clone());
                    connections.spawn(carry(config.clone(), stream, connection, admitted, place));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept an SSH connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stopped => {}
    }
    door.closing.cancel();
    connections.close();
    drop(tokio::time::timeout(GOODBYE, connections.wait()).await);
    Ok(())
}

/// Both ends of a connection, as programs inside are told them.
fn addresses(stream: &TcpStream, peer: SocketAddr) -> [SocketAddr; 2] {
    [peer, stream.local_addr().unwrap_or(peer)]
}

async fn carry(
    config: Arc<Config>,
    stream: TcpStream,
    connection: Connection,
    admitted: CancellationToken,
    place: tokio::sync::OwnedSemaphorePermit,
) {
    // Small frames go out at once; a kernel that refuses this only makes us slower.
    drop(stream.set_nodelay(true));
    let (door, gone) = (connection.door().clone(), connection.gone());
    let _gone = gone.drop_guard();
    let begun = tokio::time::timeout(GRACE, run_stream(config, stream, connection)).await;
    let mut session = match begun {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return tracing::debug!(%error, "an SSH connection did not come about"),
        Err(_) => return,
    };
    let line = session.handle();
    let hang_up = async |why: &str| {
        drop(line.disconnect(Disconnect::ByApplication, why.to_owned(), String::new()).await);
    };
    tokio::select! {
        ended = &mut session => return told(ended),
        () = admitted.cancelled() => drop(place),
        () = tokio::time::sleep(GRACE) => {
            hang_up("nobody was let in for a minute").await;
            return told(session.await);
        }
    }
    tokio::select! {
        ended = &mut session => told(ended),
        () = door.closing.cancelled() => {
            hang_up("the daemon stops; what runs in sandboxes goes on").await;
            told(session.await);
        }
    }
}

fn told(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "an SSH connection broke off");
    }
}
