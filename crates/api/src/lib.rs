//! HTTP on the host's handle: `/v1`, its OpenAPI document, events, WebSockets, metrics and access.
//!
//! Handlers are thin: they read a request, ask the [`roost_host::Host`] and put its answer into JSON. Every refusal,
//! also those of the framework, leaves as [`roost_model::ErrorBody`] with a stable code; [`status_of`] is the one table
//! from codes to statuses.
#![forbid(unsafe_code)]

mod admin;
mod alarms;
mod api;
mod archives;
mod attach;
mod auth;
mod batches;
mod body;
mod bridge;
mod checkpoints;
mod errors;
mod events;
mod execs;
mod extract;
mod files;
mod forks;
mod holds;
mod idle;
mod keys;
mod listing;
mod metrics;
mod observe;
mod output;
mod overview;
mod pools;
mod ports;
mod processes;
mod range;
mod router;
mod run;
mod sandboxes;
mod serve;
mod services;
mod session;
mod templates;
mod tls;
mod unread;
mod visit;
mod watch;

pub use api::Api;
pub use errors::status_of;
pub use router::{Access, Beside, openapi, router};
pub use serve::{serve_tcp, serve_unix};
pub use tls::{Tls, TlsError};
