//! Connections from a sandbox's point of view: to what it can reach, and from listeners inside to somebody outside.

use roost_model::ErrorCode;
use roost_wire::client::Arrivals;
use roost_wire::{Arrival, Connect, Endpoint, Request, TakeArrival};

use crate::HostError;
use crate::guards::Busy;
use crate::guest::{Guest, GuestSocket};
use crate::handle::Handle;
use crate::ports::{Line, PortStream};

/// A listener inside a sandbox, for as long as this lives.
#[derive(Debug)]
pub struct Listener {
    arrivals: Arrivals<GuestSocket>,
    guest: Guest,
    line: Line,
    /// Somebody outside waits for whoever connects.
    _busy: Busy,
}

/// Somebody inside who has connected to a listener and waits to be taken.
#[derive(Debug)]
pub struct Arrived {
    /// Its address, where it has one.
    pub from: String,
    /// Its port.
    pub port: u16,
    taken: TakeArrival,
    guest: Guest,
    line: Line,
}

impl Handle {
    /// Connects to an address or a socket as processes inside do; wakes it if need be.
    pub async fn reach(&self, to: Endpoint) -> Result<(PortStream, Line), HostError> {
        let line = self.line_for(&format!("connection to {}", shown(&to))).await?;
        let guest = Guest::of(self.shared.clone(), &self.record())?;
        let stream = connected(&guest, &Request::Connect(Connect { to })).await?;
        Ok((stream, line))
    }

    /// Listens inside; wakes it if need be, and keeps it awake unless its policy ignores connections.
    pub async fn listen(&self, at: Endpoint) -> Result<Listener, HostError> {
        let what = format!("listener on {}", shown(&at));
        let busy = self.busy(roost_model::Signal::Connections, &what);
        let line = self.line_for(&what).await?;
        let guest = Guest::of(self.shared.clone(), &self.record())?;
        let listened = guest.connect().await?.listen(at).await;
        let arrivals = listened.map_err(|error| too_old(guest.failed(error)))?;
        Ok(Listener { arrivals, guest, line, _busy: busy })
    }
}

impl Listener {
    /// The port that is listened on; 0 for a socket in the file system.
    pub fn port(&self) -> u16 {
        self.arrivals.listening().port
    }

    /// The next one who connects; an error once the sandbox sleeps on disk or has ended. Safe to cancel.
    pub async fn next(&mut self) -> Result<Arrived, HostError> {
        let mut line = self.line.clone();
        let arrival = tokio::select! {
            arrival = self.arrivals.next() => arrival.map_err(|error| self.guest.failed(error))?,
            () = line.lost(|| false) => return Err(self.guest.silent()),
        };
        let Arrival { number, from, port } = arrival;
        let taken = TakeArrival { listener: self.arrivals.listening().listener, number };
        Ok(Arrived { from, port, taken, guest: self.guest.clone(), line: self.line.clone() })
    }
}

impl Arrived {
    /// The connection.
    pub async fn take(self) -> Result<(PortStream, Line), HostError> {
        let stream = connected(&self.guest, &Request::TakeArrival(self.taken)).await?;
        Ok((stream, self.line))
    }
}

async fn connected(guest: &Guest, request: &Request) -> Result<PortStream, HostError> {
    let made = guest.connect().await?.tunnel_by(request).await;
    let (socket, ahead) = made.map_err(|error| too_old(guest.failed(error)))?;
    Ok(PortStream::new(socket.into_stream(), ahead))
}

/// A guest that has run since before there were such requests does not understand them.
fn too_old(error: HostError) -> HostError {
    match error {
        HostError::Guest { code: ErrorCode::BadRequest, message } if message.contains("unknown variant") => {
            let message = "the sandbox runs since an older version of Roost; suspend it to files once".to_owned();
            HostError::Guest { code: ErrorCode::BadRequest, message }
        }
        other => other,
    }
}

fn shown(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Tcp { address, port } => std::net::SocketAddr::new(*address, *port).to_string(),
        Endpoint::Unix { path } => path.clone(),
    }
}
