//! What a browser is told: how to log in, and all sandboxes at a glance.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{EngineKind, Level, Name, Parent, SandboxId, State};

/// A link that logs one browser in, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// The link itself, if the daemon serves HTTP.
    pub url: Option<String>,
    /// The same below the daemon's own address.
    pub path: String,
    /// When it stops to open anything, if it was not used before.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
}

/// What a browser logs in with: the code of a link, or the secret of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogIn {
    /// What stands after `#login=` in a link.
    #[serde(default)]
    pub code: Option<String>,
    /// The secret of a token.
    #[serde(default)]
    pub token: Option<String>,
}

/// Who a browser is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Whether it is logged in.
    pub logged_in: bool,
    /// The name of the token that it came with; nothing if it came from the owner of the socket.
    #[serde(default)]
    pub token: Option<String>,
    /// When it must log in again.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
}

/// A sandbox at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverviewRow {
    /// Its id.
    pub id: SandboxId,
    /// Its name.
    pub name: Name,
    /// What it does.
    pub state: State,
    /// How deep it sleeps, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Since when it is in that state.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why, where that needs saying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What it started from.
    pub template: String,
    /// What isolates it.
    pub engine: EngineKind,
    /// The moment that it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Processor time of late, in thousandths of one processor.
    pub cpu: u32,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Bytes of memory that it may use.
    pub memory_limit: u64,
    /// Bytes on disk that are its own.
    pub disk: u64,
    /// Bytes on disk that it may have.
    pub disk_limit: u64,
}

/// What changed since the message before; the first one has everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverviewChange {
    /// Whether it has everything, so that what was known before is worth nothing.
    pub all: bool,
    /// Sandboxes that are new or changed.
    pub rows: Vec<OverviewRow>,
    /// Sandboxes that are gone.
    pub gone: Vec<SandboxId>,
}
