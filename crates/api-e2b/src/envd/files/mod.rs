//! `/files`: contents of files.

use std::collections::HashMap;

use axum::Router;
use axum::extract::Query;
use axum::http::Method;
use axum::http::request::Parts;
use roost_host::Handle;

use crate::E2b;
use crate::error::E2bError;
use crate::token::{Signed, access_token, same};

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
}

/// The sandbox whose token signed a link.
pub(crate) fn signer(e2b: &E2b, head: &Parts) -> Result<Handle, E2bError> {
    let query: HashMap<String, String> = Query::try_from_uri(&head.uri).map(|Query(pairs)| pairs).unwrap_or_default();
    let text = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let signed = Signed {
        path: text("path"),
        operation: if head.method == Method::GET { "read" } else { "write" },
        user: text("username"),
        expiration: text("signature_expiration").parse().ok(),
    };
    let mut living = e2b.host().handles().into_iter();
    let found = living.find(|handle| same(&signed.by(&access_token(handle)), text("signature")));
    found.ok_or_else(|| E2bError::unauthorized("no sandbox here has signed this link"))
}
