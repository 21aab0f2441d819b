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
    /// To which sandbox.
    pub sandbox: SandboxId,
    /// What it was called then.
    pub name: Name,
    /// What happened.
    pub kind: EventKind,
    /// The state it is in afterwards.
    pub state: State,
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
    /// It is gone.
    Terminated,
}

impl EventKind {
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
            Self::Terminated => "terminated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_kind_is_its_json() {
        use EventKind::{
            Changed, Checkpointed, Crashed, Created, Creating, Forked, Moved, Restored, Suspended, Terminated, Woken,
        };
        for kind in
            [Creating, Created, Woken, Suspended, Crashed, Checkpointed, Restored, Forked, Moved, Changed, Terminated]
        {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
