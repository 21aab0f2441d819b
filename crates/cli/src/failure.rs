//! How a command fails: what is printed and with which code the process ends.

use std::io::{self, IsTerminal};

use roost_client::ClientError;
use roost_model::ErrorCode;

use crate::output::Palette;

/// Roost itself failed.
pub(crate) const ROOST_FAILED: u8 = 125;
/// A command is there but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// A command is not there.
const NOT_FOUND: u8 = 127;
/// Ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// Nobody reads our output any more.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// An error of the command line's own, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Hinted {
    message: String,
    hint: String,
}

/// The person pressed Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Resolves when the person presses Ctrl-C.
pub(crate) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// An error with a hint.
pub(crate) fn hinted(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { message: message.into(), hint: hint.into() }.into()
}

/// Prints an error the way every command does and returns the exit code it calls for.
pub(crate) fn report(error: &anyhow::Error) -> u8 {
    let code = exit_code(error);
    if code == BROKEN_PIPE {
        return code;
    }
    let palette = Palette::of(io::stderr().is_terminal());
    if code != INTERRUPTED {
        eprintln!("{} {}", palette.red("error:"), one_line(error));
        if let Some(hint) = hint(error) {
            eprintln!("{} {hint}", palette.yellow("hint:"));
        }
    }
    code
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Interrupted>() {
        return INTERRUPTED;
    }
    for cause in error.chain() {
        match cause.downcast_ref::<ClientError>().and_then(ClientError::code) {
            Some(ErrorCode::CommandNotFound) => return NOT_FOUND,
            Some(ErrorCode::NotExecutable) => return NOT_EXECUTABLE,
            _ => {}
        }
    }
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => BROKEN_PIPE,
        _ => ROOST_FAILED,
    }
}

fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        let own = cause.downcast_ref::<Hinted>().map(|hinted| hinted.hint.clone());
        own.or_else(|| cause.downcast_ref::<ClientError>().and_then(ClientError::hint))
    })
}

/// The error and its causes, without what a cause repeats of the error above it.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::Context;
    use roost_model::ErrorDetail;

    use super::*;

    fn api(code: ErrorCode) -> anyhow::Error {
        let detail = ErrorDetail { code, message: "no".to_owned(), hint: Some("do".to_owned()) };
        ClientError::Api { status: 400, detail, sandbox: None }.into()
    }

    #[test]
    fn codes_follow_the_cause() {
        assert_eq!(exit_code(&api(ErrorCode::CommandNotFound).context("exec")), 127);
        assert_eq!(exit_code(&api(ErrorCode::NotExecutable)), 126);
        assert_eq!(exit_code(&api(ErrorCode::NameTaken)), 125);
        assert_eq!(exit_code(&Interrupted.into()), 130);
        assert_eq!(exit_code(&io::Error::from(io::ErrorKind::BrokenPipe).into()), 141);
        assert_eq!(exit_code(&anyhow::anyhow!("x")), 125);
    }

    #[test]
    fn hints_and_causes_are_found_below_context() {
        assert_eq!(hint(&api(ErrorCode::NameTaken).context("create")).as_deref(), Some("do"));
        assert_eq!(hint(&hinted("a", "b")).as_deref(), Some("b"));
        let twice = Err::<(), _>(io::Error::other("same")).context("same").unwrap_err();
        assert_eq!(one_line(&twice), "same");
        assert_eq!(one_line(&api(ErrorCode::Internal).context("failed")), "failed: no");
    }
}
