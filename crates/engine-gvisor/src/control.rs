//! What the daemon says to a running sentry, over its control socket.
//!
//! The calls are runsc's own between its programs: a JSON object each way, unframed, with descriptors along. They belong to
//! the version of runsc, which is one more reason to bring our own.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roost_engine_group::{First, send_with, version_of};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bundle::PATH;
use crate::keep::{CONTAINER, GUEST, GUEST_SOURCE, HOSTNAME, PAUSED, SOCKET};

/// A call that takes longer than saving much memory to a slow disk hangs.
const LONGEST_CALL: Duration = Duration::from_secs(180);
/// `CAP_SYS_ADMIN`, as gVisor counts them.
const SYS_ADMIN: u64 = 1 << 21;
/// A host name that was asked for while nothing could run.
const WANTED_HOSTNAME: &str = "hostname.wanted";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("failed to talk to the sentry")]
    Talk(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Talk(error) => error,
            refused => Self::other(refused),
        }
    }
}

/// What is noted of a pause, beside the sentry; nothing is noted of one that runs.
///
/// ```text
/// none -> changes -> (the sentry is told) -> holds -> changes -> (the sentry is told) -> none
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    /// The sentry is being told to pause or to go on; whether it has heard of it has to be found out.
    Changes,
    Holds,
}

impl Note {
    const fn text(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Holds => "holds",
        }
    }

    /// A daemon may have been killed while it wrote: only what is there in full is known.
    fn read(text: &str) -> Self {
        if text == Self::Holds.text() { Self::Holds } else { Self::Changes }
    }
}

/// In the stacks of a sentry's own threads: one that runs a thread inside, and one that keeps it from running.
const OF_A_THREAD: &str = "kernel.(*Task).run(";
const STANDS_STILL: &str = "kernel.(*Task).doStop(";
/// How often that is looked at, and how often in a row all has to be at work.
const LOOK: Duration = Duration::from_millis(30);
const IN_A_ROW: usize = 4;
/// How long threads may take to come to a stop or to leave it.
const LONGEST_CHANGE: Duration = Duration::from_secs(20);

/// The private root of a sandbox's keeper, where runsc's socket and our own notes are.
#[derive(Debug)]
pub(crate) struct Place(OwnedFd);

impl Place {
    /// That of the sandbox with this first process; `None` if it has ended.
    pub(crate) fn of(first: &First) -> io::Result<Option<Self>> {
        Ok(first.root()?.map(Self))
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name)
    }

    /// Connects to the sentry; works while it is frozen, but nothing is answered then.
    pub(crate) fn connect(&self) -> io::Result<Control<'_>> {
        let stream = UnixStream::connect(self.path(SOCKET))?;
        stream.set_read_timeout(Some(LONGEST_CALL))?;
        Ok(Control { stream, place: self })
    }

    /// The guest's program on the host that runs here, if need be of an earlier version than the `present` one.
    pub(crate) fn guest(&self, present: &Path) -> io::Result<PathBuf> {
        version_of(&self.path(GUEST_SOURCE.trim_start_matches('/')), present)
    }

    /// The name that processes inside know.
    pub(crate) fn hostname(&self) -> io::Result<String> {
        let wanted = fs::read_to_string(self.path(WANTED_HOSTNAME));
        wanted.or_else(|_| fs::read_to_string(self.path(HOSTNAME)))
    }

    /// Notes a name for when processes can run again.
    pub(crate) fn want_hostname(&self, hostname: &str) -> io::Result<()> {
        fs::write(self.path(WANTED_HOSTNAME), hostname)
    }

    /// Whether the sentry lets nothing run. Where the daemon that last told it something did not live to note what came of it,
    /// that is found out and noted.
    fn is_paused(&self) -> io::Result<bool> {
        match self.note()? {
            None => Ok(false),
            Some(Note::Holds) => Ok(true),
            Some(Note::Changes) => {
                let paused = self.connect()?.find_out_paused()?;
                self.set_note(paused.then_some(Note::Holds))?;
                Ok(paused)
            }
        }
    }

    /// Whether nothing may run inside until [`Place::catch_up`] has looked.
    pub(crate) fn may_stand_still(&self) -> io::Result<bool> {
        Ok(self.note()?.is_some())
    }

    fn note(&self) -> io::Result<Option<Note>> {
        match fs::read_to_string(self.path(PAUSED)) {
            Ok(text) => Ok(Some(Note::read(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn set_note(&self, note: Option<Note>) -> io::Result<()> {
        match note {
            Some(note) => fs::write(self.path(PAUSED), note.text()),
            None => fs::remove_file(self.path(PAUSED)),
        }
    }

    /// Does what could not be done while nothing ran.
    pub(crate) fn catch_up(&self) -> io::Result<()> {
        if self.is_paused()? {
            self.connect()?.resume()?;
        }
        match fs::read_to_string(self.path(WANTED_HOSTNAME)) {
            Ok(wanted) => self.connect()?.set_hostname(&wanted),
            Err(_) => Ok(()),
        }
    }
}

/// Whether a call failed because the sentry has ended, or ended the connection.
pub(crate) fn is_broken(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | UnexpectedEof)
}

/// A connection to a sentry.
#[derive(Debug)]
pub(crate) struct Control<'a> {
    stream: UnixStream,
    place: &'a Place,
}

/// A process inside.
#[derive(Debug, Deserialize)]
pub(crate) struct Inside {
    pub(crate) pid: u32,
    pub(crate) cmd: String,
}

#[derive(Debug, Deserialize)]
struct Answer {
    success: bool,
    #[serde(default)]
    err: String,
    #[serde(default)]
    result: Value,
}

impl Control<'_> {
    /// Lets nothing inside run until [`Control::resume`], whatever happens to the sentry's own process meanwhile.
    pub(crate) fn pause(&mut self) -> Result<(), CallError> {
        if self.place.is_paused()? {
            return Ok(());
        }
        // Noted first: one that is never told to go on stands still.
        self.place.set_note(Some(Note::Changes))?;
        self.call("containerManager.Pause", &Value::Null, &[])?;
        Ok(self.place.set_note(Some(Note::Holds))?)
    }

    /// Lets what was paused go on.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        // A sentry that is told twice dies.
        self.place.set_note(Some(Note::Changes))?;
        let resumed = self.call("containerManager.Resume", &Value::Null, &[]);
        self.place.set_note(None)?;
        Ok(resumed.map(drop)?)
    }

    /// What runs inside.
    pub(crate) fn processes(&mut self) -> Result<Vec<Inside>, CallError> {
        let found = self.call("containerManager.Processes", &json!(CONTAINER), &[])?;
        serde_json::from_value(found).map_err(|error| CallError::Talk(error.into()))
    }

    /// Whether nothing inside runs. What it was told last it may be just about to do: only what it is at for a while counts.
    fn find_out_paused(&mut self) -> io::Result<bool> {
        let deadline = Instant::now() + LONGEST_CHANGE;
        let mut seen_running = 0;
        loop {
            match At::of(&self.stacks()?) {
                At::Rest => return Ok(true),
                At::Work => seen_running += 1,
                At::Both => seen_running = 0,
            }
            if seen_running == IN_A_ROW {
                return Ok(false);
            }
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "some of it runs and some does not"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What each of the sentry's own threads is at.
    fn stacks(&mut self) -> Result<String, CallError> {
        let stacks = self.call("debug.Stacks", &Value::Null, &[])?;
        serde_json::from_value(stacks).map_err(|error| CallError::Talk(error.into()))
    }

    /// Saves everything into the three files: state, what pages there are, and the pages. It goes on afterwards, if it ran.
    pub(crate) fn save(&mut self, files: &[BorrowedFd<'_>; 3]) -> Result<(), CallError> {
        let options = json!({
            "metadata": { "compression": "none" },
            "MemoryFileSaveOpts": {},
            "have_pages_file": true,
            "Resume": true,
        });
        self.call("containerManager.Checkpoint", &options, files).map(drop)
    }

    /// Gives processes inside another host name, by a program that may do that and nothing else.
    pub(crate) fn set_hostname(&mut self, hostname: &str) -> io::Result<()> {
        let may = json!({
            "PermittedCaps": SYS_ADMIN, "EffectiveCaps": SYS_ADMIN, "BoundingCaps": SYS_ADMIN,
            "InheritableCaps": 0, "AmbientCaps": 0,
        });
        let program = json!({
            "filename": GUEST,
            "argv": ["roost-guest", "hostname", hostname],
            "envv": [PATH, "HOME=/"],
            "wd": "/",
            "KUID": 0,
            "KGID": 0,
            "Capabilities": may,
            "ContainerID": CONTAINER,
        });
        let pid = self.call("containerManager.ExecuteAsync", &program, &[])?;
        let ended = self.call("containerManager.WaitPID", &json!({ "PID": pid, "CID": CONTAINER }), &[])?;
        if ended != json!(0) {
            return Err(io::Error::other(format!("the program that does it ended with {ended}")));
        }
        fs::write(self.place.path(HOSTNAME), hostname)?;
        match fs::remove_file(self.place.path(WANTED_HOSTNAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn call(&mut self, method: &str, argument: &Value, files: &[BorrowedFd<'_>]) -> Result<Value, CallError> {
        let call = json!({ "method": method, "arg": argument }).to_string();
        send_with(self.stream.as_fd(), call.as_bytes(), files)?;
        let answer = self.answer()?;
        if answer.success { Ok(answer.result) } else { Err(CallError::Refused(answer.err)) }
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        loop {
            let count = self.stream.read(&mut piece)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
            match serde_json::from_slice(&bytes) {
                Err(error) if error.is_eof() => {}
                read => return Ok(read?),
            }
        }
    }
}

/// What the threads inside are at, by the sentry's stacks.
#[derive(Debug, PartialEq, Eq)]
enum At {
    Work,
    Rest,
    /// Some of them on their way from one to the other.
    Both,
}

impl At {
    fn of(stacks: &str) -> Self {
        let threads = stacks.split("\n\n").filter(|stack| stack.contains(OF_A_THREAD));
        let (still, at_work): (Vec<_>, Vec<_>) = threads.partition(|stack| stack.contains(STANDS_STILL));
        match (still.is_empty(), at_work.is_empty()) {
            (false, true) => Self::Rest,
            (false, false) => Self::Both,
            (true, _) => Self::Work,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_when_every_thread_inside_does() {
        let still =
            "goroutine 9 [semacquire]:\nkernel.(*Task).doStop(0x1)\n\tf.go:1\nkernel.(*Task).run(0x1, 0x2)\n\tf.go:2";
        let runs = "goroutine 8 [select]:\nkernel.(*Task).block(0x1)\n\tf.go:1\nkernel.(*Task).run(0x1, 0x2)\n\tf.go:2";
        let other = "goroutine 1 [running]:\nmain.main()\n\tm.go:1";
        assert_eq!(At::of(&[other, still, still].join("\n\n")), At::Rest);
        assert_eq!(At::of(&[still, other, runs].join("\n\n")), At::Both);
        assert_eq!(At::of(&[runs, other].join("\n\n")), At::Work);
    }
}
