//! One run of CRIU: its place in the filesystem, its configuration, the conversation with it, and its log.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use roost_sys::mount::{DetachedMount, FsContext, MountAttrFlags};
use roost_sys::remote::{own_next_namespace, set_effective_user};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::ending::is_ending;
use super::protocol::{Criu, WatchedPath};
use super::room::Room;
use super::rpc::{self, Kind, Options, Response};

/// CRIU keeps what it found out about the kernel here, and only believes it on a tmpfs.
const RUN: &str = "/run";
/// It makes folders here, and leaves them when it fails.
pub(super) const SCRATCH: &str = "/tmp";
const KERNEL_CACHE: &str = "/run/criu.kdat";
const CONFIG: &str = "/run/options";
const LOG: &str = "log";
const KNOWN_PATHS: &str = "irmap-cache";
const WORK: &str = "/run/work";
/// Programs that CRIU is to find before the system's.
const TOOLS: &str = "/run/tools";
/// Where CRIU's own programs are seen, when they are not the system's.
const PROGRAMS: &str = "/run/criu";
/// Where the image is seen.
pub(super) const IMAGE: &str = "/run/image";
/// Longest message that is read.
const MAX_MESSAGE: usize = 64 * 1024;
/// How much of its errors is passed on.
const MAX_LOG: usize = 16 * 1024;

/// How often is looked whether what it saves is still there.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A place for one run: a fresh /run and /tmp in this process's own mount namespace.
///
/// Whatever the caller needs of the host's has to be opened before.
#[derive(Debug)]
pub(super) struct Place {
    command: Vec<PathBuf>,
    image: OwnedFd,
    work: OwnedFd,
    had_cache: bool,
}

/// A CRIU that was started ahead of what it is for, because that takes it longer than everything around it. Until it is told
/// there is nothing that its end could spoil.
#[derive(Debug)]
pub(super) struct Waiting(Option<(Child, OwnedFd)>);

/// A CRIU at work.
#[derive(Debug)]
pub(super) struct Session {
    process: Child,
    exit: OwnedFd,
    socket: OwnedFd,
    /// The first process of what it saves, without which there is nothing to save.
    saves: Option<u32>,
    /// The room for the image that it writes.
    room: Option<Rc<Room>>,
}

/// A started server of pages.
#[derive(Debug)]
pub(super) struct PageServer {
    process: Child,
    /// Readable when it has ended.
    pub(super) exit: OwnedFd,
    ready: OwnedFd,
}

impl Place {
    /// Makes the place; without an image's folder of its own the image goes with it.
    pub(super) fn prepare(criu: &Criu, image: Option<&Path>) -> io::Result<Self> {
        let image = image.map(DetachedMount::clone_of).transpose().map_err(io::Error::other)?;
        // CRIU packs a tmpfs with tar and gzip. Compressing takes far longer than the rest of a dump, and starting both longer
        // than what they have to do: what it finds under those names is this program, which copies, and packs by itself.
        let itself = DetachedMount::clone_of(fs::read_link("/proc/self/exe")?).map_err(io::Error::other)?;
        let folder = programs_folder(criu);
        let programs = folder.as_ref().map(DetachedMount::clone_of).transpose().map_err(io::Error::other)?;
        for folder in [RUN, SCRATCH] {
            FsContext::open("tmpfs")
                .and_then(|tmpfs| {
                    tmpfs.option("source", "criu")?.option("mode", "0755")?.create(MountAttrFlags::empty())
                })
                .and_then(|tmpfs| tmpfs.attach(folder))
                .map_err(io::Error::other)?;
        }
        for folder in [WORK, IMAGE, PROGRAMS, TOOLS] {
            fs::create_dir(folder)?;
        }
        fs::File::create_new(own_program())?;
        itself.attach(own_program()).map_err(io::Error::other)?;
        symlink(super::COPIER, Path::new(TOOLS).join(super::ARCHIVER))?;
        if let Some(image) = image {
            image.attach(IMAGE).map_err(io::Error::other)?;
        }
        let mut command = criu.command.clone();
        if let (Some(mount), Some(folder)) = (programs, folder) {
            mount.attach(PROGRAMS).map_err(io::Error::other)?;
            for part in &mut command {
                if let Ok(rest) = part.strip_prefix(&folder) {
                    *part = Path::new(PROGRAMS).join(rest);
                }
            }
        }
        if !criu.kernel_cache.is_empty() {
            fs::write(KERNEL_CACHE, &criu.kernel_cache)?;
        }
        let open = |path| rustix::fs::openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self { command, image: open(IMAGE)?, work: open(WORK)?, had_cache: !criu.kernel_cache.is_empty() })
    }

    /// Starts a CRIU that waits to be told what to do.
    pub(super) fn start(&self) -> io::Result<Waiting> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let process = Command::new(program)
            .args(arguments)
            .args(["swrk", "0"])
            .env_clear()
            .env("PATH", format!("{TOOLS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Waiting(Some((process, ours))))
    }

    /// Tells it, with these options in the words of its command line.
    pub(super) fn begin(
        &self,
        mut waiting: Waiting,
        kind: Kind,
        pid: Option<u32>,
        options: &[String],
    ) -> io::Result<Session> {
        fs::write(CONFIG, options.join("\n") + "\n")?;
        let (process, socket) = waiting.0.take().ok_or(io::ErrorKind::InvalidInput)?;
        let session = Session::of(process, socket, pid)?;
        let options =
            Options { image: self.image.as_raw_fd(), work: self.work.as_raw_fd(), pid, config: CONFIG, log: LOG };
        match session.send(&rpc::request(kind, &options)) {
            // It is gone already, which whoever follows it will see.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(session),
            sent => sent.map(|()| session),
        }
    }

    /// Starts a CRIU that serves the pages of the image, at a socket in `folder`.
    pub(super) fn serve_pages(&self, folder: &Path) -> io::Result<PageServer> {
        let (program, arguments) = self.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let (ready, say) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // This process has one thread and starts nothing else.
        rustix::io::fcntl_setfd(&say, FdFlags::empty())?;
        let process = Command::new(program)
            .args(arguments)
            .args(["lazy-pages", "--images-dir", IMAGE, "--work-dir"])
            .arg(folder)
            .args(["--log-file", &self.file(LOG).to_string_lossy()])
            .args(["--status-fd", &say.as_raw_fd().to_string()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let exit = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        Ok(PageServer { process, exit, ready })
    }

    /// Where a file of CRIU's working folder is.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        Path::new(WORK).join(name)
    }

    /// Tells CRIU the paths of inodes.
    pub(super) fn tell_paths(&self, watched: &[WatchedPath]) -> io::Result<()> {
        if watched.is_empty() {
            return Ok(());
        }
        fs::write(self.file(KNOWN_PATHS), rpc::known_paths(watched))
    }

    /// What CRIU found out about the kernel, if it was not known before.
    pub(super) fn new_kernel_cache(&self) -> Option<Vec<u8>> {
        if self.had_cache { None } else { fs::read(KERNEL_CACHE).ok() }
    }

    /// What the log says of what went wrong.
    pub(super) fn errors(&self) -> String {
        let log = fs::read(self.file(LOG)).unwrap_or_default();
        let mut lines = relevant(&String::from_utf8_lossy(&log));
        if lines.len() > MAX_LOG {
            let cut = (lines.len() - MAX_LOG..lines.len()).find(|at| lines.is_char_boundary(*at));
            lines.drain(..cut.unwrap_or(0));
        }
        lines
    }
}

/// Errors, warnings, and the lines that say which process is at hand.
fn relevant(log: &str) -> String {
    let wanted = ["tar: ", "Error", "Warn", "Dumping task (pid", "Dumping processes (pid", "Dumping path", "Restoring"];
    let mut kept = String::new();
    for line in log.lines().filter(|line| wanted.iter().any(|word| line.contains(word))) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// Where this very program is seen.
pub(super) fn own_program() -> PathBuf {
    Path::new(TOOLS).join(super::COPIER)
}

/// The folder to take along when CRIU is not one of the system's own programs.
fn programs_folder(criu: &Criu) -> Option<PathBuf> {
    (criu.command.len() > 1).then(|| criu.command[0].parent().map(Path::to_owned)).flatten()
}

impl Drop for Waiting {
    /// As an orphan it would come to somebody who does not wait for it.
    fn drop(&mut self) {
        if let Some((mut process, _)) = self.0.take() {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Session {
    fn of(process: Child, socket: OwnedFd, saves: Option<u32>) -> io::Result<Self> {
        let exit = pidfd_open(Pid::from_child(&process), PidfdFlags::empty())?;
        Ok(Self { process, exit, socket, saves, room: None })
    }

    /// Keeps the image that CRIU writes within its room.
    pub(super) fn keep_within(&mut self, room: &Rc<Room>) {
        self.room = Some(Rc::clone(room));
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        send(self.socket.as_fd(), message, SendFlags::NOSIGNAL).map(drop).map_err(Into::into)
    }

    /// Ends CRIU when it says nothing for so long.
    pub(super) fn limit_silence(&self, longest: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.socket, Timeout::Recv, Some(longest))?)
    }

    /// The next thing CRIU says; `None` when it is gone.
    pub(super) fn next(&self) -> io::Result<Option<Response>> {
        // What CRIU forked has its end of the socket too, and outlives it when it is killed: so its own end is watched.
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.exit, PollFlags::IN)];
        let deadline = socket_timeout(&self.socket, Timeout::Recv)?.map(|longest| Instant::now() + longest);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let look = match (&self.room, self.saves) {
                (Some(room), _) => Some(room.due_in().min(LOOK_AGAIN)),
                (None, Some(_)) => Some(LOOK_AGAIN),
                (None, None) => None,
            };
            let slice = look.into_iter().chain(left).min();
            let slice = slice.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            let said = rustix::io::retry_on_intr(|| poll(&mut watched, slice.as_ref()))?;
            if said > 0 || left.is_some_and(|left| left.is_zero()) {
                break;
            }
            if self.saves.is_some_and(is_ending) {
                return Err(io::Error::other("what it saves has ended"));
            }
            if let Some(room) = &self.room {
                room.look(Pid::from_child(&self.process))?;
            }
        }
        let is_gone = !watched[1].revents().is_empty();
        let mut buffer = vec![0; MAX_MESSAGE];
        let count = match recv(self.socket.as_fd(), &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((count, _)) => count,
            Err(Errno::CONNRESET) => 0,
            Err(Errno::AGAIN) if is_gone => 0,
            Err(e) => return Err(e.into()),
        };
        if count == 0 {
            return Ok(None);
        }
        rpc::response(&buffer[..count]).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Gives CRIU another effective user while it waits; it keeps its capabilities.
    pub(super) fn become_user(&self, uid: u32) -> io::Result<()> {
        set_effective_user(Pid::from_child(&self.process), uid)
    }

    /// Lets CRIU go on from where it waits until it has made a user namespace that belongs to `owner`.
    pub(super) fn make_namespaces(&self, owner: u32) -> io::Result<()> {
        own_next_namespace(Pid::from_child(&self.process), owner, || self.go_on())
    }

    /// Lets CRIU go on from where it waits.
    pub(super) fn go_on(&self) -> io::Result<()> {
        self.send(&rpc::go_on(true))
    }

    /// Whether CRIU ends by itself, or is ended, within this time.
    pub(super) fn ends_within(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let ended = rustix::io::retry_on_intr(|| poll(&mut [PollFd::new(&self.exit, PollFlags::IN)], Some(&time)))?;
        Ok(ended > 0)
    }

    /// Waits until CRIU is gone.
    pub(super) fn finish(mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Ends CRIU.
    pub(super) fn abort(mut self) -> io::Result<()> {
        self.process.kill()?;
        self.finish().map(drop)
    }
}

impl PageServer {
    /// Waits until it listens; false if it ended instead.
    pub(super) fn await_readiness(&self) -> io::Result<bool> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::read(&self.ready, &mut [0]))? > 0)
    }

    /// After its end: whether it did all that it had to.
    pub(super) fn outcome(&mut self) -> io::Result<bool> {
        Ok(self.process.wait()?.success())
    }

    /// Ends it.
    pub(super) fn abort(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for PageServer {
    /// One that nobody accompanies would serve for ever, and hold its lock.
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[cfg(test)]
mod tests;
