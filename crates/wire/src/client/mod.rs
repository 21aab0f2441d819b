//! The host's side of a connection, over any async byte stream.
//!
//! Every stream hands data on as it comes and reads no further ahead than one frame, so back-pressure reaches from the
//! last consumer to the process or file inside. Dropping a stream or a connection hangs up, which cancels what the
//! guest was doing for it (a process it started goes on).

mod calls;
mod codec;
mod connection;
mod exec;
mod incoming;
mod listen;
mod upload;

pub use calls::Calls;
pub use connection::{CallError, Connection};
pub use exec::{ExecFrame, ExecInput, ExecOutput, ExecStream};
pub use incoming::{EntryStream, FileStream, FromFrame, Incoming, WatchStream};
pub use listen::Arrivals;
