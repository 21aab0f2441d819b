//! What a tool answers: a short text for the model, and the same facts for programs.

use rmcp::model::{CallToolResult, ContentBlock, ErrorData};
use roost_host::HostError;
use roost_model::{ErrorCode, chain};
use serde_json::{Value, json};

/// What a tool did or found.
#[derive(Debug)]
pub(crate) struct Answer {
    text: String,
    facts: Value,
}

impl Answer {
    /// `facts` is an object.
    pub(crate) fn new(text: impl Into<String>, facts: Value) -> Self {
        Self { text: text.into(), facts }
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::success(vec![ContentBlock::text(self.text)]);
        result.structured_content = Some(self.facts);
        result
    }
}

/// Why a tool did not do it; the model is told, so that it can mend its call.
#[derive(Debug)]
pub(crate) struct Failure {
    code: ErrorCode,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn text(&self) -> String {
        let hint = self.hint.as_ref().map_or_else(String::new, |hint| format!("\nhint: {hint}"));
        format!("{}: {}{hint}", self.code.as_str(), self.message)
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.text())]);
        let facts = json!({"code": self.code.as_str(), "message": self.message, "hint": self.hint});
        result.structured_content = Some(json!({"error": facts}));
        result
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let code = error.code();
        if code == ErrorCode::Internal {
            tracing::error!(error = %chain(&error), "a tool failed");
        }
        Self { code, message: chain(&error), hint: error.hint() }
    }
}

impl From<Failure> for ErrorData {
    fn from(failure: Failure) -> Self {
        let data = Some(json!({"code": failure.code.as_str(), "hint": failure.hint}));
        match failure.code {
            ErrorCode::SandboxNotFound | ErrorCode::PathNotFound | ErrorCode::SandboxTerminated => {
                Self::resource_not_found(failure.text(), data)
            }
            ErrorCode::Internal => Self::internal_error(failure.text(), data),
            _ => Self::invalid_params(failure.text(), data),
        }
    }
}
