//! Errors of the kernel as refusals that the host can pass on.

use std::fmt::Display;
use std::io;
use std::path::Path;

use roost_wire::{ErrorCode, Failure};
use rustix::io::Errno;

/// The code for an error of the kernel.
pub(crate) fn code_of(error: &io::Error) -> ErrorCode {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => ErrorCode::PathNotFound,
        Some(Errno::NOTDIR) => ErrorCode::NotADirectory,
        Some(Errno::ISDIR) => ErrorCode::IsADirectory,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorCode::PermissionDenied,
        Some(Errno::NOSPC | Errno::DQUOT) => ErrorCode::DiskFull,
        Some(Errno::EXIST | Errno::NOTEMPTY | Errno::BUSY | Errno::TXTBSY) => ErrorCode::Conflict,
        Some(Errno::INVAL | Errno::NAMETOOLONG | Errno::LOOP | Errno::NXIO | Errno::NODEV) => ErrorCode::BadRequest,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => ErrorCode::LimitExceeded,
        _ => ErrorCode::Internal,
    }
}

/// A refusal that says what was attempted and what the kernel said.
pub(crate) fn failed(attempt: impl Display, error: &io::Error) -> Failure {
    Failure::new(code_of(error), format!("failed to {attempt}: {error}"))
}

/// The same for one path.
pub(crate) fn failed_on(verb: &str, path: &Path, error: &io::Error) -> Failure {
    failed(format_args!("{verb} `{}`", path.display()), error)
}

pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::BadRequest, message)
}

pub(crate) fn internal(message: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::Internal, message)
}
