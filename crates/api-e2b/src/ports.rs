//! Ports of a sandbox other than envd's own, by way of the proxy, with E2B's refusals.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use roost_host::Handle;
use roost_model::{ErrorCode, PortAccess};
use roost_proxy::{Refusal, Target, Trust};

use crate::E2b;
use crate::e2b::wire_id;
use crate::envd::{TOKEN_HEADER, not_running};
use crate::error::E2bError;
use crate::token::{access_token, same, traffic_token};

const TRAFFIC_HEADER: &str = "e2b-traffic-access-token";
/// What is for us alone.
const OURS: [&str; 3] = ["e2b-sandbox-id", "e2b-sandbox-port", TRAFFIC_HEADER];

/// Serves a request to a port; what sleeps and may be woken by a touch is.
pub(crate) async fn serve(e2b: &E2b, trust: Trust, sandbox: &str, port: u16, mut request: Request) -> Response {
    let handle = match e2b.sandbox(sandbox) {
        Ok(handle) => handle,
        Err(error) => return not_running(sandbox, &error, false).into_response(),
    };
    let trust = match may_pass(e2b, &handle, trust, port, request.headers()) {
        Ok(true) => Trust::Owner,
        // A token or a link of Roost's own may still open it.
        Ok(false) => Trust::Nobody,
        Err(refusal) => return refusal.into_response(),
    };
    for name in OURS {
        request.headers_mut().remove(name);
    }
    let target = Target { sandbox: handle.id().to_string(), port, prefix: String::new() };
    let page = Refusal::wants_page(request.headers());
    match e2b.proxy().reach(&target, trust, request).await {
        Ok(answer) => answer,
        Err(refusal) if page => refusal.into_response(page),
        Err(refusal) => refused(&handle, port, &refusal).into_response(),
    }
}

/// Whether E2B's own rules let a request through.
fn may_pass(e2b: &E2b, handle: &Handle, trust: Trust, port: u16, headers: &HeaderMap) -> Result<bool, E2bError> {
    if trust == Trust::Owner || handle.port_access(port) == PortAccess::Public {
        return Ok(true);
    }
    let shown = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if shown(TOKEN_HEADER).is_some_and(|token| same(token, &access_token(e2b.beyond_tokens(), handle.id()))) {
        return Ok(true);
    }
    match shown(TRAFFIC_HEADER) {
        Some(token) if same(token, &traffic_token(e2b.beyond_tokens(), handle.id())) => Ok(true),
        Some(_) => Err(E2bError::forbidden("the traffic access token is not valid for this sandbox")),
        None => Ok(false),
    }
}

fn refused(handle: &Handle, port: u16, refusal: &Refusal) -> E2bError {
    let sandbox = wire_id(handle.id());
    match refusal.code() {
        ErrorCode::PortClosed => E2bError::port_closed(sandbox, port),
        ErrorCode::SandboxAsleep => E2bError::no_sandbox(sandbox, Some("it is paused")),
        ErrorCode::SandboxNotFound | ErrorCode::SandboxTerminated => E2bError::no_sandbox(sandbox, None),
        ErrorCode::Unauthorized | ErrorCode::Forbidden => {
            E2bError::forbidden("a traffic access token is needed: the header `E2B-Traffic-Access-Token`")
        }
        _ => E2bError::new(refusal.status(), refusal.message()),
    }
}
