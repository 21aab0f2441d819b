//! Which refusals the fire explains.

use roost_client::ClientError;
use roost_model::ErrorCode;

/// What an operation may be refused for, besides a daemon that is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need<'a> {
    /// Nothing that can run out.
    Nothing,
    /// A place for one more, and room in the pool.
    Room,
    /// This sandbox awake: a place, room in the pool, its memory from its image and back.
    Sandbox(&'a str),
    /// The same, and an answer of its guest.
    Guest(&'a str),
}

/// Whether the fire explains why something was refused.
pub(crate) fn explained(error: &ClientError, need: Need<'_>, criu_died: bool) -> bool {
    let Some(code) = error.code() else { return false };
    let short = matches!(code, ErrorCode::LimitExceeded | ErrorCode::HostFull | ErrorCode::DiskFull);
    // A save or a wake under which CRIU is killed is a fault of the host's; it has to say so.
    let killed = code == ErrorCode::Internal && error.to_string().contains("criu");
    let failed = killed || code == ErrorCode::MemoryNotSaved;
    match need {
        Need::Nothing => false,
        Need::Room => short,
        Need::Sandbox(_) | Need::Guest(_) => short || (failed && criu_died),
    }
}

/// Whether the daemon was away, so that nobody knows what came of it.
pub(crate) fn away(error: &ClientError) -> bool {
    matches!(error, ClientError::Connect { .. } | ClientError::Broken { .. })
}

/// Whether a guest that was just killed has been asked before anybody knew; or gVisor's kernel, under a save.
pub(crate) fn died(error: &ClientError) -> bool {
    let saving = error.code() == Some(ErrorCode::Internal) && error.to_string().contains("failed to save memory");
    error.code() == Some(ErrorCode::GuestLost) || saving
}
