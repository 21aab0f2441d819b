//! Extractors whose refusals are in E2B's form.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use roost_host::CreateKey;
use serde::de::DeserializeOwned;

use crate::error::E2bError;

const JSON_LIMIT: usize = 1 << 20;
/// How long a body may take.
const PATIENCE: Duration = Duration::from_secs(46);

/// A JSON body; nothing at all stands for an empty object. Fields that are not known are left alone: clients are newer or
/// older than we are.
#[derive(Debug)]
pub(crate) struct E2bJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for E2bJson<T> {
    type Rejection = E2bError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, E2bError> {
        let read = tokio::time::timeout(PATIENCE, axum::body::to_bytes(request.into_body(), JSON_LIMIT)).await;
        let read = read.map_err(|_| E2bError::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
        let bytes = read.map_err(|error| {
            E2bError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("failed to read the body: {error}"))
        })?;
        let bytes: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        let value = serde_json::from_slice(bytes);
        value.map(Self).map_err(|error| E2bError::bad_request(format!("the body does not fit: {error}")))
    }
}

/// The query of the address.
#[derive(Debug)]
pub(crate) struct E2bQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for E2bQuery<T> {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, E2bError> {
        let read = Query::try_from_uri(&parts.uri);
        read.map(|Query(value)| Self(value)).map_err(|error| E2bError::bad_request(error.body_text()))
    }
}

/// The variable parts of the path.
#[derive(Debug)]
pub(crate) struct E2bPath<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for E2bPath<T> {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, E2bError> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(value)| Self(value)).map_err(|error| E2bError::bad_request(error.body_text()))
    }
}

/// The `Idempotency-Key` header, if there is one.
#[derive(Debug)]
pub(crate) struct Key(pub(crate) Option<CreateKey>);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = E2bError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, E2bError> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let text = String::from_utf8_lossy(value.as_bytes());
        Ok(Self(Some(CreateKey::new(&text)?)))
    }
}
