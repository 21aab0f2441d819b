//! `filesystem.Filesystem`: what files there are, and what happens to them.

use axum::Router;

use crate::E2b;

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
}
