//! E2B's wire, so that its own SDKs work against a Roost host unchanged.
//!
//! A leaf on the same [`roost_host::Host`] as `/v1`: nothing here makes or wakes a sandbox in a way of its own. Requests of
//! E2B's clients are told from Roost's by the layer that [`in_front_of`] puts before a listener's routes:
//!
//! ```text
//! E2b-Sandbox-Id, <port>-<id>.<domain> -> port 49983: envd, other ports: the proxy
//! /files?signature=…                   -> envd of the sandbox whose token signed it
//! /sandboxes, /v2/sandboxes, /templates, … -> control plane, by X-API-KEY
//! everything else                      -> /v1
//! ```
#![forbid(unsafe_code)]

mod control;
mod e2b;
mod envd;
mod error;
mod front;
mod ports;
mod route;
mod templates;
mod token;
mod usage;

pub use e2b::E2b;
pub use front::in_front_of;
