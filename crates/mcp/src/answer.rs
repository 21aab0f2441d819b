//! What a tool answers: a short text for the model, and the same facts for programs.

use rmcp::model::{CallToolResult, ContentBlock, ErrorData};
use roost_host::HostError;
use roost_model::{ErrorCode, ErrorDetail, chain};
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
        Self { code, message: chain(&error), hint: hint_for_agents(&error) }
    }
}

impl From<ErrorDetail> for Failure {
    fn from(error: ErrorDetail) -> Self {
        Self { code: error.code, message: error.message, hint: error.hint }
    }
}

/// What to do about it, in words of tools where the host's own are of commands.
fn hint_for_agents(error: &HostError) -> Option<String> {
    let tool = match error {
        HostError::SandboxNotFound { similar: None, .. } => "sandbox_list shows what is here",
        HostError::CheckpointNotFound(_) => "checkpoint_list shows those of a sandbox",
        HostError::MemoryShort { .. } => "let sandboxes sleep deeper (suspend with level=disk), or remove some",
        HostError::TooManyActive { .. } => "let one sleep with suspend",
        HostError::GuestOutdated { .. } => {
            "it gets the present one when it starts from files, without its processes: suspend with level=files, then wake"
        }
        HostError::StaysAsleep { .. } => "the tool wake wakes it",
        _ => return error.hint(),
    };
    Some(tool.to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_of_tools_and_not_of_commands() {
        let unknown = |similar: Option<&str>| HostError::SandboxNotFound {
            name: "bxo".to_owned(),
            similar: similar.map(str::to_owned),
        };
        for error in
            [unknown(None), HostError::TooManyActive { most: 3 }, HostError::MemoryShort { available: 1, critical: 2 }]
        {
            let text = Failure::from(error).text();
            assert!(text.contains("hint: ") && !text.contains("`roost "), "{text}");
        }
        assert_eq!(
            Failure::from(unknown(Some("box"))).text(),
            "sandbox_not_found: no sandbox named `bxo`\nhint: did you mean `box`?"
        );
    }
}
