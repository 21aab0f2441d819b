//! `POST /files/compose`: pieces that were uploaded become one file.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use serde::{Deserialize, Serialize};

use super::refusal;
use crate::envd::Call;
use crate::envd::filesystem::meant;
use crate::error::E2bError;

/// What to join.
#[derive(Debug, Deserialize)]
pub(super) struct Compose {
    #[serde(default)]
    source_paths: Vec<String>,
    #[serde(default)]
    destination: String,
    username: Option<String>,
}

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Composed {
    name: String,
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

/// Joins files to one and removes them.
pub(super) async fn compose(
    call: Call,
    body: Result<Json<Compose>, JsonRejection>,
) -> Result<Json<Composed>, E2bError> {
    let Json(wanted) = body.map_err(|error| E2bError::bad_request(format!("invalid request body: {error}")))?;
    if wanted.source_paths.is_empty() {
        return Err(E2bError::bad_request("source_paths must not be empty"));
    }
    if wanted.destination.is_empty() {
        return Err(E2bError::bad_request("destination is required"));
    }
    for path in wanted.source_paths.iter().chain([&wanted.destination]) {
        meant(path).map_err(E2bError::bad_request)?;
    }
    let user = wanted.username.filter(|name| !name.is_empty()).or(call.user);
    let files = call.handle.files_of(user.as_deref());
    let stat = files.join(&wanted.source_paths, &wanted.destination).await.map_err(refusal)?.stat;
    Ok(Json(Composed { name: stat.name, path: stat.path, kind: "file" }))
}
