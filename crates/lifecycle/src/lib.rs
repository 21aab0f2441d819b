//! Decisions about a sandbox's life, without any I/O.
//!
//! ```text
//!             started              suspend(ram)                frozen
//!  Creating ----------> Active -------------------> Suspending ------> Suspended(ram) --+
//!     |                  ^  ^                         |    |                            | suspend(disk)
//!     |          started |  | not saved, not frozen   |    | saved                      v
//!     |                  |  +-------------------------+    +-----> Suspended(disk) <- Deepening --> back to ram if
//!     |               Resuming <------- wake ------------------------+   |              saved        it cannot be saved
//!     | failed           |  ^                                            | suspend(files)
//!     |                  |  +------- wake ------- Suspended(files) <-----+  <- killed - Suspending(files)
//!     |                  | failed: Suspending(its level)                                  ^ stop, gone
//!     |                  v                                                                |
//!     |   Restoring (another moment of it takes its place): killed, disk replaced, started -> Active
//!     v
//!  Terminating -- killed --> Releasing -- released --> Terminated       (terminate: from everywhere)
//! ```
//!
//! The caller persists the new phase before it runs the effects, runs them in order and feeds their outcome back as the
//! next event. Every effect is idempotent, so after a crash [`recover`] names what to do again.
//!
//! A suspend to disk has one commit point: the phase `Suspended(disk)` is stored when the image is whole, and only then
//! are the frozen processes killed. Before it the sandbox is as it was; after it, it sleeps in its image.
#![forbid(unsafe_code)]

mod phase;
mod recover;
mod step;

pub use phase::Phase;
pub use recover::{Seen, recover};
pub use step::{Effect, Event, Refused, Step, step};
