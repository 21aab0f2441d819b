//! The face of the crate.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use roost_host::{Handle, Host, HostError, tunnel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{self, Asked, Passage};
use crate::exchange::{Outgoing, exchange};
use crate::guard::{connected, in_use};
use crate::headers;
use crate::kept::Kept;
use crate::{Refusal, Standing, Target, Trust, origin};

/// The protocol of a connection that carries the bytes of a port and nothing else.
const TCP_PROTOCOL: &str = "roost-tcp";

/// Where a connection came from; an extension of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peer {
    /// The address at its other end; nothing if that is on this host's unix socket.
    pub address: Option<IpAddr>,
    /// Whether it speaks TLS with us.
    pub tls: bool,
}

impl Peer {
    /// Whoever opened the unix socket.
    pub const fn owner() -> Self {
        Self { address: None, tls: false }
    }

    /// Somebody who came over TCP.
    pub const fn over_tcp(address: IpAddr) -> Self {
        Self { address: Some(address), tls: false }
    }

    /// Somebody who came by TLS.
    pub const fn over_tls(address: IpAddr) -> Self {
        Self { address: Some(address), tls: true }
    }

    /// Whether what it says of others is believed: a proxy on this host is, anybody else is not.
    pub(crate) fn is_believed(self) -> bool {
        self.address.is_none_or(|address| address.to_canonical().is_loopback())
    }

    /// Leaves of what a request of its says of its way here (`X-Forwarded-…`) only what is true. Every listener does this
    /// before anything looks at the request.
    pub fn settle(self, headers: &mut HeaderMap) {
        headers::settle(headers, self);
    }
}

/// Serves ports of one host's sandboxes; cheap to clone.
#[derive(Debug, Clone)]
pub struct Proxy {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    kept: Arc<Kept>,
    closing: CancellationToken,
    tunnels: TaskTracker,
}

impl Proxy {
    /// Puts a proxy before a host. `closing` ends what has no end of its own; `tunnels` knows what outlives its request.
    pub fn new(host: Host, closing: CancellationToken, tunnels: TaskTracker) -> Self {
        Self { inner: Arc::new(Inner { host, kept: Arc::default(), closing, tunnels }) }
    }

    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.inner.kept
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    pub(crate) fn tunnels(&self) -> &TaskTracker {
        &self.inner.tunnels
    }

    /// The port that a request's host names; nothing if it is meant for the daemon itself.
    pub fn target_of(&self, head: &Parts) -> Option<Result<Target, Refusal>> {
        Target::of_host(self.inner.host.config().domain.as_ref()?, head)
    }

    /// Answers a request to a port.
    pub async fn serve(&self, target: Result<Target, Refusal>, trust: Trust, request: Request<Body>) -> Response<Body> {
        let page = Refusal::wants_page(request.headers());
        let served = match target {
            Ok(target) => self.reach(&target, trust, request).await,
            Err(refusal) => Err(refusal),
        };
        served.unwrap_or_else(|refusal| refusal.into_response(page))
    }

    /// The same, for those who have refusals of their own.
    pub async fn reach(
        &self,
        target: &Target,
        trust: Trust,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, Refusal> {
        let upgrade = headers::upgrade_of(request.headers()).map(|_| hyper::upgrade::on(&mut request));
        let (mut head, body) = request.into_parts();
        let mut brought = access::take_headers(&mut head.headers);
        let uri = access::take_link(&head.uri, &mut brought);
        let caller = access::caller_of(&self.inner.host, &brought, trust).await?;
        let (handle, known) = access::find(&self.inner.host, &target.sandbox, caller)?;
        if known {
            Standing::note_known(&head.extensions);
        } else {
            let asked = Asked { method: &head.method, uri: &uri, headers: &head.headers, target };
            if let Passage::Exchanged { cookie, location } = access::without_token(&handle, &brought, asked)? {
                return Ok(redirect(&cookie, &location));
            }
        }
        let peer = head.extensions.get::<Peer>().and_then(|peer| peer.address);
        let may_have_body = !body.is_end_stream();
        headers::to_sandbox(&mut head.headers, target, peer, may_have_body);
        head.uri = target.inner_uri(&uri);
        let mut answer = exchange(self, &handle, target.port, Outgoing { head, body, upgrade }).await?;
        origin::confine(answer.headers_mut(), target);
        Ok(answer)
    }

    /// Turns a client's connection into one to a port; the client must have asked for that.
    pub async fn tunnel(
        &self,
        handle: &Handle,
        port: u16,
        headers: &HeaderMap,
        client: OnUpgrade,
    ) -> Result<Response<Body>, HostError> {
        if headers::upgrade_of(headers).is_none_or(|protocol| protocol != TCP_PROTOCOL) {
            return Err(HostError::BadRequest(format!("ask with `Connection: upgrade` and `Upgrade: {TCP_PROTOCOL}`")));
        }
        let _asked = in_use(handle, port);
        let (stream, line) = handle.open_port(port).await?;
        let connected = connected(handle, port);
        let closing = self.closing().clone();
        self.tunnels().spawn(async move {
            match client.await {
                Ok(client) => tunnel(TokioIo::new(client), stream, line, closing, connected).await,
                Err(error) => tracing::debug!(%error, "a client did not stay for its tunnel"),
            }
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        headers::switching(response.headers_mut(), HeaderValue::from_static(TCP_PROTOCOL));
        Ok(response)
    }
}

/// Gives the client its cookie and sends it to the plain address.
fn redirect(cookie: &str, location: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    for (name, value) in [(SET_COOKIE, cookie), (LOCATION, location)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
