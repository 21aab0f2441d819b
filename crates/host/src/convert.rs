//! From the guest's words to the API's.

use jiff::Timestamp;
use roost_model::{ExecId, ExecState, ExecView, FileKind, FileStat, PortView, Streams, WatchEvent};
use roost_wire as wire;

use crate::HostError;

fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn moment_unsigned(milliseconds: u64) -> Timestamp {
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
    let id: ExecId = info.id.parse().map_err(|error| HostError::Internal(format!("{error}")))?;
    Ok(ExecView {
        id,
        pid: u32::try_from(info.pid).unwrap_or(0),
        argv: info.argv.clone(),
        user: info.user.clone(),
        cwd: info.cwd.clone(),
        pty: info.pty,
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
    PortView { port: port.port, address: port.address, process: port.process }
}

/// Permission bits from octal text.
pub(crate) fn parse_mode(text: &str) -> Result<u32, HostError> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(HostError::BadRequest(format!("`{text}` is not a mode: write octal digits such as 0644"))),
    }
}
