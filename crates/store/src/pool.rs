//! What is remembered of a pool.

use roost_model::EngineKind;

/// How many sandboxes of a template wait ahead of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRecord {
    /// The template's name.
    pub template: String,
    /// What isolates them.
    pub engine: EngineKind,
    /// As many always wait.
    pub min: u32,
    /// More never wait.
    pub max: u32,
}
