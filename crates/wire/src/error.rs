//! Refusals of the guest, with codes that the host can pass on.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why the guest refused, as a stable word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "&'static str")]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
        }

        impl ErrorCode {
            /// Every code there is.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The word on the wire, the same as in the public API.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }
        }

        impl From<String> for ErrorCode {
            /// A code from a newer guest that this host does not know becomes `internal`; the message still tells.
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => ErrorCode::$name,)*
                    _ => ErrorCode::Internal,
                }
            }
        }
    };
}

codes! {
    /// The path, or a folder on the way to it, does not exist.
    PathNotFound = "path_not_found",
    /// A folder was needed and something else was found.
    NotADirectory = "not_a_directory",
    /// Something else was needed and a folder was found.
    IsADirectory = "is_a_directory",
    /// The kernel refused.
    PermissionDenied = "permission_denied",
    /// No space or quota left.
    DiskFull = "disk_full",
    /// No exec has this id.
    ExecNotFound = "exec_not_found",
    /// No process has this pid.
    ProcessNotFound = "process_not_found",
    /// No service has this name.
    ServiceNotFound = "service_not_found",
    /// No watch that goes on by itself has this name.
    WatchNotFound = "watch_not_found",
    /// The request makes no sense.
    BadRequest = "bad_request",
    /// The request clashes with what is there.
    Conflict = "conflict",
    /// The key is wrong.
    Unauthorized = "unauthorized",
    /// A limit on processes, threads, connections or watches was reached.
    LimitExceeded = "limit_exceeded",
    /// The program was not found (127).
    CommandNotFound = "command_not_found",
    /// The program was found and cannot be executed (126).
    NotExecutable = "not_executable",
    /// The working folder of a new process does not exist or cannot be entered.
    CwdNotFound = "cwd_not_found",
    /// No such user or group inside.
    UserNotFound = "user_not_found",
    /// Nobody listens on the port.
    PortClosed = "port_closed",
    /// Something that should not happen.
    Internal = "internal",
}

impl From<ErrorCode> for &'static str {
    fn from(code: ErrorCode) -> Self {
        code.as_str()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The guest's refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Why, as a stable word.
    pub code: ErrorCode,
    /// Why, for a person: a lowercase fragment.
    #[serde(default)]
    pub message: String,
}

impl Failure {
    /// A refusal with a code and a message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_a_round_trip_and_unknown_ones_become_internal() {
        for &code in ErrorCode::ALL {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(serde_json::from_str::<ErrorCode>(&text).unwrap(), code);
        }
        let newer: Failure = serde_json::from_str(r#"{"code":"from_the_future","message":"m","more":1}"#).unwrap();
        assert_eq!(newer, Failure::new(ErrorCode::Internal, "m"));
    }
}
