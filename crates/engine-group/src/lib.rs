//! What engines share whose sandboxes are processes of this host: each is a control group with a first process in it.
//!
//! The first process is PID 1 of a pid namespace, so its end is the end of them all. Both are found by the sandbox's id, by
//! whichever daemon looks. The other half is for the programs that bring such a sandbox into being: what they and the daemon
//! say to each other over a socket.
#![forbid(unsafe_code)]

mod frame;
mod steps;
mod tracing_scope;

#[cfg(feature = "daemon")]
mod conversation;
#[cfg(feature = "daemon")]
mod groups;
#[cfg(feature = "daemon")]
mod reserve;
#[cfg(feature = "daemon")]
mod versions;
#[cfg(feature = "daemon")]
mod watch;

pub use frame::{Frame, read_exact, send_with};
#[cfg(feature = "daemon")]
pub use steps::step_failed;
pub use steps::{is_full, with_causes};
pub use tracing_scope::tracing_allowed;

#[cfg(feature = "daemon")]
pub use conversation::{Heard, Wire};
#[cfg(feature = "daemon")]
pub use groups::{Groups, PrepareError, blocking, group_limits, to_the_end};
#[cfg(feature = "daemon")]
pub use reserve::{Maker, Reserve, Spare};
#[cfg(feature = "daemon")]
pub use versions::version_of;
#[cfg(feature = "daemon")]
pub use watch::{First, Watcher};
