//! The SSH door: `ssh web@host` is a shell in sandbox `web`.
//!
//! A leaf on the host's handles. The name before the `@` says where one goes: a sandbox, `new` for one that is made now, or
//! `roost` for the lobby. A connection is let in by a public key, whose access is that of everything done on it:
//!
//! ```text
//! TCP -> key -> Visitor -> session channel -> exec on a terminal or on pipes       shell, command, sftp, attach
//!                       -> direct-tcpip    -> port, address or socket inside       ssh -L
//!                       <- forwarded-tcpip <- listener inside                      ssh -R
//! ```
//! Processes do not hang on the line: a terminal whose client is gone goes on, and `attach` finds it again.
#![forbid(unsafe_code)]

mod attach;
mod carry;
mod channel;
mod connection;
mod door;
mod forward;
mod host_key;
mod lobby;
mod place;
mod session;
mod words;

pub use door::{Door, serve};
pub use host_key::{HostKeyError, fingerprint, load as load_host_key};
pub use russh::keys::PrivateKey;
