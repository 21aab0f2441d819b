//! What the host and the guest say to each other.
//!
//! A connection is a byte stream of frames (see [`frame`]). It begins with a [`Hello`] that carries the sandbox's key;
//! then the host sends one [`Request`] at a time and the guest answers with a [`Reply`] or a [`Failure`], for some
//! requests followed by a stream of further frames. When a request has finished cleanly the connection can carry the
//! next one. Nothing is multiplexed: a second stream is a second connection, so that one slow reader cannot hold up
//! another and TCP's own flow control is the back-pressure.
//!
//! Control bodies are JSON. Readers ignore fields they do not know and every field added later has a default, so that
//! an old guest in a saved image and a new host understand each other; [`PROTOCOL`] grows when that is not enough.
#![forbid(unsafe_code)]

mod calls;
mod config;
mod error;
mod exec;
mod files;
mod forward;
pub mod frame;
mod key;
mod patience;
mod process;
mod request;
mod resume;
mod service;
mod signal;

#[cfg(feature = "client")]
pub mod client;

pub use calls::{
    Answer, AnswerFrame, AskAlarm, AskCheckpoint, AskHold, AskRelease, AskSuspend, Call, CallFrame, CronJob, Outcome,
    Refusal,
};
pub use config::{ConfigError, GuestConfig, READY, SpoolLimits};
pub use error::{ErrorCode, Failure};
pub use exec::{
    Attach, ExecAttach, ExecFilter, ExecId, ExecInfo, ExecList, ExecResize, ExecSignal, ExecStart, ExecState,
    ExecStdin, Exit, Gap, Program, ResizeTo, SendSignal, SignalTarget, StartAt, Stream, StreamRange, WindowSize,
};
pub use files::{
    ArchiveIn, ArchiveOut, Chmod, Chown, Entries, EventKind, FileKind, FileStat, JoinFiles, KeepWatch, LinkEnd,
    ListDir, MakeDir, MovePath, PathOf, ReadFile, RemovePath, SetAttributes, StreamEnd, Symlink, Watch, WatchEvent,
    WatchId, WriteFile, WriteHow,
};
pub use forward::{Arrival, Connect, Endpoint, Listen, Listening, TakeArrival};
pub use key::{InvalidKey, Key};
pub use patience::Patience;
pub use process::{ListProcesses, ProcessInfo, ProcessSignal};
pub use request::{
    Activity, DefaultPlace, Dial, GuestInfo, Hello, ListPorts, ListeningPort, Reply, Request, SetIdentity, Shutdown,
    Talk,
};
pub use resume::{Resumed, Why};
pub use service::{
    Restart, Service, ServiceInfo, ServiceLimits, ServiceLog, ServiceName, ServiceSet, ServiceStart, ServiceState,
};
pub use signal::{parse_signal, signal_name};

/// The TCP port of the guest inside its sandbox.
///
/// Privileged, so that no ordinary process of the sandbox can sit on it first; below 512, where programs that look for a
/// free reserved port do not search; and one that was never assigned to a service.
pub const GUEST_PORT: u16 = 14;

/// The version of the conversation that this code speaks.
pub const PROTOCOL: u32 = 1;
