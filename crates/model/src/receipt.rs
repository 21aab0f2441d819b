//! Receipts: what an operation kept, what it did not, and what it cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Level;

/// What a receipt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A sandbox was woken.
    Wake,
}

/// Something that did not outlive an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotKept {
    /// What it was.
    pub what: String,
    /// Why it could not be kept.
    pub why: String,
}

/// The account of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// What was done.
    pub operation: Operation,
    /// How deep the sandbox sleeps afterwards, if it does.
    pub level: Option<Level>,
    /// What was kept.
    pub kept: Vec<String>,
    /// What was not.
    pub not_kept: Vec<NotKept>,
    /// Milliseconds of each part.
    pub parts_ms: BTreeMap<String, f64>,
    /// Milliseconds in all.
    pub total_ms: f64,
    /// The sandbox's generation afterwards.
    pub generation: u64,
}
