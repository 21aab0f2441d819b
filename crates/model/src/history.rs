//! What a sandbox has used, over hours and days.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Span;

/// What a sandbox has used over time, as far as the daemon has seen it since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageHistory {
    /// How long each step is.
    pub step: Span,
    /// The steps, oldest first; the last one is not over. There are none from before the daemon started.
    pub steps: Vec<UsageStep>,
}

/// What was used in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageStep {
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How much of it was seen, in milliseconds.
    pub seen_ms: u64,
    /// How much of that it was awake.
    pub awake_ms: u64,
    /// CPU time, in milliseconds.
    pub cpu_ms: u64,
    /// The most memory that was seen in RAM, in bytes; it is looked at once a minute.
    pub memory: u64,
}
