//! What can go wrong in an engine, named by the step that was attempted.

use std::io;

use roost_model::{EngineKind, SandboxId};

/// The step of an engine's work that failed.
pub type Step = &'static str;

/// Why an engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A step of the engine's own failed.
    #[error("failed to {step} for sandbox {id}: {detail}")]
    Failed {
        /// What was attempted.
        step: Step,
        /// For which sandbox.
        id: SandboxId,
        /// What the kernel or the tool said.
        detail: String,
    },
    /// A step of the engine's own found no room on a disk.
    #[error("failed to {step} for sandbox {id}: {detail}")]
    Full {
        /// What was attempted.
        step: Step,
        /// For which sandbox.
        id: SandboxId,
        /// What the kernel or the tool said.
        detail: String,
    },
    /// A system call failed.
    #[error("failed to {step} for sandbox {id}")]
    Io {
        /// What was attempted.
        step: Step,
        /// For which sandbox.
        id: SandboxId,
        /// The cause.
        source: io::Error,
    },
    /// The guest did not come up in time.
    #[error("the guest of sandbox {id} did not answer within {seconds} s")]
    GuestSilent {
        /// Which sandbox.
        id: SandboxId,
        /// How long was waited.
        seconds: u64,
    },
    /// The sandbox has no processes.
    #[error("sandbox {id} is not running")]
    NotRunning {
        /// Which sandbox.
        id: SandboxId,
    },
    /// The sandbox ended while its memory was saved, and the image is not whole.
    #[error("sandbox {id} ended while its memory was saved: {why}")]
    EndedInSave {
        /// Which sandbox.
        id: SandboxId,
        /// The cause of its end.
        why: String,
    },
    /// Memory and processes cannot be saved as they are now; the sandbox is as before.
    #[error("sandbox {id} cannot be saved{}: {why}", process.as_deref().map(|name| format!(" because of {name}")).unwrap_or_default())]
    NotSaved {
        /// Which sandbox.
        id: SandboxId,
        /// The process that stands in the way, by name and pid inside, where one is known.
        process: Option<String>,
        /// What about it cannot be saved.
        why: String,
    },
    /// The image cannot be restored here.
    #[error("the image does not fit sandbox {id}: {why}")]
    ImageUnfit {
        /// Which sandbox.
        id: SandboxId,
        /// What does not fit.
        why: String,
    },
    /// The engine cannot do this on this host.
    #[error("engine {engine} cannot {what} on this host: {why}")]
    Unfit {
        /// Which engine.
        engine: EngineKind,
        /// What was asked.
        what: Step,
        /// The reason.
        why: String,
    },
}
