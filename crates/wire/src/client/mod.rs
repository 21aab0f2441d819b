//! The host's side of a connection, over any async byte stream.
//!
//! Every stream hands data on as it comes and reads no further ahead than one frame, so back-pressure reaches from the
//! last consumer to the process or file inside. Dropping a stream or a connection hangs up, which cancels what the
//! guest was doing for it (a process it started goes on).
//!
//! The guest is hostile: root inside can stop it and answer in its place. A frame is bounded by [`crate::frame`], a buffer
//! grows with the bytes that arrive, a reply and a frame have a time ([`crate::Patience`]), and a call that collects many
//! frames counts them ([`Bounded`]).

mod bounds;
mod calls;
mod codec;
mod connection;
mod exec;
mod forward;
mod incoming;
#[cfg(test)]
mod liar;
mod listen;
mod upload;

pub use bounds::{Bounded, Held, Limits, Room};
pub use calls::Calls;
pub use connection::{CallError, Connection};
pub use exec::{ExecFrame, ExecInput, ExecOutput, ExecStream};
pub use incoming::{EntryStream, FileStream, FromFrame, Incoming, WatchStream};
pub use listen::Arrivals;
