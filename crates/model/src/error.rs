//! The words in which a request is refused.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Stable codes of errors; programs decide by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The name breaks the rules for names.
    InvalidName,
    /// Another sandbox has the name.
    NameTaken,
    /// No such sandbox.
    SandboxNotFound,
    /// The sandbox is gone; its tombstone is in the message.
    SandboxTerminated,
    /// The sandbox sleeps and stays so until somebody wakes it expressly.
    SandboxAsleep,
    /// No such template.
    TemplateNotFound,
    /// A template of that name exists.
    TemplateExists,
    /// What was given is not a root filesystem that can be imported.
    TemplateInvalid,
    /// No such checkpoint.
    CheckpointNotFound,
    /// No such exec.
    ExecNotFound,
    /// No such process in the sandbox.
    ProcessNotFound,
    /// No such service in the sandbox.
    ServiceNotFound,
    /// The service did not come up.
    ServiceFailed,
    /// The sandbox has no such hold.
    HoldNotFound,
    /// The sandbox has no such alarm.
    AlarmNotFound,
    /// No such batch.
    BatchNotFound,
    /// No such token.
    TokenNotFound,
    /// No such public key.
    KeyNotFound,
    /// A limit that cannot be.
    LimitInvalid,
    /// More than a limit of the daemon allows.
    LimitExceeded,
    /// The host has no room left.
    HostFull,
    /// Memory could not be saved.
    MemoryNotSaved,
    /// The memory images of the sandbox would take more than its budget.
    ImageBudgetExceeded,
    /// An image of another version or machine.
    ImageIncompatible,
    /// The engine cannot do this here.
    EngineUnfit,
    /// No such path inside.
    PathNotFound,
    /// A part of the path is not a folder.
    NotADirectory,
    /// The path is a folder.
    IsADirectory,
    /// The kernel refused.
    PermissionDenied,
    /// The sandbox's disk is full.
    DiskFull,
    /// The command does not exist.
    CommandNotFound,
    /// The command cannot be executed.
    NotExecutable,
    /// The working folder does not exist.
    CwdNotFound,
    /// The user does not exist inside.
    UserNotFound,
    /// Nobody listens on the port.
    PortClosed,
    /// Its guest ended, or cannot be reached, while it was asked.
    GuestLost,
    /// Its guest sent more than one call collects.
    GuestReplyTooLarge,
    /// Its guest sent something that is no reply to the request.
    GuestReplyInvalid,
    /// No valid token.
    Unauthorized,
    /// A token that may not do this.
    Forbidden,
    /// It clashes with what is going on.
    Conflict,
    /// Too much at once.
    RateLimited,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The request makes no sense.
    BadRequest,
    /// No such route.
    NotFound,
    /// A fault of Roost's own.
    Internal,
}

impl ErrorCode {
    /// The code as it stands in the JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidName => "invalid_name",
            Self::NameTaken => "name_taken",
            Self::SandboxNotFound => "sandbox_not_found",
            Self::SandboxTerminated => "sandbox_terminated",
            Self::SandboxAsleep => "sandbox_asleep",
            Self::TemplateNotFound => "template_not_found",
            Self::TemplateExists => "template_exists",
            Self::TemplateInvalid => "template_invalid",
            Self::CheckpointNotFound => "checkpoint_not_found",
            Self::ExecNotFound => "exec_not_found",
            Self::ProcessNotFound => "process_not_found",
            Self::ServiceNotFound => "service_not_found",
            Self::ServiceFailed => "service_failed",
            Self::HoldNotFound => "hold_not_found",
            Self::AlarmNotFound => "alarm_not_found",
            Self::BatchNotFound => "batch_not_found",
            Self::TokenNotFound => "token_not_found",
            Self::KeyNotFound => "key_not_found",
            Self::LimitInvalid => "limit_invalid",
            Self::LimitExceeded => "limit_exceeded",
            Self::HostFull => "host_full",
            Self::MemoryNotSaved => "memory_not_saved",
            Self::ImageBudgetExceeded => "image_budget_exceeded",
            Self::ImageIncompatible => "image_incompatible",
            Self::EngineUnfit => "engine_unfit",
            Self::PathNotFound => "path_not_found",
            Self::NotADirectory => "not_a_directory",
            Self::IsADirectory => "is_a_directory",
            Self::PermissionDenied => "permission_denied",
            Self::DiskFull => "disk_full",
            Self::CommandNotFound => "command_not_found",
            Self::NotExecutable => "not_executable",
            Self::CwdNotFound => "cwd_not_found",
            Self::UserNotFound => "user_not_found",
            Self::PortClosed => "port_closed",
            Self::GuestLost => "guest_lost",
            Self::GuestReplyTooLarge => "guest_reply_too_large",
            Self::GuestReplyInvalid => "guest_reply_invalid",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Conflict => "conflict",
            Self::RateLimited => "rate_limited",
            Self::BodyTooLarge => "body_too_large",
            Self::BadRequest => "bad_request",
            Self::NotFound => "not_found",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// Stable code.
    pub code: ErrorCode,
    /// The same for people.
    pub message: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
    /// The sandbox that is gone, with its tombstone, for `sandbox_terminated`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<crate::SandboxView>>,
}

/// An error with all its causes on one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_code_is_its_json() {
        for code in [ErrorCode::InvalidName, ErrorCode::NotADirectory, ErrorCode::Internal, ErrorCode::BodyTooLarge] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{code}\""));
        }
    }
}
