//! From the guest's words to the API's.

use jiff::Timestamp;
use roost_model::{
    ExecId, ExecState, ExecView, FileKind, FileStat, LogRange, Name, PortAccess, PortView, RestartPolicy, ServiceExit,
    ServiceState, ServiceView, StartPolicy, Streams, WatchEvent,
};
use roost_store::{SandboxRecord, ServiceRecord, ServiceRecords};
use roost_wire as wire;

use crate::HostError;

fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn moment_unsigned(milliseconds: u64) -> Timestamp {
    moment(i64::try_from(milliseconds).unwrap_or(0))
}

/// How far an exec has come.
pub fn exec_state(state: &wire::ExecState) -> ExecState {
    match state {
        wire::ExecState::Running => ExecState::Running,
        wire::ExecState::Exited(exit) => ExecState::Exited {
            exit_code: exit.shell_code(),
            signal: exit.signal,
            timed_out: exit.timed_out,
            at: moment_unsigned(exit.at_ms),
        },
    }
}

/// An exec as the API shows it.
pub fn exec_view(info: &wire::ExecInfo) -> Result<ExecView, HostError> {
    let id: ExecId = info.id.parse().map_err(|_| {
        let message = "the guest named a process whose id is none".to_owned();
        HostError::GuestReply { too_large: false, message }
    })?;
    Ok(ExecView {
        id,
        pid: u32::try_from(info.pid).unwrap_or(0),
        argv: info.argv.clone(),
        user: info.user.clone(),
        cwd: info.cwd.clone(),
        pty: info.pty,
        tag: info.tag.clone(),
        started_at: moment_unsigned(info.started_at_ms),
        status: exec_state(&info.state),
        output: Streams {
            stdout_start: info.stdout.start,
            stdout_end: info.stdout.end,
            stderr_start: info.stderr.start,
            stderr_end: info.stderr.end,
        },
    })
}

pub(crate) fn file_stat(stat: wire::FileStat) -> FileStat {
    let name = stat.path.rsplit('/').next().unwrap_or_default();
    FileStat {
        name: if name.is_empty() { "/".to_owned() } else { name.to_owned() },
        kind: match stat.kind {
            wire::FileKind::File => FileKind::File,
            wire::FileKind::Directory => FileKind::Folder,
            wire::FileKind::Symlink => FileKind::Symlink,
            wire::FileKind::Other => FileKind::Other,
        },
        size: stat.size,
        mode: format!("{:04o}", stat.mode & 0o7777),
        uid: stat.uid,
        gid: stat.gid,
        modified_at: moment(stat.modified_ms),
        target: stat.target,
        path: stat.path,
    }
}

pub(crate) fn watch_event(event: wire::WatchEvent) -> WatchEvent {
    let kind = match event.kind {
        wire::EventKind::Created => "created",
        wire::EventKind::Modified => "modified",
        wire::EventKind::Removed => "removed",
        wire::EventKind::Moved => "moved",
        wire::EventKind::Attrib => "attributes",
        wire::EventKind::Overflow => "overflow",
    };
    WatchEvent { kind: kind.to_owned(), path: event.path, is_folder: event.is_dir, moved_from: event.moved_from }
}

pub(crate) fn port_view(port: wire::ListeningPort) -> PortView {
    PortView {
        port: port.port,
        address: Some(port.address),
        process: port.process,
        url: None,
        access: PortAccess::default(),
    }
}

/// Who runs what names nobody in a sandbox, and where.
pub(crate) fn default_place(record: &SandboxRecord) -> wire::DefaultPlace {
    wire::DefaultPlace { user: record.user.clone(), workdir: record.workdir.clone() }
}

/// All services, in the guest's words.
pub(crate) fn service_set(records: &ServiceRecords) -> wire::ServiceSet {
    let services = records.by_name.iter().map(|(name, record)| service(name, record)).collect();
    wire::ServiceSet { revision: records.revision, services }
}

fn service(name: &Name, record: &ServiceRecord) -> wire::Service {
    let spec = &record.spec;
    let timeout = spec.stop_timeout.get().unwrap_or(roost_lifecycle::LONGEST_STOP).as_millis();
    wire::Service {
        name: name.to_string(),
        program: match &spec.shell {
            Some(line) => wire::Program::Shell(line.clone()),
            None => wire::Program::Argv(spec.argv.clone()),
        },
        env: spec.env.clone(),
        cwd: spec.cwd.clone(),
        user: spec.user.clone(),
        port: spec.port,
        needs: spec.needs.iter().map(ToString::to_string).collect(),
        restart: match spec.restart {
            RestartPolicy::Always => wire::Restart::Always,
            RestartPolicy::OnFailure => wire::Restart::OnFailure,
            RestartPolicy::Never => wire::Restart::Never,
        },
        on_demand: spec.start == StartPolicy::OnDemand,
        stopped: record.stopped,
        stop_timeout_ms: u64::try_from(timeout).unwrap_or(u64::MAX),
    }
}

/// A service of a sandbox that is awake; without a word of its guest's, one that is about to start.
pub(crate) fn service_view(name: &Name, record: &ServiceRecord, info: Option<&wire::ServiceInfo>) -> ServiceView {
    let Some(info) = info else {
        let state = if record.stopped { ServiceState::Stopped } else { ServiceState::Starting };
        return ServiceView { state, ..asleep_service(name, record) };
    };
    ServiceView {
        name: name.clone(),
        state: match info.state {
            wire::ServiceState::Running => ServiceState::Running,
            wire::ServiceState::Starting => ServiceState::Starting,
            wire::ServiceState::Backoff => ServiceState::Backoff,
            wire::ServiceState::Stopped => ServiceState::Stopped,
            wire::ServiceState::Failed => ServiceState::Failed,
        },
        pid: info.pid.and_then(|pid| u32::try_from(pid).ok()),
        since: Some(moment_unsigned(info.since_ms)),
        restarts: info.restarts,
        last_exit: info.last_exit.map(|exit| ServiceExit {
            exit_code: exit.shell_code(),
            signal: exit.signal,
            at: moment_unsigned(exit.at_ms),
        }),
        reason: info.reason.clone(),
        log: LogRange { start: info.log.start, end: info.log.end },
        spec: record.spec.clone(),
    }
}

/// A service of a sandbox that sleeps.
pub(crate) fn asleep_service(name: &Name, record: &ServiceRecord) -> ServiceView {
    ServiceView {
        name: name.clone(),
        state: if record.stopped { ServiceState::Stopped } else { ServiceState::Suspended },
        pid: None,
        since: None,
        restarts: 0,
        last_exit: None,
        reason: None,
        log: LogRange::default(),
        spec: record.spec.clone(),
    }
}

/// Permission bits from octal text.
pub(crate) fn parse_mode(text: &str) -> Result<u32, HostError> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(HostError::BadRequest(format!("`{text}` is not a mode: write octal digits such as 0644"))),
    }
}
