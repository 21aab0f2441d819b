//! `process.Process`: commands and terminals.

use axum::Router;

use crate::E2b;

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
}
