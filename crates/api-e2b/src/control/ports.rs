//! Ports of a sandbox other than envd's own.

use axum::extract::Request;
use axum::response::Response;
use roost_proxy::{Target, Trust};

use crate::E2b;
use crate::e2b::from_wire_id;

/// Serves a request to a port.
pub(crate) async fn serve(e2b: &E2b, trust: Trust, sandbox: &str, port: u16, request: Request) -> Response {
    let sandbox = from_wire_id(sandbox).map_or_else(|| sandbox.to_owned(), |id| id.to_string());
    e2b.proxy().serve(Ok(Target { sandbox, port, prefix: String::new() }), trust, request).await
}
