//! From codes to statuses, in one table, and from every refusal to one body.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use roost_host::HostError;
use roost_model::{ErrorBody, ErrorCode, ErrorDetail, chain};

/// The HTTP status with which a code is answered.
pub fn status_of(code: ErrorCode) -> StatusCode {
    use ErrorCode as E;
    match code {
        // What was asked for cannot be, whatever the state of the host.
        E::InvalidName
        | E::LimitInvalid
        | E::TemplateInvalid
        | E::CommandNotFound
        | E::NotExecutable
        | E::CwdNotFound
        | E::UserNotFound
        | E::BadRequest => StatusCode::BAD_REQUEST,
        E::Unauthorized => StatusCode::UNAUTHORIZED,
        E::Forbidden | E::PermissionDenied => StatusCode::FORBIDDEN,
        E::SandboxNotFound
        | E::TemplateNotFound
        | E::CheckpointNotFound
        | E::ExecNotFound
        | E::ProcessNotFound
        | E::ServiceNotFound
        | E::HoldNotFound
        | E::AlarmNotFound
        | E::BatchNotFound
        | E::TokenNotFound
        | E::KeyNotFound
        | E::PathNotFound
        | E::NotFound => StatusCode::NOT_FOUND,
        // What was asked for clashes with what is there.
        E::NameTaken | E::TemplateExists | E::NotADirectory | E::IsADirectory | E::SandboxAsleep | E::Conflict => {
            StatusCode::CONFLICT
        }
        E::SandboxTerminated => StatusCode::GONE,
        E::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        // Understood and sensible, but this host, engine or image cannot do it.
        E::MemoryNotSaved | E::ImageIncompatible | E::EngineUnfit => StatusCode::UNPROCESSABLE_ENTITY,
        E::LimitExceeded | E::ImageBudgetExceeded | E::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        E::PortClosed | E::ServiceFailed | E::GuestReplyTooLarge | E::GuestReplyInvalid => StatusCode::BAD_GATEWAY,
        E::HostFull | E::GuestLost => StatusCode::SERVICE_UNAVAILABLE,
        E::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        E::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        // A code that is newer than this table; a test looks for those.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// A refusal on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ErrorDetail { code, message: message.into(), hint: None }.into()
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.body.error.hint = Some(hint.into());
        self
    }

    /// A status that says more than the code's own, for what HTTP itself has statuses for.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn detail(&self) -> &ErrorDetail {
        &self.body.error
    }
}

/// Most characters of a message: it quotes what was asked for, which may be as long as a request.
const LONGEST_MESSAGE: usize = 1000;

/// Leaves the middle out of a text that is too long for anybody to read.
fn shortened(text: String) -> String {
    let mut characters = text.char_indices();
    let Some((middle, _)) = characters.nth(LONGEST_MESSAGE / 2) else { return text };
    let Some((last, _)) = text.char_indices().rev().nth(LONGEST_MESSAGE / 2 - 1) else { return text };
    if characters.nth(LONGEST_MESSAGE / 2).is_none() {
        return text;
    }
    format!("{} … {}", &text[..middle], &text[last..])
}

impl From<ErrorDetail> for ApiError {
    fn from(mut error: ErrorDetail) -> Self {
        error.message = shortened(error.message);
        Self { status: status_of(error.code), body: ErrorBody { error, sandbox: None } }
    }
}

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        let code = error.code();
        if code == ErrorCode::Internal {
            tracing::error!(error = %chain(&error), "a request failed");
        }
        let mut refusal = Self::new(code, error.to_string());
        refusal.body.error.hint = error.hint();
        refusal.body.sandbox = error.sandbox().cloned().map(Box::new);
        refusal
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let unauthorized = self.body.error.code == ErrorCode::Unauthorized;
        let mut response = (self.status, Json(self.body)).into_response();
        if unauthorized {
            let scheme = HeaderValue::from_static("Bearer realm=\"roost\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use utoipa::PartialSchema;

    use super::*;

    /// Every code, read from the schema so that a new one cannot be forgotten here.
    fn all_codes() -> Vec<ErrorCode> {
        let schema = serde_json::to_value(ErrorCode::schema()).unwrap();
        let words = schema["enum"].as_array().expect("codes are an enumeration").clone();
        words.into_iter().map(|word| serde_json::from_value(word).unwrap()).collect()
    }

    #[test]
    fn a_message_is_short_enough_to_read() {
        assert_eq!(shortened("short".to_owned()), "short");
        for (piece, count) in [("é", LONGEST_MESSAGE), ("ab", LONGEST_MESSAGE / 2)] {
            let whole = piece.repeat(count);
            assert_eq!(shortened(whole.clone()), whole);
        }
        let error = ApiError::bad_request(format!("name `{}` is too long", "é".repeat(1 << 20)));
        let message = &error.detail().message;
        assert!(message.chars().count() <= LONGEST_MESSAGE + 3, "{}", message.len());
        assert!(message.starts_with("name `é") && message.ends_with("é` is too long"), "{message}");
    }

    #[test]
    fn every_code_has_its_status() {
        let codes = all_codes();
        assert!(codes.len() >= 34, "{codes:?}");
        for code in codes {
            let status = status_of(code);
            assert!(status.is_client_error() || status.is_server_error(), "{code}");
            let own_fault = status == StatusCode::INTERNAL_SERVER_ERROR;
            assert_eq!(own_fault, code == ErrorCode::Internal, "{code} is missing in the table");
            assert_eq!(status == StatusCode::NOT_FOUND, is_addressed(code), "{code}");
        }
    }

    /// Codes that say that what the address names is not there.
    fn is_addressed(code: ErrorCode) -> bool {
        let inside = [ErrorCode::CommandNotFound, ErrorCode::CwdNotFound, ErrorCode::UserNotFound];
        code.as_str().ends_with("not_found") && !inside.contains(&code)
    }

    #[test]
    fn a_host_error_keeps_its_code_and_hint() {
        let error = HostError::SandboxNotFound { name: "wbe".to_owned(), similar: Some("web".to_owned()) };
        let refusal = ApiError::from(error);
        assert_eq!(refusal.status(), StatusCode::NOT_FOUND);
        assert_eq!(refusal.detail().code, ErrorCode::SandboxNotFound);
        assert_eq!(refusal.detail().hint.as_deref(), Some("did you mean `web`?"));
    }

    #[test]
    fn a_missing_token_names_the_scheme() {
        let response = ApiError::new(ErrorCode::Unauthorized, "no").into_response();
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}
