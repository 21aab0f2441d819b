//! Volumes, which are not offered: disks that several sandboxes share. Clients are told so in words they can show.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use serde_json::json;

use crate::E2b;
use crate::error::E2bError;

const WHY: &str =
    "volumes are not offered by this host: keep files in a sandbox, or start others from a snapshot of it";

pub(crate) fn routes() -> Router<E2b> {
    Router::new().route("/volumes", any(refuse)).route("/volumes/{*rest}", any(refuse))
}

/// What is in volumes is asked for with a token of the volume's own, which nobody has.
pub(crate) fn open_routes() -> Router<E2b> {
    Router::new().route("/volumecontent/{*rest}", any(refuse_content))
}

async fn refuse() -> E2bError {
    E2bError::new(StatusCode::NOT_IMPLEMENTED, WHY)
}

/// Here the code is text.
async fn refuse_content() -> Response {
    let body = json!({"code": "not_implemented", "message": WHY});
    (StatusCode::NOT_IMPLEMENTED, Json(body)).into_response()
}
