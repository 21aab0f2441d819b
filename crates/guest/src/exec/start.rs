//! Starting a process: who it is, where it starts, what it sees, and the pipes or the terminal between it and us.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use roost_sys::spawn::{SpawnError, SpawnSpec};
use roost_wire::{ErrorCode, ExecStart, Failure, Program, WindowSize};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};

use super::attach::Attachment;
use super::input::Input;
use super::kept::Kept;
use super::pump::{Pump, launch};
use super::spool::Spool;
use super::table::Reserved;
use super::{Exec, State, now_ms, set_window_size};
use crate::failure::{bad_request, failed};
use crate::guest::Guest;
use crate::users::{User, Users};
use crate::wake::{Wake, lock};

/// Where programs are looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Holds our own command. It comes last in every search path that a caller has not given itself: nothing is written to
/// the sandbox's disk for it, and everything of the sandbox's goes before it.
const OWN_FOLDER: &str = "/run/roost/bin";
/// How much of a command line is remembered, and how much of an environment.
const ARGV_SHOWN: usize = 1024;
const ENV_SHOWN: usize = 1024;
/// The longest tag.
const LONGEST_TAG: usize = 256;

/// The two sides of a process's standard input, output and error.
struct Channels {
    /// For the process.
    inner: [OwnedFd; 3],
    /// For the pump; none blocks.
    outputs: Vec<Arc<OwnedFd>>,
    /// For whoever writes standard input; does not block.
    input: Option<Arc<OwnedFd>>,
}

/// Starts a process, or finds the one that was started under the same id, and attaches if that was asked for.
pub(crate) fn start(guest: &Arc<Guest>, request: &ExecStart) -> Result<(Arc<Exec>, Option<Attachment>), Failure> {
    let reservation = match guest.execs.reserve(&request.id)? {
        Reserved::New(reservation) => reservation,
        Reserved::Existing(exec) => {
            let attachment = request.attach.as_ref().map(|attach| Attachment::new(&exec, attach)).transpose()?;
            return Ok((exec, attachment));
        }
    };
    let (exec, attachment) = start_unlisted(guest, request)?;
    reservation.fulfil(&exec);
    Ok((exec, attachment))
}

/// Starts a process that only the caller knows.
pub(crate) fn start_unlisted(
    guest: &Arc<Guest>,
    request: &ExecStart,
) -> Result<(Arc<Exec>, Option<Attachment>), Failure> {
    start_with(guest, request, None)
}

/// Starts a process that only the caller knows, and whose output, both streams in one, goes into a log.
pub(crate) fn start_into(guest: &Arc<Guest>, request: &ExecStart, log: Arc<Exec>) -> Result<Arc<Exec>, Failure> {
    start_with(guest, request, Some(log)).map(|(exec, _)| exec)
}

fn start_with(
    guest: &Arc<Guest>,
    request: &ExecStart,
    sink: Option<Arc<Exec>>,
) -> Result<(Arc<Exec>, Option<Attachment>), Failure> {
    guest.namer.retire();
    let user = Users::load().find(request.user.as_deref().unwrap_or(&guest.default_place().user))?;
    let cwd = working_folder(guest, request, &user)?;
    let argv = match &request.program {
        Program::Argv(argv) => argv.clone(),
        Program::Shell(line) => {
            let own = Some(&user.shell).filter(|shell| request.login && Path::new(shell).exists());
            vec![own.map_or("/bin/sh", String::as_str).to_owned(), "-c".to_owned(), line.clone()]
        }
    };
    let Some(program) = argv.first() else { return Err(bad_request("argv is empty")) };
    if request.tag.as_ref().is_some_and(|tag| tag.len() > LONGEST_TAG) {
        return Err(bad_request(format!("a tag has at most {LONGEST_TAG} bytes")));
    }
    let env = environment(guest, request, &user);
    let channels = match request.pty {
        Some(size) => terminal(size, &user),
        None if sink.is_some() => one_pipe(),
        None => pipes(request.stdin),
    }
    .map_err(|error| failed("make the process's pipes", &error.into()))?;

    let spec = SpawnSpec {
        candidates: candidates(program, env.get("PATH").map(String::as_str))?,
        argv: argv.iter().map(|argument| c_string(argument)).collect::<Result<_, _>>()?,
        env: env.iter().map(|(name, value)| c_string(&format!("{name}={value}"))).collect::<Result<_, _>>()?,
        cwd: c_string(&cwd)?,
        uid: user.uid,
        gid: user.gid,
        groups: user.groups.clone(),
        stdio: channels.inner.each_ref().map(AsFd::as_fd),
        oom_score: c_string(&guest.child_oom_score.to_string())?,
        terminal: request.pty.is_some(),
        lend_memory: guest.config.lends_memory,
    };
    let limits = &guest.config.spool;
    let spool = |stream| {
        let path = Path::new(&guest.config.spool_dir).join(format!("{}.{stream}", request.id));
        Kept::Spool(Spool::new(path, limits.memory, limits.file))
    };
    let exec = Arc::new(Exec {
        id: request.id.clone(),
        argv: shown(&argv),
        user: user.name.clone(),
        cwd: cwd.clone(),
        tag: request.tag.clone(),
        env: shown_env(&request.env),
        pty: request.pty.is_some(),
        started_at_ms: now_ms(),
        pid: AtomicI32::new(0),
        pump: Wake::new().map_err(|error| failed("make a doorbell", &error))?,
        sink,
        state: Mutex::new(State::new([spool("stdout"), spool("stderr")], Input::new(channels.input))),
    });
    // Before the first byte can come, so that a reader that wants everything gets everything.
    let attachment = request.attach.as_ref().map(|attach| Attachment::new(&exec, attach)).transpose()?;

    let mut children = lock(&guest.execs.children);
    let forked = spec.fork().map_err(|error| refusal(program, &cwd, &error))?;
    exec.pid.store(forked.pid, Ordering::Release);
    children.insert(forked.pid, exec.clone());
    drop(children);
    let executed = forked.executed().map_err(|error| refusal(program, &cwd, &error));
    drop(spec);
    drop(channels.inner);
    executed?;

    let timeout = request.timeout_ms.map(Duration::from_millis);
    if let Err(error) = launch(Pump::new(guest.clone(), exec.clone(), channels.outputs, timeout)) {
        const KILL: i32 = 9;
        guest.execs.signal(&exec, KILL, roost_wire::SignalTarget::Session).ok();
        return Err(failed("start the thread of a new process", &error));
    }
    Ok((exec, attachment))
}

fn working_folder(guest: &Guest, request: &ExecStart, user: &User) -> Result<String, Failure> {
    let base = guest.base_folder(user, request.user.as_deref());
    match &request.cwd {
        Some(cwd) => Ok(crate::paths::resolve(cwd, &base, Path::new(&user.home))?.to_string_lossy().into_owned()),
        // Only a folder that was asked for by name has to exist.
        None if base.is_dir() => Ok(base.to_string_lossy().into_owned()),
        None => Ok("/".to_owned()),
    }
}

fn environment(guest: &Guest, request: &ExecStart, user: &User) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if !request.clear_env {
        let mut set = |name: &str, value: &str| drop(env.insert(name.to_owned(), value.to_owned()));
        set("PATH", DEFAULT_PATH);
        set("HOME", &user.home);
        set("USER", &user.name);
        set("LOGNAME", &user.name);
        set("SHELL", &user.shell);
        if request.pty.is_some() {
            set("TERM", "xterm-256color");
        }
        let identity = guest.identity.read().unwrap_or_else(PoisonError::into_inner);
        env.extend(identity.env.clone());
        env.entry("PATH".to_owned()).and_modify(|path| path.extend([":", OWN_FOLDER]));
    }
    env.extend(request.env.clone());
    env
}

fn candidates(program: &str, path: Option<&str>) -> Result<Vec<CString>, Failure> {
    if program.is_empty() {
        return Err(Failure::new(ErrorCode::CommandNotFound, "command is empty"));
    }
    if program.contains('/') {
        return Ok(vec![c_string(program)?]);
    }
    let folders = path.unwrap_or(DEFAULT_PATH).split(':');
    let join = |folder: &str| c_string(&format!("{}/{program}", if folder.is_empty() { "." } else { folder }));
    folders.map(join).collect()
}

fn c_string(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| bad_request("a command line or environment contains a NUL byte"))
}

/// The command line as it is shown: whole if short, cut otherwise.
pub(crate) fn shown(argv: &[String]) -> Vec<String> {
    let mut room = ARGV_SHOWN;
    let mut shown = Vec::new();
    for argument in argv {
        if argument.len() > room {
            let cut = (0..=room).rev().find(|at| argument.is_char_boundary(*at)).unwrap_or(0);
            shown.push(format!("{}…", argument.get(..cut).unwrap_or_default()));
            break;
        }
        room -= argument.len();
        shown.push(argument.clone());
    }
    shown
}

/// What is remembered of a caller's environment: variables as long as there is room, none of them cut.
fn shown_env(env: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut room = ENV_SHOWN;
    let mut fits = |name: &String, value: &String| match room.checked_sub(name.len() + value.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    env.iter().filter(|(name, value)| fits(name, value)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn pipes(stdin: bool) -> rustix::io::Result<Channels> {
    let (output, inner_output) = pipe_with(PipeFlags::CLOEXEC)?;
    let (error, inner_error) = pipe_with(PipeFlags::CLOEXEC)?;
    let (inner_input, input) = if stdin {
        let (inner, outer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(&outer, OFlags::NONBLOCK)?;
        (inner, Some(Arc::new(outer)))
    } else {
        (null()?, None)
    };
    for output in [&output, &error] {
        rustix::fs::fcntl_setfl(output, OFlags::NONBLOCK)?;
    }
    Ok(Channels {
        inner: [inner_input, inner_output, inner_error],
        outputs: vec![Arc::new(output), Arc::new(error)],
        input,
    })
}

/// No input, and one pipe for both outputs, so that lines keep their order.
fn one_pipe() -> rustix::io::Result<Channels> {
    let (output, inner_output) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK)?;
    let inner_error = rustix::io::fcntl_dupfd_cloexec(&inner_output, 3)?;
    Ok(Channels { inner: [null()?, inner_output, inner_error], outputs: vec![Arc::new(output)], input: None })
}

/// An input that has nothing.
fn null() -> rustix::io::Result<OwnedFd> {
    // Somebody inside may have removed the node; as PID 1 the guest itself was born with one as its input.
    rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .or_else(|_| rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3))
}

fn terminal(size: WindowSize, user: &User) -> rustix::io::Result<Channels> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let inner = ioctl_tiocgptpeer(&master, flags).or_else(|error| other_end_by_name(&master, error))?;
    set_window_size(&master, size)?;
    // The user must be able to open its own terminal again by name, as `ssh` and `sudo` do.
    rustix::fs::fchown(&inner, Some(rustix::fs::Uid::from_raw(user.uid)), None)?;
    rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK)?;
    let copy = || rustix::io::fcntl_dupfd_cloexec(&inner, 0);
    let inner = [copy()?, copy()?, copy()?];
    let master = Arc::new(master);
    Ok(Channels { inner, outputs: vec![master.clone()], input: Some(master) })
}

/// For kernels that cannot open the other end without its name, as gVisor's.
fn other_end_by_name(master: &OwnedFd, refused: Errno) -> rustix::io::Result<OwnedFd> {
    if refused != Errno::NOTTY {
        return Err(refused);
    }
    let name = ptsname(master, Vec::new())?;
    rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// Says what went wrong in the words of a shell.
fn refusal(program: &str, cwd: &str, error: &SpawnError) -> Failure {
    match error {
        SpawnError::Chdir(source) => {
            let code = match Errno::from_io_error(source) {
                Some(Errno::ACCESS | Errno::PERM) => ErrorCode::PermissionDenied,
                _ => ErrorCode::CwdNotFound,
            };
            Failure::new(code, format!("failed to enter the working folder `{cwd}`: {source}"))
        }
        SpawnError::Exec(source) => match Errno::from_io_error(source) {
            Some(Errno::NOENT | Errno::NOTDIR) => {
                Failure::new(ErrorCode::CommandNotFound, format!("command `{program}` not found"))
            }
            Some(Errno::TOOBIG) => bad_request("arguments and environment are too long"),
            Some(Errno::NOMEM | Errno::AGAIN) => failed(format_args!("execute `{program}`"), source),
            _ => Failure::new(ErrorCode::NotExecutable, format!("command `{program}` cannot be executed: {source}")),
        },
        SpawnError::Fork(source) => failed("make a new process", source),
        SpawnError::Setup(source) => failed("set a new process up", source),
        other => crate::failure::internal(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_the_given_path() {
        let paths = |program: &str, path: Option<&str>| {
            let found = candidates(program, path).unwrap();
            found.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(paths("ls", Some("/a::/b")), ["/a/ls", "./ls", "/b/ls"]);
        assert_eq!(paths("./ls", Some("/a")), ["./ls"]);
        assert_eq!(paths("ls", None).len(), 6);
        assert_eq!(candidates("", None).unwrap_err().code, ErrorCode::CommandNotFound);
        assert_eq!(candidates("a\0b", None).unwrap_err().code, ErrorCode::BadRequest);
    }

    #[test]
    fn what_is_too_long_of_an_environment_is_left_out() {
        let long = "x".repeat(ENV_SHOWN);
        let env =
            BTreeMap::from([("A", "1"), ("B", long.as_str()), ("C", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(shown_env(&env).into_keys().collect::<Vec<_>>(), ["A", "C"]);
    }

    #[test]
    fn long_command_lines_are_cut_between_characters() {
        let long = "é".repeat(2000);
        let cut = shown(&["echo".to_owned(), long, "never".to_owned()]);
        assert_eq!(cut.len(), 2);
        assert!(cut[1].len() <= ARGV_SHOWN + 3 && cut[1].ends_with('…'));
    }
}
