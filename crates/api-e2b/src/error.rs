//! Refusals in E2B's form: `{"code": <the status>, "message": …}`.
//!
//! Clients decide by the number in the body as often as by the status, so that both are always the same.

use axum::Json;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use roost_host::HostError;
use roost_model::{ErrorCode, chain};
use serde::Serialize;

/// A refusal on its way to the client.
#[derive(Debug)]
pub(crate) struct E2bError {
    status: StatusCode,
    body: ErrorBody,
    /// Whether the client is told not to ask again by itself.
    final_answer: bool,
}

/// What a client reads of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorBody {
    code: u16,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

impl E2bError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let body = ErrorBody { code: status.as_u16(), message: message.into(), sandbox_id: None, port: None };
        Self { status, body, final_answer: false }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// What stands for a sandbox that does not answer: clients look for "was not found" in it.
    pub(crate) fn no_sandbox(sandbox: &str, why: Option<&str>) -> Self {
        let message = match why {
            Some(why) => format!("The sandbox was not found: {why}"),
            None => "The sandbox was not found".to_owned(),
        };
        let mut refusal = Self::new(StatusCode::BAD_GATEWAY, message);
        refusal.body.sandbox_id = Some(sandbox.to_owned());
        refusal
    }

    /// What stands for a port on which nobody listens: clients look for "port is not open" in it.
    pub(crate) fn port_closed(sandbox: &str, port: u16) -> Self {
        let mut refusal = Self::new(StatusCode::BAD_GATEWAY, "The sandbox is running but port is not open");
        refusal.body.sandbox_id = Some(sandbox.to_owned());
        refusal.body.port = Some(port);
        refusal
    }

    /// What a client reads of it.
    pub(crate) fn into_body(self) -> ErrorBody {
        self.body
    }

    /// Keeps clients from sending a request again by themselves that may have made something.
    pub(crate) fn once(mut self) -> Self {
        self.final_answer = true;
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.body.message
    }
}

/// The status with which the control plane answers a code; also that of envd's plain HTTP.
pub(crate) fn status_of(code: ErrorCode) -> StatusCode {
    use ErrorCode as E;
    match code {
        E::Unauthorized => StatusCode::UNAUTHORIZED,
        E::Forbidden | E::PermissionDenied => StatusCode::FORBIDDEN,
        // One that is gone is not there: E2B keeps no tombstones.
        E::SandboxNotFound
        | E::SandboxTerminated
        | E::TemplateNotFound
        | E::CheckpointNotFound
        | E::ExecNotFound
        | E::PathNotFound
        | E::NotFound => StatusCode::NOT_FOUND,
        E::NameTaken | E::TemplateExists | E::Conflict => StatusCode::CONFLICT,
        E::LimitExceeded | E::ImageBudgetExceeded | E::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        E::PortClosed | E::SandboxAsleep | E::GuestReplyTooLarge | E::GuestReplyInvalid => StatusCode::BAD_GATEWAY,
        E::HostFull | E::MemoryNotSaved | E::GuestLost => StatusCode::SERVICE_UNAVAILABLE,
        E::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        E::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        E::ImageIncompatible | E::EngineUnfit => StatusCode::UNPROCESSABLE_ENTITY,
        E::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    }
}

impl From<HostError> for E2bError {
    fn from(error: HostError) -> Self {
        let code = error.code();
        if code == ErrorCode::SandboxAsleep {
            return Self::new(StatusCode::BAD_GATEWAY, format!("The sandbox was not found: {error}"));
        }
        if code == ErrorCode::Internal {
            tracing::error!(error = %chain(&error), "a request failed");
        }
        Self::new(status_of(code), error.to_string())
    }
}

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.final_answer {
            response.headers_mut().insert("should-retry", HeaderValue::from_static("false"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shown(refusal: E2bError) -> (u16, bool, serde_json::Value) {
        let response = refusal.into_response();
        let (status, told) = (response.status().as_u16(), response.headers().contains_key("should-retry"));
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        (status, told, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn the_body_repeats_the_status() {
        let error = HostError::SandboxNotFound { name: "web".to_owned(), similar: None };
        let (status, told, body) = shown(E2bError::from(error)).await;
        assert_eq!((status, told, &body["code"]), (404, false, &404.into()));
        let (_, told, _) = shown(E2bError::bad_request("no").once()).await;
        assert!(told);
    }

    #[tokio::test]
    async fn a_sandbox_that_is_gone_says_what_clients_look_for() {
        let (status, _, body) = shown(E2bError::no_sandbox("01abc", Some("deleted on request"))).await;
        assert_eq!((status, &body["code"], &body["sandboxId"]), (502, &502.into(), &"01abc".into()));
        assert_eq!(body["message"], "The sandbox was not found: deleted on request");
    }
}
