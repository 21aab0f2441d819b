//! How long the host waits for a guest.

use std::time::Duration;

use crate::Request;

/// A reply that takes the guest no work. The limit leaves room for a sandbox that is frozen while its memory is saved.
const QUICK: Duration = Duration::from_secs(120);
/// A reply that comes when a tree of files has been removed, copied or written.
const LONG: Duration = Duration::from_secs(3600);
/// The next piece of a file or an archive; a device may have nothing to read for a while.
const CONTENT: Duration = Duration::from_secs(600);

/// How long the host waits for what a request calls for; without a limit where the sandbox decides on the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the reply.
    pub reply: Option<Duration>,
    /// For each item of the stream that follows it.
    pub item: Option<Duration>,
}

impl Request {
    /// How long the host waits for a guest that got this request.
    pub fn patience(&self) -> Patience {
        let reply = match self {
            // A process ends, or reads its input, when it likes.
            Self::ExecWait(_) | Self::ExecStdin(_) => None,
            Self::Write(_)
            | Self::Move(_)
            | Self::Remove(_)
            | Self::Chown(_)
            | Self::ArchiveIn(_)
            | Self::Join(_)
            | Self::Connect(_) => Some(LONG),
            Self::ServiceStart(start) => Some(QUICK.saturating_add(Duration::from_millis(start.wait_ms))),
            Self::Shutdown(shutdown) => Some(QUICK.saturating_add(Duration::from_millis(shutdown.grace_ms))),
            _ => Some(QUICK),
        };
        let item = match self {
            Self::List(_) | Self::WatchEvents(_) => Some(QUICK),
            Self::Read(_) | Self::ArchiveOut(_) => Some(CONTENT),
            _ => None,
        };
        Patience { reply, item }
    }

    /// The exec that the reply must be about.
    pub fn exec_id(&self) -> Option<&str> {
        match self {
            Self::ExecStart(start) => Some(&start.id),
            Self::ExecGet(named) | Self::ExecWait(named) | Self::ExecRemove(named) => Some(&named.id),
            Self::ExecSignal(signal) => Some(&signal.id),
            Self::ExecStdin(stdin) => Some(&stdin.id),
            Self::ExecResize(resize) => Some(&resize.id),
            Self::ExecAttach(attach) => Some(&attach.id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExecId, ListDir, ServiceStart, Watch};

    #[test]
    fn time_is_unlimited_only_where_the_sandbox_decides() {
        assert_eq!(Request::Ping.patience(), Patience { reply: Some(QUICK), item: None });
        assert_eq!(Request::ExecWait(ExecId { id: "exe_1".into() }).patience().reply, None);
        let list = ListDir { path: "/".into(), user: None, depth: 1 };
        assert_eq!(Request::List(list).patience().item, Some(QUICK));
        assert_eq!(Request::Watch(Watch::default()).patience(), Patience { reply: Some(QUICK), item: None });
        let start = ServiceStart { name: "web".into(), again: false, demand: false, wait_ms: u64::MAX };
        assert!(Request::ServiceStart(start).patience().reply > Some(QUICK));
    }
}
