//! What must be remembered: sandboxes, their checkpoints, holds, alarms and events, pools, idempotency keys, tokens and
//! sessions of browsers.
//!
//! [`Store`] says what is kept and what is promised about it; [`SqliteStore`] keeps it in one file. Calls block for
//! tens of microseconds, [`Durability::Synced`] ones for as long as the disk takes.
//!
//! Promises of every implementation, checked by one conformance suite:
//! - what a call has acknowledged survives the death of the process; if it was `Synced`, that of the machine too;
//! - a record and the event that tells of it are written together or not at all;
//! - event ids start at 1, grow by one and are never reused; a reader never sees one before those below it;
//! - a checkpoint stays until it is deleted, whatever becomes of its sandbox;
//! - of the sandboxes that are not terminated no two have the same name.
#![forbid(unsafe_code)]

mod checkpoint;
mod error;
mod pool;
mod record;
mod services;
mod session;
mod sqlite;
mod store;
#[cfg(test)]
mod tests;

pub use checkpoint::CheckpointRecord;
pub use error::StoreError;
pub use pool::PoolRecord;
pub use record::{NotSaved, SandboxRecord, Source};
pub use services::{ServiceRecord, ServiceRecords};
pub use session::SessionRecord;
pub use sqlite::SqliteStore;
pub use store::{Durability, IdempotencyKey, InsertOutcome, NewEvent, Pruned, Store};
