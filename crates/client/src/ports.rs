//! Ports of sandboxes: who may reach them, links to them, and connections to them.

use hyper::Method;
use hyper::header::HeaderValue;
use hyper_util::rt::TokioIo;
use roost_model::{MakeLink, PortAccess, PortLink, PortView, SetPort, Span};

use crate::route::Route;
use crate::{Client, ClientError};

const TCP_PROTOCOL: HeaderValue = HeaderValue::from_static("roost-tcp");

/// A connection to a port inside; each direction ends by itself.
pub type Tunnel = TokioIo<hyper::upgrade::Upgraded>;

fn route(sandbox: &str, port: u16) -> Route {
    Route::sandbox(sandbox).part("ports").part(&port.to_string())
}

impl Client {
    /// How a port is reached from outside, whether or not it listens.
    pub async fn port(&self, sandbox: &str, port: u16) -> Result<PortView, ClientError> {
        self.get_json(route(sandbox, port)).await
    }

    /// Decides who may reach a port; `private` also takes back all links to it.
    pub async fn set_port(&self, sandbox: &str, port: u16, access: PortAccess) -> Result<PortView, ClientError> {
        self.send_json(Method::PUT, route(sandbox, port), &SetPort { access }, None).await?.json().await
    }

    /// Makes a link that opens a private port to whoever has it.
    pub async fn link_port(&self, sandbox: &str, port: u16, expires: Span) -> Result<PortLink, ClientError> {
        let route = route(sandbox, port).part("link");
        self.send_json(Method::POST, route, &MakeLink { expires }, None).await?.json().await
    }

    /// Connects to a port inside, whatever it speaks; wakes the sandbox.
    pub async fn connect_port(&self, sandbox: &str, port: u16) -> Result<Tunnel, ClientError> {
        self.upgrade(route(sandbox, port).part("tcp"), TCP_PROTOCOL).await
    }
}
