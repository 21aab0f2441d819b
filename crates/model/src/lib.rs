//! Plain data that every room of Roost shares: ids, names, states, limits, policies and the bodies of `/v1`.
//!
//! No I/O lives here. A type that crosses the API derives its schema here too, so that server, client and OpenAPI
//! document cannot drift apart.
#![forbid(unsafe_code)]

mod checkpoint;
mod duration;
mod error;
mod event;
mod exec;
mod file;
mod fork;
mod host;
mod id;
mod limits;
mod name;
mod receipt;
mod sandbox;
mod template;

pub use checkpoint::{
    ChangeKind, CheckpointBytes, CheckpointDiff, CheckpointView, CreateCheckpoint, FileChange, Restore, SavedProcess,
};
pub use duration::{DurationError, Span};
pub use error::{ErrorBody, ErrorCode, ErrorDetail, chain};
pub use event::{Event, EventKind};
pub use exec::{ExecOutput, ExecState, ExecView, SignalExec, StartExec, Streams, TerminalSize};
pub use file::{FileKind, FileList, FileStat, MakeFolder, MoveFile, PatchFile, WatchEvent};
pub use fork::{Fork, ForkError, ForkResult};
pub use host::{
    DoctorCheck, DoctorReport, EngineDoctor, MintToken, NewToken, Page, PortView, RunRequest, Stats, TokenView,
};
pub use id::{CheckpointId, ExecId, IdError, SandboxId, TemplateId, TokenId};
pub use limits::{LimitError, Limits, LimitsRequest};
pub use name::{Name, NameError};
pub use receipt::{NotKept, Operation, Receipt};
pub use sandbox::{
    CreateSandbox, EngineKind, IdlePolicy, Level, NetworkPolicy, Parent, PatchSandbox, SandboxView, State, Suspend,
    Tombstone,
};
pub use template::{ImportTemplate, TemplateDefaults, TemplateView};
