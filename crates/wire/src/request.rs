//! Requests and replies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AnswerFrame, ArchiveIn, ArchiveOut, Chmod, Chown, Connect, CronJob, ExecAttach, ExecId, ExecInfo, ExecList,
    ExecResize, ExecSignal, ExecStart, ExecStdin, FileStat, JoinFiles, KeepWatch, Key, ListDir, ListProcesses, Listen,
    Listening, MakeDir, MovePath, PathOf, ProcessInfo, ProcessSignal, ReadFile, RemovePath, Resumed, ServiceInfo,
    ServiceLog, ServiceName, ServiceSet, ServiceStart, Symlink, TakeArrival, Watch, WatchId, WriteFile,
};

/// First frame of a connection. The guest does not answer it unless it refuses.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The host's [`crate::PROTOCOL`].
    pub protocol: u32,
    /// The sandbox's key.
    pub key: Key,
}

/// What the host asks of a guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Request {
    /// Are you there? [`Reply::Pong`].
    Ping,
    /// Start a process. [`Reply::Exec`], then an attachment if one was asked for.
    ExecStart(ExecStart),
    /// A page of the execs. [`Reply::Execs`]; an empty one is the last.
    ExecList(ExecList),
    /// One exec. [`Reply::Exec`].
    ExecGet(ExecId),
    /// One exec, when it has ended. [`Reply::Exec`].
    ExecWait(ExecId),
    /// Send a signal. [`Reply::Exec`].
    ExecSignal(ExecSignal),
    /// Write standard input. [`Reply::Exec`].
    ExecStdin(ExecStdin),
    /// Change the size of the terminal. [`Reply::Exec`].
    ExecResize(ExecResize),
    /// Forget an exec that has ended. [`Reply::Done`].
    ExecRemove(ExecId),
    /// [`Reply::Exec`], then output, gaps and at last `ExecEnd`.
    ExecAttach(ExecAttach),
    /// [`Reply::Stat`], of a link itself.
    Stat(PathOf),
    /// [`Reply::Stat`] of the folder, then entries.
    List(ListDir),
    /// [`Reply::Stat`] of the file, then its data.
    Read(ReadFile),
    /// Data follows, then [`Reply::Stat`].
    Write(WriteFile),
    /// [`Reply::Stat`].
    MakeDir(MakeDir),
    /// [`Reply::Stat`] of the new path.
    Move(MovePath),
    /// [`Reply::Done`].
    Remove(RemovePath),
    /// [`Reply::Stat`].
    Chmod(Chmod),
    /// [`Reply::Stat`].
    Chown(Chown),
    /// [`Reply::Stat`] of the link.
    Symlink(Symlink),
    /// [`Reply::Link`].
    ReadLink(PathOf),
    /// [`Reply::Stat`], then a tar stream.
    ArchiveOut(ArchiveOut),
    /// A tar stream follows, then [`Reply::Stat`] of the folder.
    ArchiveIn(ArchiveIn),
    /// [`Reply::Stat`] of the result.
    Join(JoinFiles),
    /// [`Reply::Done`] when the watch stands, then events.
    Watch(Watch),
    /// [`Reply::Stat`] of what is watched, when the watch stands; it goes on without a connection.
    KeepWatch(KeepWatch),
    /// [`Reply::Stat`] of what is watched as it was at first, then what has happened since it was last asked for.
    WatchEvents(WatchId),
    /// [`Reply::Done`] when the watch is no more.
    EndWatch(WatchId),
    /// A page of everything that runs inside. [`Reply::Processes`]; an empty one is the last.
    Processes(ListProcesses),
    /// Send a signal to any of them but the guest. [`Reply::Done`].
    ProcessSignal(ProcessSignal),
    /// Listening TCP ports. [`Reply::Ports`].
    Ports(ListPorts),
    /// Connect to a port of the sandbox's own loopback. [`Reply::Done`] when connected; from then on both directions carry
    /// raw bytes until each has ended.
    Dial(Dial),
    /// Connect to something that processes inside can reach. The rest as with [`Request::Dial`].
    Connect(Connect),
    /// Listen inside. [`Reply::Listening`], then arrivals, until the host hangs up.
    Listen(Listen),
    /// Take one that has arrived at a listener. The rest as with [`Request::Dial`].
    TakeArrival(TakeArrival),
    /// [`Reply::Activity`].
    Activity,
    /// From now on these are the services. [`Reply::Done`]; what follows from it goes on afterwards.
    ServicesSet(ServiceSet),
    /// All services. [`Reply::Services`].
    Services,
    /// Have one up. [`Reply::Service`] when it is, when it has ended, or when the time is up.
    ServiceStart(ServiceStart),
    /// [`Reply::Done`] when a service that is not wanted any more has no process.
    ServiceGone(ServiceName),
    /// [`Reply::Exec`], then the log as output and gaps and at last `ExecEnd`.
    ServiceLog(ServiceLog),
    /// What do processes inside ask for? [`Reply::Done`], then calls, each to be answered, until the host hangs up.
    Calls,
    /// The answer to a call whose connection ended before it, or while it was on its way. [`Reply::Done`], also if nobody
    /// waits for it any more.
    Answered(AnswerFrame),
    /// When do crontabs inside have work to do? [`Reply::CronJobs`]; none unless a cron daemon runs.
    CronJobs,
    /// The sandbox has another name, generation, key or environment from now on. [`Reply::Hostname`]; one from
    /// before there was that says [`Reply::Done`].
    SetIdentity(SetIdentity),
    /// Its memory is about to be saved. [`Reply::Done`] when every other connection is closed; then the guest closes this
    /// one too and goes on accepting new ones. Processes notice nothing.
    Quiesce,
    /// It is awake again, perhaps as somebody else. [`Reply::Done`] when its new identity holds and can be seen.
    Resumed(Resumed),
    /// Stop everything. [`Reply::Done`] when all processes are gone and the disk is flushed; then the guest exits.
    Shutdown(Shutdown),
}

/// What the guest answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reply {
    /// It is done.
    Done,
    /// About the guest.
    Pong(GuestInfo),
    /// About one exec.
    Exec(ExecInfo),
    /// About some execs.
    Execs(Vec<ExecInfo>),
    /// About a file.
    Stat(FileStat),
    /// What a symbolic link says.
    Link(String),
    /// Some processes, by pid.
    Processes(Vec<ProcessInfo>),
    /// Listening ports, by number.
    Ports(Vec<ListeningPort>),
    /// About all services, by name.
    Services(Vec<ServiceInfo>),
    /// About one service.
    Service(Box<ServiceInfo>),
    /// When crontabs inside have work to do.
    CronJobs(Vec<CronJob>),
    /// What goes on.
    Activity(Activity),
    /// A listener stands.
    Listening(Listening),
    /// The host name that the kernel has now.
    Hostname(String),
}

/// About the guest itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInfo {
    /// Version of the guest.
    pub version: String,
    /// Its [`crate::PROTOCOL`].
    pub protocol: u32,
    /// Since it started.
    pub uptime_ms: u64,
    /// Generation of the sandbox as the guest knows it.
    pub generation: u64,
}

/// Asks for listening TCP ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPorts {
    /// Find the processes too, which takes longer.
    #[serde(default)]
    pub processes: bool,
}

/// Asks for a connection to a port inside, also one that is open to the sandbox itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dial {
    /// The port.
    pub port: u16,
}

/// A TCP port that something inside listens on; the guest's own is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    /// The port.
    pub port: u16,
    /// The address it is bound to.
    pub address: String,
    /// Who listens.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Name of the process.
    #[serde(default)]
    pub process: Option<String>,
}

/// What goes on inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Execs that have not ended.
    pub running_execs: u32,
    /// Connections attached to an exec.
    pub attached: u32,
    /// CPU time of everything inside that lives or was reaped by the guest, in microseconds.
    pub cpu_us: u64,
    /// Listening TCP ports.
    pub listening_ports: u32,
    /// TCP connections that something inside has open to elsewhere.
    #[serde(default)]
    pub outbound: u32,
    /// Those of them that were talked on last, at most [`Activity::MOST_TALKS`].
    #[serde(default)]
    pub talks: Vec<Talk>,
}

impl Activity {
    /// More connections than this are not told of one by one.
    pub const MOST_TALKS: usize = 32;
}

/// A TCP connection that something inside has open to elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talk {
    /// Address and port of the other end.
    pub peer: String,
    /// How long ago something was sent on it.
    pub said_ms: u64,
    /// How long ago something came in on it.
    pub heard_ms: u64,
    /// Whether it is still being made.
    #[serde(default)]
    pub connecting: bool,
    /// Whether the last word was ours.
    #[serde(default)]
    pub owed: bool,
}

/// A new identity; what is absent stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SetIdentity {
    /// Name of the sandbox.
    #[serde(default)]
    pub name: Option<String>,
    /// Host name inside.
    #[serde(default)]
    pub hostname: Option<String>,
    /// Id of the sandbox.
    #[serde(default)]
    pub id: Option<String>,
    /// Generation of the sandbox.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Key that new connections must bring.
    #[serde(default)]
    pub key: Option<Key>,
    /// Environment of every process that starts from now on.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// Who and where they are unless they say otherwise.
    #[serde(default)]
    pub place: Option<DefaultPlace>,
}

/// Who runs processes and owns files unless a call says otherwise, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefaultPlace {
    /// A name or `uid[:gid]`.
    pub user: String,
    /// Where that user's processes start; its home when absent.
    #[serde(default)]
    pub workdir: Option<String>,
}

/// Stops everything inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shutdown {
    /// How long processes may take after SIGTERM before they are killed.
    #[serde(default)]
    pub grace_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attach, Program};

    #[test]
    fn requests_survive_a_round_trip() {
        let mut start = ExecStart::new("exe_1", Program::Shell("true".into()));
        start.attach = Some(Attach::whole());
        for request in [Request::Ping, Request::ExecStart(start), Request::Shutdown(Shutdown { grace_ms: 5 })] {
            let text = serde_json::to_string(&request).unwrap();
            let back: Request = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&back).unwrap(), text);
        }
    }

    /// Text that a first-version peer sends; must be understood for ever.
    #[test]
    fn text_of_version_one_is_understood() {
        let minimal: Request =
            serde_json::from_str(r#"{"exec_start":{"id":"exe_1","program":{"argv":["ls"]}}}"#).unwrap();
        let Request::ExecStart(start) = minimal else { panic!("{minimal:?}") };
        assert_eq!(start, ExecStart::new("exe_1", Program::Argv(vec!["ls".into()])));
        let newer: Request =
            serde_json::from_str(r#"{"read":{"path":"a","offset":3,"len":null,"colour":"blue"}}"#).unwrap();
        assert!(matches!(newer, Request::Read(ReadFile { offset: 3, len: None, .. })));
        assert!(matches!(serde_json::from_str(r#""ping""#).unwrap(), Request::Ping));
    }
}
