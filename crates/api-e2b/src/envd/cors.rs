//! Leave for pages of any origin: access is by token, never by a cookie.

use axum::http::StatusCode;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderValue,
};
use axum::response::{IntoResponse, Response};

/// What a browser asks before it sends what it was told to.
pub(crate) fn preflight() -> Response {
    let mut answer = StatusCode::NO_CONTENT.into_response();
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, Authorization"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("7200"));
    allow(answer)
}

/// Lets pages read an answer.
pub(crate) fn allow(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
    answer
}
