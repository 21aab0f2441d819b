//! Every request leaves a span and a count.

use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tracing::Instrument;

use crate::Api;

/// Counts a request by its route, never by its path: names of sandboxes are no labels.
pub(crate) async fn observe(State(api): State<Api>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = word_of(request.method());
    let span = tracing::debug_span!("request", id = api.next_request(), method, path = request.uri().path());
    let started = Instant::now();
    let response = next.run(request).instrument(span.clone()).await;
    let (time, status) = (started.elapsed(), response.status().as_u16());
    span.in_scope(|| tracing::debug!(status, ms = time.as_secs_f64() * 1000.0, "answered"));
    api.metrics().request(method, route.as_ref().map_or("none", MatchedPath::as_str), status, time);
    response
}

/// Methods are made up freely by clients; counts are not.
fn word_of(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}
