//! Plain data that every room of Roost shares: ids, names, states, limits, policies and the bodies of `/v1`.
//!
//! No I/O lives here. A type that crosses the API derives its schema here too, so that server, client and OpenAPI
//! document cannot drift apart.
#![forbid(unsafe_code)]

mod access;
mod batch;
mod capability;
mod checkpoint;
mod duration;
mod error;
mod event;
mod exec;
mod file;
mod fork;
mod history;
mod host;
mod id;
mod idle;
mod key;
mod lease;
mod limits;
mod name;
mod page;
mod pool;
mod port;
mod process;
mod receipt;
mod sandbox;
mod service;
mod tag;
mod template;
pub mod words;

pub use access::{Access, AccessError, Reach, Refused, Subject};
pub use batch::{
    BatchError, BatchState, BatchView, CreateBatch, MOST_PARALLEL, MOST_RETRIES, MOST_TASKS, Task, TaskCommand,
    TaskFile, TaskResult, check_tasks,
};
pub use capability::Capability;
pub use checkpoint::{
    ChangeKind, CheckpointBytes, CheckpointDiff, CheckpointView, CreateCheckpoint, FileChange, Restore, SavedProcess,
};
pub use duration::{DurationError, Span};
pub use error::{ErrorBody, ErrorCode, ErrorDetail, chain};
pub use event::{Event, EventKind};
pub use exec::{ExecOutput, ExecState, ExecView, SignalExec, StartExec, Streams, TerminalSize};
pub use file::{FileKind, FileList, FileStat, MakeFolder, MoveFile, PatchFile, WatchEvent};
pub use fork::{Fork, ForkError, ForkResult};
pub use history::{UsageHistory, UsageStep};
pub use host::{
    DoctorCheck, DoctorReport, Doctoring, EngineAbilities, EngineDoctor, EngineFigures, MintToken, NewToken, Page,
    RunRequest, Stats, TokenView,
};
pub use id::{BatchId, CheckpointId, ExecId, IdError, KeyId, SandboxId, TemplateId, TokenId};
pub use idle::{
    IdlePolicy, IdleRequest, Keeper, LedgerEntry, LedgerKind, Signal, Spent, UsageReport, UsageView, WhyView,
};
pub use key::{AddKey, KeyView, SshView};
pub use lease::{Alarm, Hold, Origin, PutAlarm, PutHold};
pub use limits::{LimitError, Limits, LimitsRequest};
pub use name::{Name, NameError};
pub use page::{LogIn, LoginLink, OverviewChange, OverviewRow, SessionView};
pub use pool::{PoolView, SetPool};
pub use port::{
    Domain, DomainError, MakeLink, PortAccess, PortError, PortLink, PortRule, PortView, SetPort, parse_port,
};
pub use process::{ProcessList, ProcessState, ProcessView};
pub use receipt::{NotKept, Operation, Receipt};
pub use sandbox::{
    CreateSandbox, EngineChoice, EngineKind, Level, MoveSandbox, NetworkPolicy, OnTtl, Parent, PatchSandbox,
    SandboxView, State, Suspend, Tombstone,
};
pub use service::{LogRange, RestartPolicy, ServiceExit, ServiceSpec, ServiceState, ServiceView, StartPolicy};
pub use tag::{Tag, TagError, TemplateRef, TemplateRefError, TemplateTag};
pub use template::{ImportTemplate, PatchTemplate, TemplateDefaults, TemplateView};
