//! Why the store could not do what was asked.

use std::path::PathBuf;

use roost_model::{CheckpointId, Name, SandboxId};

/// The cause below, whatever kind of store it comes from.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why the store could not do what was asked; nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A sandbox that is not terminated has the name.
    #[error("the name `{name}` is taken")]
    NameTaken {
        /// The name.
        name: Name,
    },
    /// The idempotency key came with another request before.
    #[error("the idempotency key `{key}` was used with another request")]
    KeyConflict {
        /// The key.
        key: String,
    },
    /// The sandbox to save was never inserted, or is forgotten.
    #[error("no sandbox `{id}` in the store")]
    Missing {
        /// Its id.
        id: SandboxId,
    },
    /// The checkpoint to delete was never inserted, or is deleted.
    #[error("no checkpoint `{id}` in the store")]
    NoCheckpoint {
        /// Its id.
        id: CheckpointId,
    },
    /// A newer Roost wrote the store.
    #[error(
        "the store `{}` has format {found} and this roost knows formats up to {known}: run the newer roost that wrote \
         it, or put a copy from before that upgrade in its place",
        path.display()
    )]
    Newer {
        /// Where the store is.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format this build knows.
        known: u32,
    },
    /// The file belongs to another program.
    #[error("`{}` is a database, but not one of roost's: move it away or choose another data folder", path.display())]
    Foreign {
        /// Where it is.
        path: PathBuf,
    },
    /// The store cannot be opened or brought to the current format.
    #[error("failed to open the store `{}`", path.display())]
    Open {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: Cause,
    },
    /// What is stored makes no sense to this build.
    #[error("failed to understand what is stored of {what}")]
    Unreadable {
        /// Of which thing.
        what: String,
        /// Why.
        source: Cause,
    },
    /// The storage below failed.
    #[error("failed to {attempt}")]
    Failed {
        /// What was attempted.
        attempt: String,
        /// Why.
        source: Cause,
    },
}
