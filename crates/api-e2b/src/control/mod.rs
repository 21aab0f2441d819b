//! The control plane: sandboxes, snapshots, and access to them.

mod auth;
mod bodies;
mod create;
pub(crate) mod extract;
mod fork;
mod list;
mod logs;
mod metadata;
mod metrics;
mod network;
mod pause;
mod sandboxes;
pub(crate) mod snapshots;
pub(crate) mod visit;
mod volumes;

use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use roost_host::Caller;
use roost_proxy::Trust;

use crate::error::E2bError;
use crate::{E2b, templates};

/// All routes of the control plane, for a listener whose clients are trusted so far.
pub(crate) fn router(e2b: &E2b, trust: Trust) -> Router<E2b> {
    let guarded = Router::new()
        .merge(routes())
        .merge(templates::routes())
        .merge(volumes::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method);
    let guarded = match trust {
        Trust::Owner => guarded.layer(Extension(Caller::owner())),
        Trust::Nobody => guarded.layer(from_fn_with_state(e2b.clone(), auth::require_key)),
    };
    let open =
        Router::new().route("/health", get(health)).merge(templates::open_routes()).merge(volumes::open_routes());
    guarded.merge(open.method_not_allowed_fallback(wrong_method))
}

fn routes() -> Router<E2b> {
    Router::new()
        .route("/sandboxes", post(create::create).get(list::list_running))
        .route("/v2/sandboxes", post(create::create).get(list::list))
        .route("/sandboxes/metrics", get(metrics::of_many))
        .route("/sandboxes/{id}", get(sandboxes::read).delete(sandboxes::kill))
        .route("/sandboxes/{id}/timeout", post(sandboxes::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/pause", post(pause::pause))
        .route("/sandboxes/{id}/resume", post(pause::resume))
        .route("/sandboxes/{id}/connect", post(pause::connect))
        .route("/v2/sandboxes/{id}/connect", post(pause::connect))
        .route("/sandboxes/{id}/fork", post(fork::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
        .route("/sandboxes/{id}/metrics", get(metrics::of_one))
        .route("/sandboxes/{id}/logs", get(logs::logs))
        .route("/v2/sandboxes/{id}/logs", get(logs::logs_v2))
        .route("/sandboxes/{id}/network", put(network::update))
}

/// The daemon answers; a sandbox's own health is asked for with its id in a header.
async fn health() -> StatusCode {
    StatusCode::OK
}

async fn no_route(uri: Uri) -> E2bError {
    E2bError::not_found(format!("there is nothing at `{}`", uri.path()))
}

async fn wrong_method(method: Method, uri: Uri) -> E2bError {
    E2bError::new(StatusCode::METHOD_NOT_ALLOWED, format!("`{}` does not know {method}", uri.path()))
}
