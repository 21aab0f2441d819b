//! Decisions about a sandbox's life, without any I/O.
//!
//! ```text
//!             started                 stop, gone
//!  Creating ----------> Active ---------------------> Suspending(files)
//!     |                   ^                              |          |
//!     |           started |                       killed |          | killed, a wake had come meanwhile
//!     |                   |                              v          |
//!     | failed         Resuming <--------------- Suspended(files)   |
//!     |                   ^  |        wake               ^          |
//!     |                   |  | failed -> Suspending(files)          |
//!     |                   +-----------------------------------------+
//!     v
//!  Terminating -- killed --> Releasing -- released --> Terminated       (terminate: from everywhere)
//! ```
//!
//! The caller persists the new phase before it runs the effects, runs them in order and feeds their outcome back as the
//! next event. Every effect is idempotent, so after a crash [`recover`] names what to do again.
#![forbid(unsafe_code)]

mod phase;
mod recover;
mod step;

pub use phase::Phase;
pub use recover::{Seen, recover};
pub use step::{Effect, Event, Refused, Step, step};
