//! Port 49983 of a sandbox, where E2B's clients expect its daemon; answered here, on the sandbox's handle.
//!
//! Every call passes [`serve`] first, which finds the sandbox, checks the access token, and has it woken where its kind of
//! sleep allows that; then its route gets a [`Call`].

mod call;
mod connect;
mod cors;
mod figures;
mod files;
mod filesystem;
mod process;

use axum::Router;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use roost_host::{Handle, HostError};
use roost_proxy::Trust;
use tower::ServiceExt;

pub(crate) use call::Call;

use crate::E2b;
use crate::error::E2bError;
use crate::front::answered;
use crate::token::{access_token, same};

pub(crate) const TOKEN_HEADER: &str = "x-access-token";

/// All routes; each takes a [`Call`].
pub(crate) fn routes() -> Router<E2b> {
    Router::new()
        .route("/health", get(health))
        .merge(figures::routes())
        .merge(process::routes())
        .merge(filesystem::routes())
        .merge(files::routes())
        .fallback(no_route)
}

/// Serves a request whose sandbox is named.
pub(crate) async fn serve(e2b: &E2b, routes: Router, trust: Trust, sandbox: &str, request: Request) -> Response {
    if *request.method() == Method::OPTIONS {
        return cors::preflight();
    }
    let (head, body) = request.into_parts();
    let answer = match admit(e2b, trust, sandbox, &head).await {
        Ok(call) => run(routes, call, Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    };
    cors::allow(answer)
}

/// Serves a link to a file: the sandbox is the one whose token signed it.
pub(crate) async fn serve_signed(e2b: &E2b, routes: Router, request: Request) -> Response {
    if *request.method() == Method::OPTIONS {
        return cors::preflight();
    }
    let (head, body) = request.into_parts();
    let signer = files::signer(e2b, &head);
    let answer = match signer {
        Ok(handle) => match enter(e2b, handle, &head, false).await {
            Ok(call) => run(routes, call, Request::from_parts(head, body)).await,
            Err(refusal) => refusal.into_response(),
        },
        Err(refusal) => refusal.into_response(),
    };
    cors::allow(answer)
}

async fn run(routes: Router, call: Call, mut request: Request) -> Response {
    request.extensions_mut().insert(call);
    answered(routes.oneshot(request).await)
}

/// Finds the sandbox and decides whether the caller may use it.
async fn admit(e2b: &E2b, trust: Trust, sandbox: &str, head: &Parts) -> Result<Call, E2bError> {
    let shown = head.headers.get(TOKEN_HEADER).map(|value| value.to_str().unwrap_or_default());
    let handle = e2b.find(sandbox).map_err(|error| not_running(sandbox, &error))?;
    let trusted = match shown {
        Some(token) if same(token, &access_token(&handle)) => true,
        Some(_) => return Err(E2bError::unauthorized("the access token is not valid for this sandbox")),
        None => trust == Trust::Owner,
    };
    if !trusted && !asks_for_itself(&head.method, &head.uri) {
        return Err(E2bError::unauthorized("an access token is needed: the header `X-Access-Token`"));
    }
    enter(e2b, handle, head, trusted).await
}

/// Routes that need no token, or look for another proof.
fn asks_for_itself(method: &Method, uri: &Uri) -> bool {
    match uri.path() {
        "/health" => *method == Method::GET,
        "/files" => *method == Method::GET || *method == Method::POST,
        _ => false,
    }
}

async fn enter(e2b: &E2b, handle: Handle, head: &Parts, trusted: bool) -> Result<Call, E2bError> {
    Ok(Call::new(e2b.clone(), handle, &head.headers, trusted))
}

/// What stands for a sandbox that does not run.
pub(crate) fn not_running(sandbox: &str, error: &HostError) -> E2bError {
    match error {
        HostError::SandboxNotFound { .. } | HostError::Terminated(_) => E2bError::no_sandbox(sandbox, None),
        other => E2bError::new(StatusCode::BAD_GATEWAY, other.to_string()),
    }
}

/// The sandbox is there; it need not be awake to say so.
async fn health(_call: Call) -> StatusCode {
    StatusCode::NO_CONTENT
}

async fn no_route(uri: Uri) -> E2bError {
    E2bError::not_found(format!("there is nothing at `{}`", uri.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_health_and_files_do_without_a_token() {
        let open = |method: Method, uri: &'static str| asks_for_itself(&method, &Uri::from_static(uri));
        assert!(open(Method::GET, "/health") && open(Method::GET, "/files?path=a") && open(Method::POST, "/files"));
        assert!(!open(Method::DELETE, "/files") && !open(Method::GET, "/envs") && !open(Method::POST, "/health"));
        assert!(!open(Method::POST, "/process.Process/List") && !open(Method::POST, "/files/compose"));
    }
}
