//! Extractors whose refusals are ours: JSON bodies, queries, paths, keys and WebSocket upgrades.

use std::error::Error;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use roost_host::CreateKey;
use roost_model::{ErrorCode, ExecId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::body::{JSON_LIMIT, read_limited};
use crate::errors::ApiError;

/// A JSON body.
#[derive(Debug)]
pub(crate) struct ApiJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for ApiJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        read_json(&parts.headers, body, JSON_LIMIT).await.map(Self)
    }
}

/// Reads a JSON body that may have at most `limit` bytes.
pub(crate) async fn read_json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<T, ApiError> {
    if let Some(other) = foreign_type(headers) {
        let refusal = ApiError::bad_request(format!("the body is `{other}`, not JSON"));
        return Err(refusal
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
            .with_hint("send the header `Content-Type: application/json`"));
    }
    parse_json(&read_limited(headers, body, limit).await?)
}

/// The content type, if it is named and not JSON.
fn foreign_type(headers: &HeaderMap) -> Option<String> {
    let named = headers.get(header::CONTENT_TYPE)?;
    let text = String::from_utf8_lossy(named.as_bytes());
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    (!json).then_some(kind)
}

/// Reads JSON; nothing at all stands for an empty object.
pub(crate) fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::bad_request(match error.classify() {
            serde_json::error::Category::Data => format!("the body does not fit: {error}"),
            _ => format!("the body is not JSON: {error}"),
        })
    })
}

/// The query of the address.
#[derive(Debug)]
pub(crate) struct ApiQuery<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(ApiError::bad_request(format!("the query does not fit: {}", innermost(&rejection)))),
        }
    }
}

/// The variable parts of the path.
#[derive(Debug)]
pub(crate) struct ApiPath<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(PathRejection::FailedToDeserializePathParams(rejection)) => {
                Err(ApiError::bad_request(format!("the path does not fit: {}", innermost(&rejection))))
            }
            Err(other) => Err(ApiError::new(ErrorCode::Internal, other.to_string())),
        }
    }
}

fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// A path below one sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SandboxPath {
    /// Its name, its id, or the beginning of its id.
    pub(crate) sandbox: String,
}

/// A path below one process of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ExecPath {
    /// The sandbox's name, its id, or the beginning of its id.
    pub(crate) sandbox: String,
    /// The process's id.
    pub(crate) exec: String,
}

impl ExecPath {
    /// The id; a text that is none names no process.
    pub(crate) fn exec_id(&self) -> Result<ExecId, ApiError> {
        self.exec.parse().map_err(|_| ApiError::new(ErrorCode::ExecNotFound, format!("no exec `{}`", self.exec)))
    }
}

/// The `Idempotency-Key` header, if there is one.
#[derive(Debug)]
pub(crate) struct Key(pub(crate) Option<CreateKey>);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let text = String::from_utf8_lossy(value.as_bytes());
        Ok(Self(Some(CreateKey::new(&text)?)))
    }
}

/// Largest WebSocket message: a JSON body, or a piece of input.
const LARGEST_MESSAGE: usize = JSON_LIMIT + 1024;

/// A request to speak WebSocket.
#[derive(Debug)]
pub(crate) struct Upgrade(pub(crate) WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match WebSocketUpgrade::from_request_parts(parts, state).await {
            Ok(upgrade) => Ok(Self(upgrade.max_message_size(LARGEST_MESSAGE).max_frame_size(LARGEST_MESSAGE))),
            Err(rejection) => Err(ApiError::bad_request(format!("this address speaks WebSocket: {rejection}"))
                .with_status(StatusCode::UPGRADE_REQUIRED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::{get, post};
    use roost_model::{CreateSandbox, ErrorBody};
    use tower::ServiceExt;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[expect(dead_code, reason = "only whether it can be read matters")]
        path: String,
    }

    fn app() -> Router {
        Router::new()
            .route("/json", post(|ApiJson(_): ApiJson<CreateSandbox>| async {}))
            .route("/query", get(|ApiQuery(_): ApiQuery<Wanted>| async {}))
            .route("/path/{number}", get(|ApiPath(_): ApiPath<u32>| async {}))
            .route("/key", get(|_: Key| async {}))
            .route("/ws", get(|_: Upgrade| async {}))
    }

    async fn answer(request: Request) -> (u16, Option<ErrorBody>) {
        let response = app().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).ok())
    }

    fn json(kind: Option<&str>, body: impl Into<Body>) -> Request {
        let mut request = Request::post("/json");
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        request.body(body.into()).unwrap()
    }

    #[tokio::test]
    async fn good_bodies_are_taken() {
        for request in [
            json(Some("application/json"), r#"{"name":"web"}"#),
            json(Some("application/json; charset=utf-8"), "{}"),
            json(None, "{}"),
            json(None, ""),
        ] {
            assert_eq!(answer(request).await.0, 200);
        }
    }

    #[tokio::test]
    async fn bad_bodies_are_refused_in_our_words() {
        let cases = [
            (json(None, "{"), 400, ErrorCode::BadRequest, "not JSON"),
            (json(None, r#"{"nmae":"web"}"#), 400, ErrorCode::BadRequest, "unknown field `nmae`"),
            (json(None, r#"{"ttl":"soon"}"#), 400, ErrorCode::BadRequest, "`soon` is not a duration"),
            (json(None, r#"{"limits":{"memory":-1}}"#), 400, ErrorCode::BadRequest, "does not fit"),
            (json(Some("text/plain"), "{}"), 415, ErrorCode::BadRequest, "`text/plain`"),
            (json(None, vec![b' '; JSON_LIMIT + 1]), 413, ErrorCode::BodyTooLarge, "1048576"),
        ];
        for (request, status, code, part) in cases {
            let (got, body) = answer(request).await;
            let error = body.expect("a refusal has our body").error;
            assert_eq!((got, error.code), (status, code), "{}", error.message);
            assert!(error.message.contains(part), "{}", error.message);
        }
    }

    #[tokio::test]
    async fn other_refusals_of_the_framework_are_ours_too() {
        let long = "k".repeat(300);
        let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        let cases = [
            (get("/query"), 400, "missing field `path`"),
            (get("/query?path=/&other=1"), 400, "unknown field `other`"),
            (get("/path/many"), 400, "the path does not fit"),
            (get("/path/%ff"), 400, "the path does not fit"),
            (get("/ws"), 426, "WebSocket"),
            (Request::get("/key").header("idempotency-key", long).body(Body::empty()).unwrap(), 400, "idempotency key"),
        ];
        for (request, status, part) in cases {
            let (got, body) = answer(request).await;
            let error = body.expect("a refusal has our body").error;
            assert_eq!((got, error.code), (status, ErrorCode::BadRequest), "{}", error.message);
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
}
