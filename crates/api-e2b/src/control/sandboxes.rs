//! Reading and ending sandboxes.

use axum::extract::State;
use axum::http::StatusCode;

use super::extract::E2bPath;
use crate::E2b;
use crate::error::E2bError;

/// `DELETE /sandboxes/{id}`.
pub(crate) async fn kill(State(e2b): State<E2b>, E2bPath(id): E2bPath<String>) -> Result<StatusCode, E2bError> {
    let handle = e2b.find(&id)?;
    handle.delete().await?;
    Ok(StatusCode::NO_CONTENT)
}
