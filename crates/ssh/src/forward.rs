//! Connections through a sandbox: `ssh -L` into it, `ssh -R` out of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use roost_host::{Arrived, Endpoint, Handle, HostError, Line as Way, Listener, PortStream, tunnel};
use roost_model::{Signal, StartExec};
use russh::server::{ChannelOpenHandle, Handle as Line, Msg};
use russh::{Channel, ChannelOpenFailure};
use tokio_util::sync::CancellationToken;

use crate::place::Visit;
use crate::words;

/// The code of a refusal that says a connection was not made.
const CONNECT_FAILED: u32 = 2;

/// A listener as the client named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Bound {
    Tcp { address: String, port: u16 },
    Unix { path: String },
}

impl Bound {
    /// The same, with the port that was chosen for it.
    pub(crate) fn with_port(self, port: u16) -> Self {
        match self {
            Self::Tcp { address, .. } => Self::Tcp { address, port },
            unix => unix,
        }
    }
}

/// The address inside that is meant by one that a client asks to listen on.
pub(crate) fn listening_address(text: &str) -> Option<IpAddr> {
    match text {
        "" | "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        address => address.parse().ok(),
    }
}

/// Where a client wants to get to, as programs inside name it.
#[derive(Debug)]
pub(crate) enum Target {
    Tcp { host: String, port: u16 },
    Unix { path: String },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path } => f.write_str(path),
        }
    }
}

impl Target {
    async fn connect(&self, handle: &Handle) -> Result<(PortStream, Way), HostError> {
        let (host, port) = match self {
            Self::Unix { path } => return handle.reach(Endpoint::Unix { path: path.clone() }).await,
            Self::Tcp { host, port } => (host, *port),
        };
        match host.parse::<IpAddr>() {
            Ok(address) if address.is_loopback() => handle.open_port(port).await,
            Ok(address) => handle.reach(Endpoint::Tcp { address, port }).await,
            Err(_) if host == "localhost" || host == handle.view().name.as_str() => handle.open_port(port).await,
            Err(_) => {
                let address = look_up(handle, host).await?;
                handle.reach(Endpoint::Tcp { address, port }).await
            }
        }
    }
}

/// Carries a channel to where it wants to get.
pub(crate) async fn carry(visit: Arc<Visit>, channel: Channel<Msg>, target: Target, reply: ChannelOpenHandle) {
    let made = async {
        let handle = visit.sandbox().await?.handle;
        let (stream, way) = target.connect(&handle).await?;
        Ok::<_, HostError>((stream, way, handle.busy(Signal::Connections, format!("connection to {target}"))))
    };
    match made.await {
        Ok((stream, way, busy)) => {
            reply.accept().await;
            let ends = visit.gone.child_token();
            tunnel(channel.into_stream(), stream, way, ends, busy).await;
        }
        Err(error) => {
            let reason = words::of(&error);
            reply.reject(ChannelOpenFailure::Other { code: CONNECT_FAILED, reason }).await;
        }
    }
}

/// The address of a name, as programs inside find it.
async fn look_up(handle: &Handle, host: &str) -> Result<IpAddr, HostError> {
    let unknown = || HostError::BadRequest(format!("the sandbox finds no address of `{host}`"));
    if host.starts_with('-') {
        return Err(unknown());
    }
    let argv = ["getent", "ahosts", host].map(str::to_owned).to_vec();
    let found = handle.run_exec(StartExec { argv, ..StartExec::default() }, None).await?;
    let mut words = found.stdout.split_ascii_whitespace();
    words.next().and_then(|address| address.parse().ok()).ok_or_else(unknown)
}

/// Listens inside and opens a channel to the client for everybody who connects, until the token is cancelled.
pub(crate) async fn listen(
    visit: &Arc<Visit>,
    bound: &Bound,
    at: Endpoint,
    line: Line,
) -> Result<(u16, CancellationToken), HostError> {
    let handle = visit.sandbox().await?.handle;
    let listener = handle.listen(at.clone()).await?;
    let port = listener.port();
    let at = match at {
        Endpoint::Tcp { address, .. } => Endpoint::Tcp { address, port },
        unix => unix,
    };
    let ends = visit.gone.child_token();
    let (bound, stop) = (bound.clone().with_port(port), ends.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = welcome(&handle, listener, &bound, &at, &line, &ends) => {}
            () = ends.cancelled() => {}
        }
    });
    Ok((port, stop))
}

/// Welcomes everybody. What slept on disk listens again as soon as it is awake.
async fn welcome(
    handle: &Handle,
    mut listener: Listener,
    bound: &Bound,
    at: &Endpoint,
    line: &Line,
    ends: &CancellationToken,
) {
    loop {
        match listener.next().await {
            Ok(arrived) => {
                tokio::spawn(hand_over(handle.clone(), arrived, bound.clone(), line.clone(), ends.clone()));
                continue;
            }
            Err(error) => tracing::debug!(sandbox = %handle.id(), %error, "a listener inside is gone"),
        }
        drop(listener);
        if handle.awake_for_others().await.is_err() {
            return;
        }
        listener = match handle.listen(at.clone()).await {
            Ok(listener) => listener,
            Err(error) => return tracing::debug!(sandbox = %handle.id(), %error, "could not listen again"),
        };
    }
}

async fn hand_over(handle: Handle, arrived: Arrived, bound: Bound, line: Line, ends: CancellationToken) {
    let opened = match &bound {
        Bound::Tcp { address, port } => {
            let (from, from_port) = (arrived.from.clone(), u32::from(arrived.port));
            line.channel_open_forwarded_tcpip(address.clone(), u32::from(*port), from, from_port).await
        }
        Bound::Unix { path } => line.channel_open_forwarded_streamlocal(path.clone()).await,
    };
    // Whoever waits inside is hung up on when `arrived` is dropped with its listener; at once it is by being taken.
    let taken = arrived.take().await;
    match (opened, taken) {
        (Ok(channel), Ok((stream, way))) => {
            let busy = handle.busy(Signal::Connections, "forwarded connection");
            tunnel(channel.into_stream(), stream, way, ends, busy).await;
        }
        (Err(error), _) => tracing::debug!(%error, "a client does not take a forwarded connection"),
        (_, Err(error)) => tracing::debug!(%error, "a forwarded connection is gone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_to_listen_on_are_those_of_openssh() {
        assert_eq!(listening_address("localhost"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(listening_address(""), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(listening_address("*"), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(listening_address("::1"), Some("::1".parse().unwrap()));
        assert_eq!(listening_address("example.org"), None);
    }
}
