//! Pools: sandboxes of a template that are made ahead of time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::EngineKind;

/// How large a pool may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPool {
    /// As many always wait.
    #[serde(default)]
    pub min: u32,
    /// More never wait, however many are asked for; 0 for no pool.
    pub max: u32,
    /// What isolates them; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// A pool as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// The template that its sandboxes are made from.
    pub template: String,
    /// What isolates them.
    pub engine: EngineKind,
    /// As many always wait.
    pub min: u32,
    /// More never wait.
    pub max: u32,
    /// How many should wait now, by what was asked for lately.
    pub target: u32,
    /// How many wait.
    pub ready: u32,
    /// How many are being made.
    pub coming: u32,
    /// How many were taken since the daemon started.
    pub taken: u64,
    /// How often none was there for somebody who could have taken one.
    pub missed: u64,
}
