//! A line to the daemon's MCP server.

use hyper::header::HeaderValue;

use crate::ports::Tunnel;
use crate::route::Route;
use crate::{Client, ClientError};

const PROTOCOL: HeaderValue = HeaderValue::from_static("roost-mcp");

impl Client {
    /// Connects to the daemon's MCP server: one JSON message in each line, both ways.
    pub async fn connect_mcp(&self) -> Result<Tunnel, ClientError> {
        self.upgrade(Route::new("/mcp"), PROTOCOL).await
    }
}
