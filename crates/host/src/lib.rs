//! The running system: one actor per sandbox, its effects, the reconciler, templates, events and tokens.
//!
//! Every surface ends here. [`Host`] finds and makes sandboxes; a [`Handle`] is one sandbox. A request's way is
//! `Handle -> actor -> lifecycle::step -> store -> effects -> guest`; no surface talks to an engine, a disk or the store
//! by itself.
#![forbid(unsafe_code)]

mod account;
mod actor;
mod alarms;
mod batches;
mod builds;
mod caller;
mod calls;
mod capabilities;
mod claims;
mod config;
mod convert;
mod create;
mod crontabs;
mod diff;
mod doctor;
mod download;
mod effects;
mod engines;
mod error;
mod events;
mod execs;
mod failpoint;
mod files;
mod find;
mod fork;
mod forwards;
mod guards;
mod guest;
mod handle;
mod heap;
mod history;
mod host;
mod idle;
mod keys;
mod leases;
mod links;
mod memory;
mod moments;
mod moving;
mod open;
mod overview;
mod pool_keeper;
mod pools;
mod ports;
mod processes;
mod queues;
mod replay;
mod room;
mod run;
mod services;
mod sessions;
mod shared;
mod tables;
mod taking;
mod template_paths;
mod templates;
mod tokens;
mod tunnel;
mod uid_ranges;
mod unkept;
mod user_files;
mod view;
mod visitor;
mod why;

pub use batches::BatchReader;
pub use builds::{
    BuildFrom, BuildLevel, BuildLine, BuildPart, BuildPlan, BuildState, BuildStep, BuildView, PlannedStep,
};
pub use caller::Caller;
pub use config::{CapabilityPolicy, HostConfig};
pub use convert::{exec_state, exec_view};
pub use create::CreateKey;
pub use download::{ByteStream, FileDownload};
pub use error::HostError;
pub use events::{EventLog, EventReader};
pub use execs::{ExecAttachment, OutputStart, StdinLine};
pub use files::{BatchStream, FileListing, ReadRange, WatchStream, WriteOptions};
pub use forwards::{Arrived, Listener};
pub use guards::Busy;
pub use guest::{Guest, GuestConnection, GuestSocket, GuestStream};
pub use handle::Handle;
pub use host::{Host, ListFilter};
pub use links::{LINK_PARAMETER, LinkRefusal};
pub use open::{OpenHostError, Parts};
pub use overview::OverviewReader;
pub use ports::{Line, PortStream};
pub use room::ReadMemory;
pub use roost_lifecycle::{MemoryPolicy, MemoryReading};
pub use roost_wire::client::{CallError, ExecFrame, ExecInput, ExecOutput};
pub use roost_wire::{
    Endpoint, EventKind, ExecFilter, ExecInfo, Exit, Gap, LinkEnd, SendSignal, SetAttributes, SignalTarget, Stream,
    WindowSize, parse_signal, signal_name,
};
pub use run::Run;
pub use services::LogAttachment;
pub use sessions::{LOGIN_FRAGMENT, Session};
pub use tables::raise_tables;
pub use templates::BuildProgress;
pub use tunnel::tunnel;
pub use user_files::{Change, ChangeStream, Entry, UserFiles, WatchOptions};
pub use visitor::Visitor;

/// Runs something that blocks where blocking is allowed.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        // The work panicked or the runtime ends; there is no value to go on with.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Carries work to its end even if whoever asked for it leaves in the middle.
pub async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, HostError>> + Send + 'static,
) -> Result<T, HostError> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(HostError::Internal(format!("the work broke off: {error}"))),
    }
}
