//! What isolates a sandbox, seen from above: the [`Engine`] trait, its capabilities, and a fake for tests.
//!
//! An engine knows nothing of names, policies or stores. It is told to start, freeze, thaw and kill; what it cannot do
//! is a declared capability, and the layers above act on the capability, never on the engine's name. The trait does not
//! assume that a sandbox's root is a host mount, that the guest is reached by TCP, that processes are host pids or that
//! freezing is a cgroup's business.
#![forbid(unsafe_code)]

mod error;
mod fake;
mod spec;

pub mod conformance;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;

use async_trait::async_trait;
use roost_model::{EngineKind, Limits, SandboxId};

pub use error::{EngineError, Step};
pub use fake::FakeEngine;
pub use spec::{
    Capabilities, Check, Counters, DiskSource, Dumped, EngineReport, GuestLink, NetworkPlug, Presence, Running,
    StartSpec, UID_RANGES, Usage,
};

/// A future that resolves when a sandbox's last process is gone.
pub type Exited = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Isolates and runs sandboxes; one value serves all sandboxes of its kind.
///
/// Every method names a sandbox by its id and finds its own state in the world (cgroups, pids, sockets), so that a new
/// daemon can go on where an old one was killed. All methods are idempotent.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Which engine this is; for display and for the store, never for decisions.
    fn kind(&self) -> EngineKind;

    /// What this engine can do on this host.
    fn capabilities(&self) -> Capabilities;

    /// Why no sandbox can be started here, as far as that is known without trying; `None` for all that is known.
    fn unfit(&self) -> Option<String> {
        None
    }

    /// Starts the sandbox and returns once its guest listens.
    ///
    /// The caller guarantees that the disk exists and that no process of this sandbox runs. On failure nothing of the
    /// sandbox is left running and no kernel object of the engine's remains.
    async fn start(&self, spec: StartSpec) -> Result<Running, EngineError>;

    /// Ends every process of the sandbox and returns when all are gone and the engine's objects are removed.
    ///
    /// May be called in every state, also for a sandbox that never started.
    async fn kill(&self, id: &SandboxId) -> Result<(), EngineError>;

    /// Looks at the world: is this sandbox running, frozen or absent? One that an earlier daemon was saving is looked at when
    /// that has ended.
    async fn inspect(&self, id: &SandboxId) -> Result<Presence, EngineError>;

    /// Resolves when the sandbox has ended, however that came about; at once if it is absent.
    async fn exited(&self, id: &SandboxId) -> Result<Exited, EngineError>;

    /// Stops all processes where they are; memory stays. Needs [`Capabilities::freeze`].
    async fn freeze(&self, id: &SandboxId) -> Result<(), EngineError>;

    /// Lets frozen processes go on.
    async fn thaw(&self, id: &SandboxId) -> Result<(), EngineError>;

    /// Waits, while it runs, for what a dump would have to wait for with the sandbox frozen.
    async fn prepare_dump(&self, _id: &SandboxId) -> Result<(), EngineError> {
        Ok(())
    }

    /// Saves memory and processes into the empty folder `into`. Needs [`Capabilities::save_memory`].
    ///
    /// The caller guarantees that the sandbox is frozen; it is frozen afterwards, whether this worked or not. What is
    /// restored finds the disk as it was at this moment, so the caller keeps a copy of it before it thaws. The image may take
    /// `room` bytes: a dump that writes more ends with [`EngineError::NotSaved`], and the sandbox is as before. What it
    /// wrote until then is in `into`, which the caller removes.
    async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError>;

    /// Starts the sandbox from the image in the folder `image` and returns once its guest listens.
    ///
    /// Like [`Engine::start`], but with the processes of the image, and the guest among them as it was: it knows nothing of
    /// `spec.guest_config`. `spec.uid_range` must be that of the sandbox that was saved. Several sandboxes may be started
    /// from one image.
    async fn restore(&self, spec: StartSpec, image: &Path) -> Result<Running, EngineError>;

    /// What an image must have been made with to be restored here; `None` without [`Capabilities::save_memory`].
    fn image_version(&self) -> Option<String>;

    /// Changes the limits of a running sandbox.
    async fn set_limits(&self, id: &SandboxId, limits: &Limits) -> Result<(), EngineError>;

    /// Changes the host name that a sandbox's processes see; the guest may not. Frozen or not.
    async fn set_hostname(&self, id: &SandboxId, hostname: &str) -> Result<(), EngineError>;

    /// What the sandbox uses now; what it used last, if it has ended and was not killed yet.
    async fn usage(&self, id: &SandboxId) -> Result<Usage, EngineError>;

    /// What the sandbox has used so far, without what the engine uses for itself; cheaper than [`Engine::usage`]. The two are not
    /// read at one moment: where nothing is used it may be a trifle less than before.
    async fn counters(&self, id: &SandboxId) -> Result<Counters, EngineError>;

    /// The bytes that wait at the sandbox's sockets in the host's kernel. An engine may stop counting beyond `enough`.
    ///
    /// Most of them are charged to no control group. A sandbox with a kernel of its own has none there.
    async fn queued(&self, id: &SandboxId, enough: u64) -> Result<u64, EngineError>;

    /// Removes whatever belongs to this instance's engine but to none of the `known` sandboxes; returns what it removed.
    async fn sweep(&self, known: &[SandboxId]) -> Result<Vec<String>, EngineError>;

    /// Checks what this engine needs of the host, one by one.
    async fn report(&self) -> EngineReport;
}
