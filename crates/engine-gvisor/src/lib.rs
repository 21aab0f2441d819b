//! The gVisor engine: sandboxes on a kernel of their own that is an ordinary process, by runsc, with the guest as PID 1.
//!
//! Two programs share this crate: the daemon's half ([`GvisorEngine`], feature `daemon`) and the keeper ([`keep`], binary
//! `roost-keep`), which stays as the first process of each sandbox and knows nothing of the daemon.
//!
//! ```text
//! control group, pid, mount and network namespace of the sandbox
//!   keeper       PID 1: starts runsc, reaps, ends when the sentry ends; killing it ends all
//!   sentry       gVisor's kernel; its control socket is /r/runsc-box.sock of the private mount namespace
//!   gofer        opens files of the root
//!   stubs        processes in which the sandbox's own code runs
//! ```
#![forbid(unsafe_code)]

pub mod keep;

#[cfg(feature = "daemon")]
mod bundle;
#[cfg(feature = "daemon")]
mod control;
#[cfg(feature = "daemon")]
mod engine;
#[cfg(feature = "daemon")]
mod keeper;
#[cfg(feature = "daemon")]
mod limits;
#[cfg(feature = "daemon")]
mod memory;
#[cfg(feature = "daemon")]
mod probe;
#[cfg(feature = "daemon")]
mod room;
#[cfg(feature = "daemon")]
mod start;
#[cfg(feature = "daemon")]
mod tool;
#[cfg(feature = "daemon")]
mod work;

#[cfg(feature = "daemon")]
pub use engine::{GvisorConfig, GvisorEngine, OpenError};
