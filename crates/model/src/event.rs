//! Events: what happened, in an order that can be replayed.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, Receipt, SandboxId, State};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its place in the log; ask for events after it.
    pub id: u64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The sandbox that the event is about; absent if the event is about the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// The sandbox's name at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// What happened.
    pub kind: EventKind,
    /// The state of the sandbox afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The reason, where there is one.
    pub reason: Option<String>,
    /// The account of the operation it tells of, where that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It is being made.
    Creating,
    /// It is ready.
    Created,
    /// It was asleep or had ended and is active again.
    Woken,
    /// It fell asleep.
    Suspended,
    /// Its guest or all its processes ended by themselves; it is started again from its files.
    Crashed,
    /// A moment of it was kept.
    Checkpointed,
    /// It went back to a checkpoint.
    Restored,
    /// Forks were made of it; they tell of their own birth.
    Forked,
    /// It went to another engine.
    Moved,
    /// Its labels, limits, time to live or checkpoints changed.
    Changed,
    /// It fills a table of the kernel that the whole host shares; the reason says which.
    Strained,
    /// It is gone.
    Terminated,
    /// The daemon started again after it had ended without being stopped. Sandboxes went on meanwhile.
    DaemonRestarted,
    /// A table of the host's kernel, or another resource that all sandboxes share, is nearly used up.
    HostShort,
    /// The host's firewall had lost the rules of sandboxes; the daemon loaded them again.
    NetworkRepaired,
}

impl EventKind {
    /// Every kind, in the order of a sandbox's life.
    pub const ALL: [Self; 15] = [
        Self::Creating,
        Self::Created,
        Self::Woken,
        Self::Suspended,
        Self::Crashed,
        Self::Checkpointed,
        Self::Restored,
        Self::Forked,
        Self::Moved,
        Self::Changed,
        Self::Strained,
        Self::Terminated,
        Self::DaemonRestarted,
        Self::HostShort,
        Self::NetworkRepaired,
    ];

    /// The word used in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Created => "created",
            Self::Woken => "woken",
            Self::Suspended => "suspended",
            Self::Crashed => "crashed",
            Self::Checkpointed => "checkpointed",
            Self::Restored => "restored",
            Self::Forked => "forked",
            Self::Moved => "moved",
            Self::Changed => "changed",
            Self::Strained => "strained",
            Self::Terminated => "terminated",
            Self::DaemonRestarted => "daemon_restarted",
            Self::HostShort => "host_short",
            Self::NetworkRepaired => "network_repaired",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_kind_is_its_json() {
        for kind in EventKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
