//! Saving a sandbox's memory and processes by CRIU, and bringing them back.
//!
//! Both run in a process of their own that outlives the daemon: a dump that is cut off can take the sandbox with it.
//!
//! ```text
//! dump     private /run, criu started ahead -> criu seizes what is frozen, thaws the group, saves, freezes it again, lets go
//! restore  joined the sandbox's groups -> root mounted at /run/root, criu started ahead -> its pages are served, or not
//!          -> criu makes the namespaces
//!          -> born: pid, pidfd, netns to the daemon -> network is plugged in -> criu restores the rest -> they run
//! ```

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use roost_engine_group::{Frame, read_exact};
use roost_sys::mount::DetachedMount;
use roost_sys::netns;
use roost_sys::process::{Namespaces, owner_of_namespace, unshare};
use roost_sys::remote::keep_capabilities;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    waitid,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::child::{GROUPS, GUEST, MASKED_FILES, MASKED_FOLDERS};
use super::criu::{IMAGE, Place, Session, Waiting};
use super::groups::GroupView;
use super::network;
use super::parent::{Timings, report, report_birth};
use super::protocol::{DumpSpec, DumpTarget, Failure, PagesSpec, Report, RestoreSpec, Step};
use super::room::Room;
use super::root::{Masks, guest_mount, ids_only_namespace, isolate_mounts, mount_root, namespace};
use super::rpc::Kind;
use super::spoiled;

const ROOT: &str = "/run/root";
/// The folder of a server of pages.
const PAGES: &str = "/run/pages";
/// Where what comes from the host stands ready for CRIU, by the names it has in the image.
const HOST_GUEST: (&str, &str) = ("guest", "/run/guest");
const HOST_FILE: (&str, &str) = ("mask-file", "/run/mask-file");
const HOST_FOLDER: (&str, &str) = ("mask-folder", "/run/mask-folder");
/// The folder of the sandbox's control groups, ready for CRIU under the names of [`GroupView`].
const HOST_GROUPS: &str = "/run/groups";

/// What both directions must agree on: our own network, nothing about control groups, live connections and locks kept.
///
/// A connection that nobody has accepted yet is left out; without that it would stop the whole.
pub(super) const COMMON: [&str; 6] =
    ["empty-ns net", "manage-cgroups=ignore", "network-lock skip", "tcp-established", "skip-in-flight", "file-locks"];

/// The last point before CRIU makes namespaces.
const BEFORE_NAMESPACES: &str = "pre-restore";

/// A dump that takes longer hangs. Ending it can cost the sandbox, so this is long.
const DUMP_TIME: Duration = Duration::from_secs(120);

/// From the first sign of the end of a killed CRIU to its end.
const DYING: Duration = Duration::from_millis(200);

/// Deleted files that are still open, up to this size, are saved with the memory.
const GHOST_LIMIT: &str = "ghost-limit 1073741824";

/// What CRIU says of a connection whose queue got shorter between the moment it was measured and the one it was read.
///
/// Processes are frozen, their connections are not: the other side's kernel still acknowledges what was sent before, within
/// a fraction of a second, and nothing new is sent. So it passes, and the next attempt finds the queue at rest.
const QUEUE_MOVED: &str = "recv failed (";
/// Each connection may spoil one.
const ATTEMPTS: u32 = 10;

pub(super) fn dump(socket: BorrowedFd<'_>, spec: &DumpSpec) -> Result<(), Failure> {
    let mut timings = Timings::start();
    // A signal to the daemon's terminal is none of ours.
    rustix::process::setsid().map_err(Failure::of(Step::Isolate))?;
    set_child_subreaper(Some(rustix::process::getpid())).map_err(Failure::of(Step::Isolate))?;
    let lock = make_lock().map_err(Failure::of(Step::Isolate))?;
    isolate_mounts()?;
    let place = Place::prepare(&spec.criu, Some(&spec.image)).map_err(Failure::of(Step::Isolate))?;
    timings.done(Step::Isolate);
    keep_capabilities().map_err(Failure::of(Step::Criu))?;
    let room = Rc::new(Room::enforce(Path::new(IMAGE), spec.room).map_err(Failure::of(Step::Isolate))?);
    let criu = place.start().map_err(Failure::of(Step::Criu))?;
    timings.done(Step::Criu);

    let target: DumpTarget = Frame::read(socket).map_err(Failure::of(Step::Talk))?;
    take_lock(&lock, &spec.lock).map_err(Failure::of(Step::Isolate))?;
    // From here on a new daemon sees that there is somebody to wait for. One that came before would not have, so it is not begun
    // for a daemon that is gone.
    if has_hung_up(socket).map_err(Failure::of(Step::Talk))? {
        return Ok(());
    }
    let first = i32::try_from(target.pid).ok().and_then(Pid::from_raw);
    let owner = first.map(|pid| namespace(pid, "user").and_then(|users| owner_of_namespace(users.as_fd())));
    let owner = owner.transpose().ok().flatten().unwrap_or(0);
    let first = first.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut options: Vec<String> = COMMON.map(str::to_owned).into();
    options.extend([GHOST_LIMIT.to_owned(), "leave-running".to_owned()]);
    if target.nameless {
        options.push("link-remap".to_owned());
    }
    options.push(format!("freeze-cgroup {}", target.freezer.display()));
    let external = |path: &str, name: &str| format!("external mnt[{path}]:{name}");
    options.push(external(GUEST, HOST_GUEST.0));
    options.extend(MASKED_FILES.map(|path| external(path, HOST_FILE.0)));
    options.extend(MASKED_FOLDERS.map(|path| external(path, HOST_FOLDER.0)));
    options.extend(GroupView::names().map(|(place, name)| external(&inside(place), &name)));
    place.tell_paths(&target.watched).map_err(Failure::of(Step::Isolate))?;
    let mut ended = save(&place, &room, criu, target.pid, owner, &options, &mut timings)?;
    for _ in 1..ATTEMPTS {
        if ended.success || ended.signal.is_some() || room.is_exceeded() || !place.errors().contains(QUEUE_MOVED) {
            break;
        }
        let criu = place.start().map_err(Failure::of(Step::Criu))?;
        ended = save(&place, &room, criu, target.pid, owner, &options, &mut timings)?;
    }
    if ended.signal.is_some()
        && spoiled::was_left(&place.errors())
        && let Some(first) = &first
    {
        // Whoever asked for this is told by the end of the sandbox, and if that daemon is gone, the next one is.
        pidfd_send_signal(first, Signal::KILL).ok();
    }
    if !ended.success && room.was_short() {
        return report(socket, &Report::OverRoom).map_err(Failure::of(Step::Talk));
    }
    conclude(socket, &place, ended, timings)
}

/// One run of CRIU that saves, and how it ended.
fn save(
    place: &Place,
    room: &Rc<Room>,
    criu: Waiting,
    pid: u32,
    owner: u32,
    options: &[String],
    timings: &mut Timings,
) -> Result<Ended, Failure> {
    let mut session = place.begin(criu, Kind::Dump, Some(pid), options).map_err(Failure::of(Step::Criu))?;
    session.keep_within(room);
    session.limit_silence(DUMP_TIME).map_err(Failure::of(Step::Criu))?;
    let outcome = follow(&session, None, |point, _| match point {
        // Over the processes of a user namespace its owner has every capability, root only those that it has itself.
        "pre-dump" => session.become_user(owner),
        _ => Ok(()),
    });
    let ended = end(session, outcome);
    end_stragglers();
    let ended = match ended {
        // Its writes could not be stopped, so it was killed.
        Err(_) if room.is_exceeded() => Ended { success: false, signal: Some(Signal::KILL.as_raw()) },
        ended => ended.map_err(Failure::of(Step::Save))?,
    };
    timings.done(Step::Save);
    Ok(ended)
}

pub(super) fn restore(socket: BorrowedFd<'_>, spec: &RestoreSpec) -> Result<(), Failure> {
    let mut timings = Timings::start();
    if let Some(unified) = &spec.unified {
        fs::write(unified.join("cgroup.procs"), "0").map_err(Failure::of(Step::Join))?;
    }
    isolate_mounts()?;
    let isolate = Failure::of::<io::Error>(Step::Isolate);
    // CRIU leaves the namespace of control groups to whoever is in charge of them; what it restores inherits this one.
    unshare(Namespaces::CGROUP).map_err(&isolate)?;
    let guest = guest_mount(&spec.guest).map_err(Failure::of(Step::Isolate))?;
    let masks = Masks::make().map_err(Failure::of(Step::Isolate))?;
    let groups = GroupView::make(&spec.groups).map_err(Failure::of(Step::Isolate))?;
    let pages = spec.pages.as_ref().map(DetachedMount::clone_of).transpose().map_err(Failure::of(Step::Isolate))?;
    timings.done(Step::Isolate);
    let Some(userns) = ids_only_namespace(spec.layers.uid_base).map_err(Failure::of(Step::Map))? else {
        return Ok(());
    };
    timings.done(Step::Map);
    let root = mount_root(&spec.layers, userns.as_fd(), &mut timings)?;
    let place = Place::prepare(&spec.criu, Some(&spec.image)).map_err(&isolate)?;
    keep_capabilities().map_err(Failure::of(Step::Criu))?;
    let criu = place.start().map_err(Failure::of(Step::Criu))?;
    timings.done(Step::Criu);
    fs::create_dir(ROOT).map_err(&isolate)?;
    fs::create_dir(HOST_FOLDER.1).map_err(&isolate)?;
    for (mount, target) in
        [(&root, ROOT), (&masks.folder, HOST_FOLDER.1), (&guest, HOST_GUEST.1), (&masks.file, HOST_FILE.1)]
    {
        attach(mount, Path::new(target)).map_err(&isolate)?;
    }
    let mut options: Vec<String> = COMMON.map(str::to_owned).into();
    for (name, mount) in groups.parts() {
        let target = Path::new(HOST_GROUPS).join(&name);
        fs::create_dir_all(&target).map_err(&isolate)?;
        attach(mount, &target).map_err(&isolate)?;
        options.push(format!("external mnt[{name}]:{}", target.display()));
    }
    timings.done(Step::Attach);
    if let Some(pages) = pages
        && is_served(socket).map_err(Failure::of(Step::Serve))?
    {
        fs::create_dir(PAGES).map_err(&isolate)?;
        attach(&pages, Path::new(PAGES)).map_err(&isolate)?;
        let seen = place.file(PagesSpec::SOCKET);
        symlink(Path::new(PAGES).join(PagesSpec::SOCKET), seen).map_err(&isolate)?;
        options.push("lazy-pages".to_owned());
    }
    timings.done(Step::Serve);

    options.push(format!("root {ROOT}"));
    options.extend([HOST_GUEST, HOST_FILE, HOST_FOLDER].map(|(name, path)| format!("external mnt[{name}]:{path}")));
    let session = place.begin(criu, Kind::Restore, None, &options).map_err(Failure::of(Step::Criu))?;
    let home = namespace(rustix::process::getpid(), "net").map_err(Failure::of(Step::Network))?;
    let mut born = None;
    let outcome = follow(&session, Some(spec.owner), |point, pid| {
        match (point, pid) {
            ("setup-namespaces", Some(pid)) => {
                timings.done(Step::Namespaces);
                let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
                let netns = namespace(pid, "net")?;
                report_birth(socket, pid, pidfd.as_fd(), netns.as_fd())?;
                await_network(socket)?;
                let users = namespace(pid, "user")?;
                netns::visit(home.as_fd(), netns.as_fd(), || {
                    network::allow_pings(spec.layers.uid_base, users.as_fd())?;
                    network::hold(true)
                })??;
                timings.done(Step::Network);
                born = Some((netns, namespace(pid, "uts")?));
            }
            // Everything is there again and nothing runs yet.
            ("post-restore", _) => {
                if let Some((netns, names)) = &born {
                    netns::visit(home.as_fd(), netns.as_fd(), || {
                        network::hold(false)?;
                        network::end_connections(&spec.lost)
                    })??;
                    set_hostname(names.as_fd(), &spec.hostname)?;
                }
                timings.done(Step::Load);
            }
            _ => {}
        }
        Ok(())
    });
    let ended = end(session, outcome).map_err(Failure::of(Step::Load))?;
    timings.done(Step::Resume);
    conclude(socket, &place, ended, timings)
}

/// How a run of CRIU ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) success: bool,
    /// The signal that ended it, if one did.
    pub(super) signal: Option<i32>,
}

/// Sees CRIU off: by itself after a run to the end, by force otherwise.
///
/// Whatever goes wrong with a CRIU that is being killed is its end and nothing else: a broken pipe, or a process that is
/// not there any more.
pub(super) fn end(session: Session, outcome: io::Result<bool>) -> io::Result<Ended> {
    let success = match outcome {
        Ok(success) => success,
        Err(_) if session.ends_within(DYING)? => false,
        Err(error) => return session.abort().and(Err(error)),
    };
    session.finish().map(|status| Ended { success, signal: status.signal() })
}

/// Ends what a CRIU that was killed left behind: it forks helpers, and they have come to this process.
pub(super) fn end_stragglers() {
    let children = || fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for child in children().split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw) {
        kill_process(child, Signal::KILL).ok();
    }
    while waitid(WaitId::All, WaitIdOptions::EXITED).is_ok() {}
}

/// Takes CRIU through its run; whether it succeeded. The user namespace that it makes, if it does, belongs to `owner`.
pub(super) fn follow(
    session: &Session,
    owner: Option<u32>,
    mut at: impl FnMut(&str, Option<Pid>) -> io::Result<()>,
) -> io::Result<bool> {
    while let Some(response) = session.next()? {
        let Some(point) = response.notify else {
            return Ok(response.success);
        };
        let pid = response.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        at(&point, pid)?;
        match owner.filter(|_| point == BEFORE_NAMESPACES) {
            Some(owner) => session.make_namespaces(owner)?,
            None => session.go_on()?,
        }
    }
    Ok(false)
}

pub(super) fn conclude(socket: BorrowedFd<'_>, place: &Place, ended: Ended, timings: Timings) -> Result<(), Failure> {
    let said = if ended.success {
        Report::Done { kernel_cache: place.new_kernel_cache(), timings: timings.parts }
    } else {
        Report::CriuFailed { log: place.errors(), signal: ended.signal }
    };
    report(socket, &said).map_err(Failure::of(Step::Talk))
}

/// A lock that CRIU inherits, for a new daemon to tell whether one is at work: it is free again when this process is gone and CRIU,
/// too.
pub(super) fn make_lock() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::empty(), None)?)
}

/// Takes it, when CRIU is about to begin.
pub(super) fn take_lock(lock: &OwnedFd, name: &str) -> io::Result<()> {
    Ok(bind(lock, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?)
}

/// Whether the daemon is gone, and has not only said all that it had to say.
fn has_hung_up(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut watched = [PollFd::new(&socket, PollFlags::empty())];
    rustix::io::retry_on_intr(|| poll(&mut watched, Some(&Timespec::default())))?;
    Ok(watched[0].revents().contains(PollFlags::HUP))
}

/// A copy of a sandbox has a name of its own. This process stays among its names: it has no more use for any.
fn set_hostname(names: BorrowedFd<'_>, hostname: &str) -> io::Result<()> {
    move_into_link_name_space(names, Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
    Ok(rustix::system::sethostname(hostname.as_bytes())?)
}

fn attach(mount: &DetachedMount, target: &Path) -> io::Result<()> {
    if !target.exists() {
        fs::File::create_new(target)?;
    }
    mount.attach(target).map_err(io::Error::other)
}

/// Returns the path inside of a part of the view of control groups.
fn inside(place: &str) -> String {
    if place.is_empty() { GROUPS.to_owned() } else { format!("{GROUPS}/{place}") }
}

/// Waits until somebody serves its pages, or it is known that nobody does.
fn is_served(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut byte = [0];
    read_exact(socket, &mut byte)?;
    match byte {
        [RestoreSpec::SERVED] => Ok(true),
        [RestoreSpec::ALONE] => Ok(false),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn await_network(socket: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = [0];
    match rustix::io::read(socket, &mut byte)? {
        1 if byte == [Frame::PLUGGED] => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_daemon_that_has_no_more_to_say_is_not_gone() {
        let (daemon, socket) = UnixStream::pair().unwrap();
        assert!(!has_hung_up(socket.as_fd()).unwrap());
        daemon.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!has_hung_up(socket.as_fd()).unwrap());
        drop(daemon);
        assert!(has_hung_up(socket.as_fd()).unwrap());
    }
}
