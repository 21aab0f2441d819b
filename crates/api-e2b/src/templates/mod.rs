//! Templates: names, tags, builds.

use axum::Router;

use crate::E2b;

/// Routes for holders of an API key.
pub(crate) fn routes() -> Router<E2b> {
    Router::new()
}

/// Routes that ask for access themselves.
pub(crate) fn open_routes() -> Router<E2b> {
    Router::new()
}
