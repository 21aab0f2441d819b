//! The native engine: namespaces, control groups and seccomp around an overlay root, with the guest as PID 1.
//!
//! Two programs share this crate: the daemon's half ([`NativeEngine`], feature `daemon`) and the launcher
//! ([`launch`], binary `roost-launch`), which builds a sandbox from the inside and knows nothing of the daemon.
#![forbid(unsafe_code)]

pub mod launch;

#[cfg(feature = "daemon")]
mod engine;
#[cfg(feature = "daemon")]
mod filter;
#[cfg(feature = "daemon")]
mod launcher;
#[cfg(feature = "daemon")]
mod memory;
#[cfg(feature = "daemon")]
mod mother;
#[cfg(feature = "daemon")]
mod probe;
#[cfg(feature = "daemon")]
mod processors;
mod queues;
#[cfg(feature = "daemon")]
mod start;

#[cfg(feature = "daemon")]
pub use engine::{NativeConfig, NativeEngine, OpenError};
