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
//!     |                  | failed: Suspended(its level)                                   ^ stop, gone
//!     |                  v                                                                |
//!     |   Restoring (another moment of it takes its place): killed, disk replaced, started -> Active
//!     |   Moving (to another engine, from active or asleep): killed -> Resuming(files), or Suspended(files) if it slept
//!     v
//!  Terminating -- killed --> Releasing -- released --> Terminated       (terminate: from everywhere)
//! ```
//!
//! The caller persists the new phase before it runs the effects, runs them in order and feeds their outcome back as the
//! next event. Every effect is idempotent, so after a crash [`recover`] names what to do again.
//!
//! A sandbox that waits in a pool is `Suspended(ram)`, or `Active` where nothing can be frozen. Whoever takes it makes it
//! `Creating` again, with everything that was asked for already in its record: what a crash leaves of a take is started
//! anew, like any other birth that was cut off.
//!
//! Who may wake what sleeps, and what its time to live does meanwhile, is decided in [`may_wake`] and [`Clock`].
//!
//! A suspend to disk has one commit point: the phase `Suspended(disk)` is stored when the image is whole, and only then
//! are the frozen processes killed. Before it the sandbox is as it was; after it, it sleeps in its image.
#![forbid(unsafe_code)]

mod cron;
mod depth;
mod end;
mod idle;
mod images;
mod phase;
pub mod pool;
mod pressure;
mod recover;
mod services;
mod stay;
mod step;
mod when;

pub use cron::{Cron, CronError};
pub use depth::{deepens_at, may_save_again, spend};
pub use end::{Aftermath, BREATHER, End, after_end};
pub use idle::{Conversation, Counters, Reason, Sight, Verdict, Window, step_of, verdict};
pub use images::{Admitted, HeldImage, ImageUse, OverBudget, admit_image};
pub use phase::Phase;
pub use pressure::{MemoryPolicy, MemoryReading, Shortage, first_to_deepen, shortage};
pub use recover::{Seen, recover};
pub use services::{LONGEST_STOP, MOST_SERVICES, ServiceError, check_services, stop_time};
pub use stay::{Clock, Waker, at_end_of_ttl, end_of, may_wake};
pub use step::{Effect, Event, Refused, Step, step};
pub use when::{WhenError, moment, zone};
