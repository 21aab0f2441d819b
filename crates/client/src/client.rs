//! The client itself: an address, and one way to send each kind of request.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::address::Address;
use crate::answer::Answer;
use crate::body::whole;
use crate::connector::{Connector, Socket, Upgraded};
use crate::route::Route;
use crate::tls::Tls;
use crate::{ClientError, DEFAULT_SOCKET, Upload};

/// A client of one daemon; cheap to clone, clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    connector: Arc<Connector>,
}

impl Client {
    /// A client of the daemon that listens on a unix socket.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self { connector: Connector::new(Address::Unix(path.into()), None, None) }
    }

    /// A client of the daemon at `http[s]://host:port`, with the secret of a token.
    pub fn http(url: &str, token: Option<&str>) -> Result<Self, ClientError> {
        Self::trusting(url, token, None)
    }

    /// The same, which trusts the authorities in a file instead of the system's; `ca` is for `https` alone.
    pub fn trusting(url: &str, token: Option<&str>, ca: Option<&Path>) -> Result<Self, ClientError> {
        let address = Address::from_url(url)?;
        let tls = match &address {
            Address::Tcp { authority, tls: true, .. } => Some(Tls::new(url, authority, ca)?),
            _ => None,
        };
        let authorization = match token {
            None => None,
            Some(token) => {
                let problem = "the token has characters that no token has";
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| ClientError::Address { given: url.to_owned(), problem })?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self { connector: Connector::new(address, tls, authorization) })
    }

    /// The client that the environment asks for: `ROOST_URL` with `ROOST_TOKEN` and `ROOST_CA`, else `ROOST_SOCKET`, else the
    /// default socket.
    pub fn from_env() -> Result<Self, ClientError> {
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
        match set("ROOST_URL") {
            Some(url) => Self::trusting(&url, set("ROOST_TOKEN").as_deref(), set("ROOST_CA").as_deref().map(Path::new)),
            None => Ok(Self::unix(set("ROOST_SOCKET").unwrap_or_else(|| DEFAULT_SOCKET.to_owned()))),
        }
    }

    /// Where this client looks for the daemon, for people.
    pub fn place(&self) -> String {
        self.connector.address().place()
    }

    /// Whether the daemon is on this host, where both see the same paths.
    pub fn is_local(&self) -> bool {
        matches!(self.connector.address(), Address::Unix(_))
    }

    pub(crate) async fn get(&self, route: Route) -> Result<Answer, ClientError> {
        self.plain(Method::GET, route).await
    }

    pub(crate) async fn get_json<T: DeserializeOwned>(&self, route: Route) -> Result<T, ClientError> {
        self.get(route).await?.json().await
    }

    pub(crate) async fn delete(&self, route: Route) -> Result<(), ClientError> {
        self.plain(Method::DELETE, route).await?.drain().await
    }

    /// A request without a body.
    pub(crate) async fn plain(&self, method: Method, route: Route) -> Result<Answer, ClientError> {
        let request = self.connector.request(method, route.as_str(), whole(Bytes::new()))?;
        self.connector.send(request, true).await
    }

    /// A request with a JSON body and perhaps an idempotency key.
    pub(crate) async fn send_json(
        &self,
        method: Method,
        route: Route,
        body: &impl Serialize,
        key: Option<&str>,
    ) -> Result<Answer, ClientError> {
        let odd = |problem: String| ClientError::Answer { attempt: format!("{method} {}", route.as_str()), problem };
        let text = serde_json::to_vec(body).map_err(|error| odd(error.to_string()))?;
        let key = key.map(HeaderValue::from_str).transpose().map_err(|error| odd(error.to_string()))?;
        let mut request = self.connector.request(method, route.as_str(), whole(text.into()))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = key {
            request.headers_mut().insert("idempotency-key", key);
        }
        self.connector.send(request, true).await
    }

    /// A request whose body is streamed.
    pub(crate) async fn send_upload(
        &self,
        method: Method,
        route: Route,
        upload: Upload,
        content_type: &'static str,
    ) -> Result<Answer, ClientError> {
        let mut request = self.connector.request(method, route.as_str(), upload.body)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(size) = upload.size {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
        }
        self.connector.send(request, false).await
    }

    pub(crate) async fn upgrade(&self, route: Route, protocol: HeaderValue) -> Result<Upgraded, ClientError> {
        self.connector.upgrade(route.as_str(), protocol).await
    }

    pub(crate) async fn websocket(&self, route: Route) -> Result<Socket, ClientError> {
        self.connector.websocket(route.as_str()).await
    }
}
