//! Refusals: a code with a meaning of its own, and words for a person.

use axum::http::StatusCode;
use roost_host::HostError;
use roost_model::{ErrorCode, chain};
use serde::Serialize;

/// Why a call was refused, as Connect names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

impl Code {
    /// The HTTP status of a unary call that is refused with it.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal | Self::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refusal on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ConnectError {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl ConnectError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn out_of_time() -> Self {
        Self::new(Code::DeadlineExceeded, "the time that the call was given is up")
    }
}

impl From<HostError> for ConnectError {
    fn from(error: HostError) -> Self {
        use ErrorCode as E;
        let code = match error.code() {
            // SDKs look for these words to tell a sandbox that is gone from one that is out of reach.
            E::SandboxNotFound | E::SandboxTerminated | E::SandboxAsleep => {
                return Self::new(Code::Unavailable, "The sandbox was not found");
            }
            E::PathNotFound | E::ExecNotFound => Code::NotFound,
            E::PermissionDenied | E::Forbidden => Code::PermissionDenied,
            E::UserNotFound | E::Unauthorized => Code::Unauthenticated,
            E::Conflict | E::DiskFull | E::EngineUnfit | E::ImageIncompatible | E::MemoryNotSaved => {
                Code::FailedPrecondition
            }
            E::LimitExceeded | E::ImageBudgetExceeded | E::RateLimited | E::BodyTooLarge | E::GuestReplyTooLarge => {
                Code::ResourceExhausted
            }
            E::HostFull | E::GuestReplyInvalid => Code::Unavailable,
            E::BadRequest
            | E::NotADirectory
            | E::IsADirectory
            | E::CommandNotFound
            | E::NotExecutable
            | E::CwdNotFound => Code::InvalidArgument,
            _ if matches!(error, HostError::GuestLost { .. }) => Code::Unavailable,
            _ => {
                tracing::error!(error = %chain(&error), "a call failed");
                Code::Internal
            }
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_words_of_connect() {
        let error = ConnectError::new(Code::FailedPrecondition, "no");
        assert_eq!(serde_json::to_string(&error).unwrap(), r#"{"code":"failed_precondition","message":"no"}"#);
        assert_eq!(error.code.status(), StatusCode::BAD_REQUEST);
        assert_eq!(ConnectError::out_of_time().code.status(), StatusCode::GATEWAY_TIMEOUT);
    }

    #[test]
    fn a_sandbox_that_is_gone_is_told_in_the_words_that_clients_look_for() {
        let gone = HostError::SandboxNotFound { name: "sbx".to_owned(), similar: None };
        let error = ConnectError::from(gone);
        assert_eq!((error.code, error.message.as_str()), (Code::Unavailable, "The sandbox was not found"));
    }
}
