//! Connections: a few idle ones are kept, a stale one is replaced without the caller's notice.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use hyper::http::response::Parts;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::ClientError;
use crate::address::Address;
use crate::answer::{Answer, Lease};
use crate::body::{RequestBody, whole};
use crate::tls::Tls;

/// How a connection takes requests.
pub(crate) type Sender = http1::SendRequest<RequestBody>;
/// A WebSocket to the daemon.
pub(crate) type Socket = WebSocketStream<Upgraded>;
/// A connection that speaks something else than HTTP by now.
pub(crate) type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

const MOST_IDLE: usize = 8;

/// Makes and keeps connections to one daemon.
pub(crate) struct Connector {
    address: Address,
    tls: Option<Tls>,
    authorization: Option<HeaderValue>,
    idle: Mutex<Vec<Sender>>,
}

impl Connector {
    pub(crate) fn new(address: Address, tls: Option<Tls>, authorization: Option<HeaderValue>) -> Arc<Self> {
        Arc::new(Self { address, tls, authorization, idle: Mutex::default() })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A request to a route, with what every request carries.
    pub(crate) fn request(
        &self,
        method: Method,
        route: &str,
        body: RequestBody,
    ) -> Result<Request<RequestBody>, ClientError> {
        let uri = format!("{}{route}", self.address.prefix());
        let mut builder = Request::builder().method(method).uri(&uri).header(HOST, self.address.host());
        if let Some(authorization) = &self.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        builder.body(body).map_err(|_| ClientError::Address { given: uri, problem: "it makes no request line" })
    }

    /// Sends a request and takes the answer.
    ///
    /// `reusable` says that the request's body is small and gone before the answer, so that the connection is clean
    /// afterwards.
    pub(crate) async fn send(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        reusable: bool,
    ) -> Result<Answer, ClientError> {
        let attempt = format!("{} {}", request.method(), request.uri().path());
        let (response, sender) = self.exchange(request, &attempt).await?;
        let (head, body) = response.into_parts();
        let lease = reusable.then(|| Lease { sender, home: Arc::clone(self) });
        Answer::accept(head, body, lease, attempt).await
    }

    async fn exchange(
        &self,
        mut request: Request<RequestBody>,
        attempt: &str,
    ) -> Result<(Response<Incoming>, Sender), ClientError> {
        let broken = |source: hyper::Error| ClientError::Broken { attempt: attempt.to_owned(), source: source.into() };
        while let Some(mut sender) = self.unpark() {
            if sender.ready().await.is_err() {
                continue;
            }
            // Reading twice does no harm, so a read that a dying connection swallowed is sent again.
            let again = (request.method() == Method::GET).then(|| copy_of_read(&request));
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut refused) => match refused.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(broken(refused.into_error())),
                },
            }
        }
        let io = TokioIo::new(self.address.connect(self.tls.as_ref()).await?);
        let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
        tokio::spawn(async move {
            // Its failure reaches whoever waits for an answer on it.
            connection.await.unwrap_or_default();
        });
        let response = sender.send_request(request).await.map_err(broken)?;
        Ok((response, sender))
    }

    /// Opens a WebSocket on a connection of its own.
    pub(crate) async fn websocket(&self, route: &str) -> Result<Socket, ClientError> {
        let key = generate_key();
        let mut request = self.request(Method::GET, route, whole(Default::default()))?;
        let attempt = format!("GET {}", request.uri().path());
        let headers = request.headers_mut();
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let odd = |problem: &str| ClientError::Answer { attempt: attempt.clone(), problem: problem.to_owned() };
        let key_header = HeaderValue::from_str(&key).map_err(|_| odd("the key is no header value"))?;
        headers.insert(SEC_WEBSOCKET_KEY, key_header);
        let (head, upgraded) = self.change(request, HeaderValue::from_static("websocket")).await?;
        let accepted = head.headers.get("sec-websocket-accept").map(HeaderValue::as_bytes);
        if accepted != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(odd("the WebSocket handshake does not match"));
        }
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await)
    }

    /// Has a connection of its own speak another protocol.
    pub(crate) async fn upgrade(&self, route: &str, protocol: HeaderValue) -> Result<Upgraded, ClientError> {
        let request = self.request(Method::GET, route, whole(Default::default()))?;
        Ok(self.change(request, protocol).await?.1)
    }

    async fn change(
        &self,
        mut request: Request<RequestBody>,
        protocol: HeaderValue,
    ) -> Result<(Parts, Upgraded), ClientError> {
        let attempt = format!("GET {}", request.uri().path());
        let broken = |source: hyper::Error| ClientError::Broken { attempt: attempt.clone(), source: source.into() };
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol.clone());
        let io = TokioIo::new(self.address.connect(self.tls.as_ref()).await?);
        let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
        tokio::spawn(async move {
            connection.with_upgrades().await.unwrap_or_default();
        });
        let mut response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (head, body) = response.into_parts();
            Answer::accept(head, body, None, attempt.clone()).await?;
            let problem = format!("it did not change to `{}`", protocol.to_str().unwrap_or_default());
            return Err(ClientError::Answer { attempt, problem });
        }
        let upgraded = hyper::upgrade::on(&mut response).await.map_err(broken)?;
        Ok((response.into_parts().0, TokioIo::new(upgraded)))
    }

    pub(crate) fn park(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !sender.is_closed() && idle.len() < MOST_IDLE {
            idle.push(sender);
        }
    }

    fn unpark(&self) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

fn copy_of_read(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(whole(Default::default()));
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("address", &self.address).finish_non_exhaustive()
    }
}
