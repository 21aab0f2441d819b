//! Typed client of `/v1`, over the daemon's unix socket or over HTTP with a token.
//!
//! ```no_run
//! # async fn example() -> Result<(), roost_client::ClientError> {
//! let client = roost_client::Client::from_env()?;
//! let sandbox = client.create_sandbox(&roost_model::CreateSandbox::default()).await?;
//! let exec = roost_model::StartExec { shell: Some("uname -a".to_owned()), ..Default::default() };
//! let done = client.run_exec(sandbox.name.as_str(), &exec).await?;
//! assert_eq!(done.exit_code, 0);
//! client.delete_sandbox(sandbox.name.as_str()).await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod address;
mod answer;
mod batches;
mod body;
mod checkpoints;
mod client;
mod connector;
mod daemon;
mod error;
mod events;
mod execs;
mod files;
mod follow;
mod keys;
mod leases;
mod mcp;
mod pools;
mod ports;
mod processes;
mod route;
mod sandboxes;
mod services;
mod session;
mod sse;
mod templates;
mod tls;

pub use batches::BatchResults;
pub use body::{Download, Upload};
pub use checkpoints::NewCheckpoint;
pub use client::Client;
pub use daemon::{DaemonInfo, Health};
pub use error::ClientError;
pub use events::{EventStream, EventsFilter, WatchStream};
pub use files::WriteOptions;
pub use follow::{FollowedExec, FollowedInput};
pub use ports::Tunnel;
pub use sandboxes::SandboxFilter;
pub use session::{ExecEvent, ExecInput, ExecSession, Offsets, OutputStream};
pub use templates::{TemplateProgress, TemplateStream, TemplateUpload};

/// Where the daemon listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/roost/roost.sock";
