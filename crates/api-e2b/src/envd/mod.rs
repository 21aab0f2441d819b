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
use roost_model::SandboxId;
use roost_proxy::{Standing, Trust};
use tower::ServiceExt;

pub(crate) use call::Call;

use crate::E2b;
use crate::e2b::wire_id;
use crate::error::E2bError;
use crate::front::answered;
use crate::token::{access_token, same};

pub(crate) const TOKEN_HEADER: &str = "x-access-token";

/// How a caller has shown that it may use a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// By its access token, or by whom it is.
    Token,
    /// By a signature, which still says for what and until when.
    Signature,
    /// Not yet.
    None,
}

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
        Ok(handle) => match enter(e2b, handle, &head, Proof::Signature).await {
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
    let is_token_of = |id: &SandboxId| shown.map(|token| same(token, &access_token(e2b.beyond_tokens(), id)));
    let handle = e2b.sandbox(sandbox).map_err(|error| {
        let trusted = error.sandbox().is_some_and(|gone| is_token_of(&gone.id) == Some(true));
        not_running(sandbox, &error, trusted)
    })?;
    let proof = match is_token_of(handle.id()) {
        Some(true) => Proof::Token,
        Some(false) => return Err(E2bError::unauthorized("the access token is not valid for this sandbox")),
        None if trust == Trust::Owner => Proof::Token,
        None => Proof::None,
    };
    if proof == Proof::None && !asks_for_itself(&head.method, &head.uri) {
        return Err(E2bError::unauthorized("an access token is needed: the header `X-Access-Token`"));
    }
    enter(e2b, handle, head, proof).await
}

/// Routes that need no token, or look for another proof.
fn asks_for_itself(method: &Method, uri: &Uri) -> bool {
    match uri.path() {
        "/health" => *method == Method::GET,
        "/files" => matches!(*method, Method::GET | Method::HEAD | Method::POST),
        _ => false,
    }
}

/// Has a sandbox that stays asleep woken for whoever may do that; what sleeps lightly is woken by what is asked of it.
async fn enter(e2b: &E2b, handle: Handle, head: &Parts, proof: Proof) -> Result<Call, E2bError> {
    if handle.view().stays {
        let sandbox = wire_id(handle.id());
        if proof == Proof::None {
            return Err(E2bError::no_sandbox(sandbox, None));
        }
        let busy = handle.request("a call of E2B's");
        handle.awake(&busy).await.map_err(|error| not_running(sandbox, &error, true))?;
    }
    if proof != Proof::None {
        Standing::note_known(&head.extensions);
    }
    Ok(Call::new(e2b.clone(), handle, &head.headers, proof == Proof::Token))
}

/// What stands for a sandbox that does not run; whoever has its token is told why.
pub(crate) fn not_running(sandbox: &str, error: &HostError, trusted: bool) -> E2bError {
    let why = match error {
        HostError::Terminated(gone) => gone.tombstone.as_ref().map(|end| format!("{} at {:.0}", end.message, end.at)),
        HostError::StaysAsleep { since, .. } => Some(format!("it is paused since {since:.0}")),
        HostError::SandboxNotFound { .. } => None,
        other => return E2bError::new(StatusCode::BAD_GATEWAY, other.to_string()),
    };
    E2bError::no_sandbox(sandbox, why.filter(|_| trusted).as_deref())
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
    fn only_those_who_have_its_token_hear_why_it_is_gone() {
        let asleep = HostError::StaysAsleep { name: "box".to_owned(), since: jiff::Timestamp::UNIX_EPOCH };
        let told = not_running("01abc", &asleep, true);
        assert_eq!(
            (told.status(), told.message()),
            (StatusCode::BAD_GATEWAY, "The sandbox was not found: it is paused since 1970-01-01T00:00:00Z")
        );
        assert_eq!(not_running("01abc", &asleep, false).message(), "The sandbox was not found");
        let unknown = HostError::SandboxNotFound { name: "x".to_owned(), similar: None };
        assert_eq!(not_running("x", &unknown, true).message(), "The sandbox was not found");
    }

    #[test]
    fn only_health_and_files_do_without_a_token() {
        let open = |method: Method, uri: &'static str| asks_for_itself(&method, &Uri::from_static(uri));
        assert!(open(Method::GET, "/health") && open(Method::GET, "/files?path=a") && open(Method::POST, "/files"));
        assert!(!open(Method::DELETE, "/files") && !open(Method::GET, "/envs") && !open(Method::POST, "/health"));
        assert!(!open(Method::POST, "/process.Process/List") && !open(Method::POST, "/files/compose"));
    }
}
