//! The other side of an attachment, whether it outlives its connection or not.

use std::future::pending;
use std::time::Duration;

use roost_client::{ClientError, ExecEvent, ExecInput, ExecSession, FollowedExec, FollowedInput};
use roost_model::TerminalSize;

/// How long a farewell signal may take when we leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where the process's events come from.
#[derive(Debug)]
pub(crate) enum Remote {
    /// A process that outlives connections.
    Followed(Box<FollowedExec>),
    /// A process that ends with its connection.
    Once(Box<ExecSession>),
}

/// Its input side.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Followed(FollowedInput),
    Once(ExecInput),
}

impl Remote {
    pub(super) async fn next(&mut self) -> Result<Option<ExecEvent>, ClientError> {
        match self {
            Self::Followed(exec) => exec.next().await,
            Self::Once(session) => session.next().await,
        }
    }

    /// Sends a last signal, and does not wait long for a daemon that may be away.
    ///
    /// On a connection of its own: hanging up with output unread may take the last message along.
    pub(super) async fn farewell(&self, signal: &str) {
        if let Self::Followed(exec) = self {
            // We are leaving either way.
            drop(tokio::time::timeout(FAREWELL, exec.signal(signal)).await);
        }
    }

    pub(super) fn input(&self) -> Input {
        match self {
            Self::Followed(exec) => Input::Followed(exec.input()),
            Self::Once(session) => Input::Once(session.input()),
        }
    }
}

impl Input {
    pub(super) fn is_connected(&self) -> bool {
        match self {
            Self::Followed(input) => input.is_connected(),
            Self::Once(_) => true,
        }
    }

    pub(super) async fn back(&mut self) {
        match self {
            Self::Followed(input) => input.back().await,
            Self::Once(_) => {}
        }
    }

    pub(super) async fn lost(&mut self) {
        match self {
            Self::Followed(input) => input.lost().await,
            // The output side tells.
            Self::Once(_) => pending().await,
        }
    }

    pub(super) async fn send_stdin(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.send_stdin(bytes).await,
            Self::Once(input) => input.send_stdin(bytes).await,
        }
    }

    pub(super) async fn close_stdin(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.close_stdin().await,
            Self::Once(input) => input.close_stdin().await,
        }
    }

    pub(super) async fn resize(&mut self, size: TerminalSize) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.resize(size).await,
            Self::Once(input) => input.resize(size).await,
        }
    }

    pub(super) async fn signal(&mut self, name: &str) -> Result<(), ClientError> {
        match self {
            Self::Followed(input) => input.signal(name).await,
            Self::Once(input) => input.signal(name).await,
        }
    }
}
