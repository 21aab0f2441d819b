//! From the first instruction to the last: configuration, listening, signals.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use roost_sys::process::limit_bounding_set;
use roost_sys::spawn;
use roost_wire::{ConfigError, GuestConfig, READY};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::calls::inside;
use crate::guest::{Guest, small_thread};
use crate::machine::{GROUPS, Machine};
use crate::name::Namer;
use crate::{boot_id, serve, shutdown};

/// The descriptor that the engine passes.
const STARTUP_FD: i32 = 3;
/// Low enough that a process inside is taken first, where the kernel lets us say so.
const OWN_OOM_SCORE: &str = "-900";
/// Added for what we start where it does not.
const CHILD_OOM_EXTRA: i32 = 200;
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

const SIGNAL_TERM: i32 = 15;
const SIGNAL_CHILD: i32 = 17;
/// How a thread of ours tells the first one to return. Not reachable from outside without being obeyed by anyone else.
pub(crate) const SIGNAL_FINISH: i32 = 12;

/// Why the guest cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("failed to take descriptor {STARTUP_FD}: {0}")]
    Startup(#[source] io::Error),
    #[error("failed to read the configuration: {0}")]
    ReadConfig(#[source] io::Error),
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("failed to listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    #[error("failed to set {what} up: {source}")]
    SetUp { what: &'static str, source: io::Error },
}

/// Runs the guest until it is told to stop.
///
/// An engine with a kernel for each sandbox starts a `privileged` one, which sets up of that kernel what only it can and
/// gives the privilege up. If the sandbox was made before anybody knew its name it is `nameless`, too: the engine's descriptor
/// is then the standard output, and the name is ours to set.
pub(crate) fn run(words: &[String]) -> Result<(), InitError> {
    let told = |wanted: &str| words.iter().any(|word| word == wanted);
    let (privileged, nameless) = (told("privileged"), told("nameless"));
    let set_up = |what| move |source| InitError::SetUp { what, source };
    let startup = if nameless { taken_stdout() } else { spawn::inherited_fd(STARTUP_FD) };
    let startup = startup.map_err(InitError::Startup)?;
    spawn::keep_heap_small();
    spawn::block_signals().map_err(set_up("signals"))?;
    let mut startup = fs::File::from(startup);
    let config = read_config(&mut startup)?;
    if nameless {
        rustix::system::sethostname(config.hostname.as_bytes())
            .map_err(|error| set_up("the host name")(error.into()))?;
    }
    let mut namer = Namer::default();
    if privileged {
        // A sandbox with that of its kernel lives on; it is only the same in forks.
        if let Err(error) = boot_id::show(Path::new(&config.run_dir)) {
            eprintln!("roost-guest: failed to show a boot id: {error}");
        }
        if config.waits {
            namer = Namer::start().map_err(set_up("a thread"))?;
        }
        give_up_privilege().map_err(set_up("privileges"))?;
    }
    // Orphans come to PID 1 by themselves; elsewhere they have to be asked for.
    let own_pid = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own_pid)).map_err(|error| set_up("the reaper")(error.into()))?;
    // Files of an earlier life of this disk; nothing refers to them.
    roost_sys::tree::remove(Path::new(&config.spool_dir)).ok();

    let listener =
        TcpListener::bind(config.listen).map_err(|source| InitError::Listen { address: config.listen, source })?;
    // A connection that is gone before it is accepted must not hold up the others.
    listener.set_nonblocking(true).map_err(set_up("the listener"))?;
    let guest = Arc::new(Guest::new(config, namer, settle_oom_scores()));
    let acceptor = guest.clone();
    // A sandbox without it lives on; it only cannot speak for itself.
    let inside = inside::open(&guest.config.run_dir)
        .inspect_err(|error| eprintln!("roost-guest: failed to listen inside: {error}"))
        .ok();
    // A sandbox without the files lives on; programs inside take the host for their machine.
    let machine = Machine::open(Path::new(&guest.config.run_dir), Path::new(GROUPS))
        .inspect_err(|error| eprintln!("roost-guest: failed to describe the machine: {error}"))
        .ok()
        .flatten();
    let accept = move || serve::accept(&acceptor, &listener, inside.as_ref(), machine);
    small_thread("accept").spawn(accept).map_err(set_up("a thread"))?;
    let identity = guest.identity.read().map(|identity| identity.clone());
    if let Ok(identity) = identity {
        guest.show_identity(&identity);
    }
    if let Err(failure) = guest.services.set(&guest, guest.config.services.clone()) {
        eprintln!("roost-guest: failed to take the services: {}", failure.message);
    }
    // Whoever started us may not wait for the answer.
    startup.write_all(&[READY]).ok();
    drop(startup);
    obey_signals(&guest).map_err(set_up("signals"))
}

/// The standard output, with nothing in its place.
fn taken_stdout() -> io::Result<OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), STARTUP_FD)?;
    let nothing = fs::OpenOptions::new().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(taken)
}

/// For good, and for all that are started here.
fn give_up_privilege() -> io::Result<()> {
    let privilege = CapabilitySet::SYS_ADMIN;
    limit_bounding_set(!privilege.bits())?;
    let mut own = capabilities(None)?;
    for set in [&mut own.effective, &mut own.permitted, &mut own.inheritable] {
        set.remove(privilege);
    }
    Ok(set_capabilities(None, own)?)
}

fn read_config(startup: &mut fs::File) -> Result<GuestConfig, InitError> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if let Some(config) = GuestConfig::decode(&bytes)? {
            return Ok(config);
        }
        match startup.read(&mut piece) {
            Ok(0) => return Err(InitError::ReadConfig(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(InitError::ReadConfig(error)),
        }
    }
}

/// Sees to it that the kernel takes a process inside rather than us when memory runs out; returns the score of those.
///
/// Lowering our own needs a privilege over the host that we may not have; raising theirs is always allowed.
fn settle_oom_scores() -> i32 {
    fs::write(OOM_SCORE_FILE, OWN_OOM_SCORE).ok();
    let own = fs::read_to_string(OOM_SCORE_FILE).ok().and_then(|text| text.trim().parse::<i32>().ok());
    match own {
        Some(own) if own < 0 => 0,
        own => own.unwrap_or(0).saturating_add(CHILD_OOM_EXTRA).min(1000),
    }
}

/// Reaps and waits for the word to stop. Every other signal is taken and ignored.
fn obey_signals(guest: &Arc<Guest>) -> io::Result<()> {
    loop {
        // A signal that arrived before this loop, or several at once, must not leave a child behind.
        guest.execs.reap_children()?;
        match spawn::next_signal()? {
            SIGNAL_CHILD => {}
            SIGNAL_TERM => {
                let guest = guest.clone();
                // Without a thread to spare the processes are stopped by whoever kills us.
                small_thread("stop").spawn(move || shutdown::stop_and_finish(&guest)).ok();
            }
            SIGNAL_FINISH if shutdown::is_finished() => return Ok(()),
            _ => {}
        }
    }
}
