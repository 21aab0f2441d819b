//! `/files`: contents of files, by those who hold the sandbox's token or a signed link.

mod access;
mod coding;
mod compose;
mod disposition;
mod download;
mod gather;
mod metadata;
mod multipart;
mod range;
mod upload;

use axum::Router;
use axum::routing::{get, post};

pub(crate) use access::signer;
pub(crate) use metadata::of_attributes as metadata_of;

use crate::E2b;
use crate::error::{E2bError, status_of};

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
        .route("/files", get(download::download).post(upload::upload))
        .route("/files/compose", post(compose::compose))
}

/// A refusal of the sandbox's, in the statuses that clients of `/files` know.
fn refusal(error: roost_host::HostError) -> E2bError {
    use roost_model::ErrorCode as E;
    match error.code() {
        E::UserNotFound => E2bError::unauthorized(error.to_string()),
        E::DiskFull => E2bError::new(status_of(E::DiskFull), format!("not enough disk space available: {error}")),
        _ => E2bError::from(error),
    }
}
