//! Listeners: connections in, a graceful end.
//!
//! At the end no new connection is taken, streams without an end are ended, requests under way may finish, and after
//! a few seconds whatever is left is dropped. Sandboxes and their processes do not notice.

mod crowd;
mod heads;

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::{CONNECTION, HOST, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use roost_proxy::Peer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::Service;

use self::crowd::{Crowd, Place, Placed, Places};
use self::heads::{Framing, Heads, Watched};
use crate::api::Lifetime;
use crate::errors::ApiError;
use crate::tls::Tls;
use crate::{Api, unread};

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For the next request of a connection.
    keep_alive: Duration,
    /// For the head of a new connection's first request.
    first_head: Duration,
    /// For requests under way, at the end.
    grace: Duration,
}

const PATIENCE: Patience = Patience {
    keep_alive: Duration::from_secs(330),
    first_head: Duration::from_secs(30),
    grace: Duration::from_secs(5),
};

/// Places for connections over TCP that have not shown a token.
const STRANGERS: usize = 1024;

/// Most bytes of a request's head, and of what is read or written ahead on a connection.
const BUFFER: usize = 128 * 1024;

/// The pause after a failed accept, usually for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the owner of a unix socket until `shutdown`, with the routes of an API for [`Access::Owner`](crate::Access).
pub async fn serve_unix(
    listener: UnixListener,
    api: Api,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    // The owner may hurt nobody but himself.
    let crowd = Crowd::new(Places { strangers: usize::MAX, all: usize::MAX });
    serve(listener, router, api.lifetime().clone(), crowd, PATIENCE, shutdown).await
}

/// Serves whoever comes over TCP until `shutdown`, with the routes of an API for [`Access::Token`](crate::Access); with a
/// certificate, by TLS and not otherwise. At most `connections` are open at once.
pub async fn serve_tcp(
    listener: TcpListener,
    tls: Option<Tls>,
    connections: usize,
    api: Api,
    router: Router,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let lifetime = api.lifetime().clone();
    let crowd = Crowd::new(Places { strangers: STRANGERS.min(connections), all: connections });
    match tls {
        Some(tls) => serve(TlsListener { listener, tls }, router, lifetime, crowd, PATIENCE, shutdown).await,
        None => serve(listener, router, lifetime, crowd, PATIENCE, shutdown).await,
    }
}

/// Where connections come from.
trait Listen {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection, and where it came from if it came over a network. What is left to agree on before it carries
    /// requests is agreed on in its own time, and holds up nobody else.
    fn next(&self) -> impl Future<Output = io::Result<(impl Arrival<Self::Stream>, Peer)>> + Send;
}

/// A connection that is about to be one.
trait Arrival<S>: Future<Output = io::Result<S>> + Send + 'static {}
impl<S, F: Future<Output = io::Result<S>> + Send + 'static> Arrival<S> for F {}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(impl Arrival<UnixStream>, Peer)> {
        Ok((ready(Ok(self.accept().await?.0)), Peer::owner()))
    }
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(impl Arrival<TcpStream>, Peer)> {
        let (stream, address) = self.accept().await?;
        // Answers are written whole; waiting for more only delays them.
        stream.set_nodelay(true)?;
        Ok((ready(Ok(stream)), Peer::over_tcp(address.ip())))
    }
}

/// A port that speaks TLS alone.
struct TlsListener {
    listener: TcpListener,
    tls: Tls,
}

impl Listen for TlsListener {
    type Stream = TlsStream<TcpStream>;

    async fn next(&self) -> io::Result<(impl Arrival<Self::Stream>, Peer)> {
        let (stream, address) = self.listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok((self.tls.clone().accept(stream), Peer::over_tls(address.ip())))
    }
}

async fn serve(
    listener: impl Listen,
    router: Router,
    lifetime: Lifetime,
    crowd: Crowd,
    patience: Patience,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut shutdown = pin!(shutdown);
    let mut connections = JoinSet::new();
    let outcome = loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break Ok(()),
            accepted = listener.next() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((arrival, peer)) => match crowd.admit() {
                Some(place) => {
                    let closing = lifetime.closing.clone();
                    connections.spawn(connection(arrival, peer, place, router.clone(), closing, patience));
                }
                None => tracing::debug!("there is no room for another connection"),
            },
            // The listener itself is broken.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break Err(error),
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    // A closed socket turns clients away at once, while those inside may finish.
    drop(listener);
    lifetime.closing.cancel();
    lifetime.conversations.close();
    let finished = async {
        while connections.join_next().await.is_some() {}
        lifetime.conversations.wait().await;
    };
    if tokio::time::timeout(patience.grace, finished).await.is_err() {
        tracing::debug!("some requests did not finish in time");
    }
    outcome
}

async fn connection<S>(
    arrival: impl Arrival<S>,
    peer: Peer,
    place: Place,
    router: Router,
    closing: CancellationToken,
    patience: Patience,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let arrived = tokio::select! {
        arrived = tokio::time::timeout(patience.first_head, arrival) => arrived,
        () = closing.cancelled() => return,
        () = place.standing().left() => return,
    };
    let stream = match arrived {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a connection did not come about"),
        Err(_) => return,
    };
    let left = place.standing().left();
    let asked = Arc::new(AtomicU64::new(0));
    let framing = Arc::new(Framing::default());
    let service = {
        let (asked, standing, framing) = (asked.clone(), place.standing().clone(), framing.clone());
        service_fn(move |mut request: hyper::Request<Incoming>| {
            let number = asked.fetch_add(1, Ordering::Relaxed);
            let refused = two_readings(&framing, number, request.headers());
            peer.settle(request.headers_mut());
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(standing.clone());
            let (request, unread) = unread::watch(request);
            let (router, framing) = (router.clone(), framing.clone());
            async move {
                if let Some(refused) = refused {
                    return Ok::<_, Infallible>(refused);
                }
                let answer = router.clone().call(request).await.unwrap_or_else(|never| match never {});
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                    framing.stop_watching();
                }
                Ok(unread.settle(answer).await)
            }
        })
    };
    // This timeout also runs while a connection is idle, so it is the longer of the two.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.keep_alive)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Watched::new(Placed::new(stream, place), Heads::new(framing))), service)
        .with_upgrades();
    let (mut connection, mut left) = (pin!(connection), pin!(left));
    let mut first = pin!(tokio::time::sleep(patience.first_head));
    let mut waiting = true;
    let mut open = true;
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = first.as_mut(), if waiting => {
                waiting = false;
                if asked.load(Ordering::Relaxed) == 0 {
                    return;
                }
            }
            () = left.as_mut() => return,
            () = closing.cancelled(), if open => {
                open = false;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The refusal of a request that another reader on its way, a proxy in front of the daemon, may have understood differently:
/// as one for another host, or with an end of its body elsewhere. The connection ends with it.
fn two_readings(framing: &Framing, number: u64, headers: &HeaderMap) -> Option<Response> {
    let why = if framing.is_ambiguous(number) {
        "the request says twice where its body ends: by `Content-Length` and by `Transfer-Encoding`"
    } else if headers.get_all(HOST).iter().nth(1).is_some() {
        "the request has more than one `Host`"
    } else {
        return None;
    };
    let mut refused = ApiError::bad_request(why).into_response();
    refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Some(refused)
}

#[cfg(test)]
mod tests;
