//! Saves a frozen sandbox.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use roost_engine::{Dumped, EngineError};
use roost_engine_group::{Heard, blocking, step_failed, version_of};
use roost_model::{EngineKind, SandboxId, SavedProcess};
use roost_sys::cgroup::Group;
use roost_wire::GUEST_PORT;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use tokio::time::error::Elapsed;

use super::contents::{Contents, Look, connections_lost, not_kept};
use super::image::{ImageInfo, size_of};
use super::pagemap::read_small_ranges_at_once;
use super::pages::LAZY_FROM;
use super::refusal::{Refusal, ended_by};
use crate::engine::Inner;
use crate::launch::{Connection, Criu, DumpSpec, DumpTarget, Failure, Job, Report, is_ending};
use crate::launcher::Launcher;
use crate::start::{failed, micros};

/// How long a dump of an earlier daemon may go on before it is taken for hung.
const PATIENCE: Duration = Duration::from_secs(150);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl Inner {
    /// Saves memory and processes into `into`; the sandbox is frozen before and after.
    pub(crate) async fn dump(&self, id: &SandboxId, into: &Path, room: u64) -> Result<Dumped, EngineError> {
        let criu = self.criu("save memory")?;
        let group = self.group(id);
        let freezer = group.freezer_folder().ok_or_else(|| self.unfit("save memory", "it has no freezer"))?;
        let begun = Instant::now();
        self.await_pages(id).await?;
        // Side by side: CRIU takes as long to start as the look.
        let spec = DumpSpec { criu, image: into.to_owned(), lock: self.dump_lock(id), room };
        let look = async { fitting(id, self.look(id, group.clone()).await?, room) };
        let (contents, launcher) = match tokio::join!(look, self.begin_dump(id, spec)) {
            (Ok(contents), Ok(launcher)) => (contents, launcher),
            (Err(error), Ok(launcher)) => {
                launcher.dismiss().await;
                return Err(error);
            }
            (Ok(_), Err(error)) | (Err(error), Err(_)) => return Err(error),
        };
        let mut parts = vec![("look", micros(begun.elapsed()))];
        let first = contents.first;
        // Beside the dump: nothing of it can change while the sandbox is frozen.
        let lost = tokio::task::spawn_blocking(move || connections_lost(first));

        let (watched, nameless) = (contents.watched.clone(), contents.nameless);
        let target = DumpTarget { pid: first, freezer, watched, nameless };
        let outcome = self.run_dump(id, launcher, &target, &contents, room).await;
        // CRIU leaves the group as it found it, unless it was cut off.
        let again = blocking(move || if group.exists() { group.freeze().map_err(io::Error::other) } else { Ok(()) });
        again.await.map_err(failed("freeze", id))?;
        // One that was killed under it has nothing to save, whatever CRIU says about it.
        if outcome.is_err() && is_ending(first) {
            return Err(self.let_end(id).await);
        }
        parts.extend(outcome?);

        let folder = into.to_owned();
        let lost = lost.await.map_err(|e| failed("list its connections", id)(io::Error::other(e)))?;
        let not_kept = lost.iter().filter_map(|connection| not_kept(connection, GUEST_PORT)).collect();
        let info = match self.image_info(id, first, lost) {
            // Its first process was killed after CRIU was done, and shows neither its users nor its program any more.
            Err(_) if is_ending(first) => return Err(self.let_end(id).await),
            info => info?,
        };
        let sealed = blocking(move || {
            info.write(&folder)?;
            let bytes = size_of(&folder)?;
            if bytes >= LAZY_FROM {
                read_small_ranges_at_once(&folder, LAZY_FROM)?;
            }
            Ok(bytes)
        });
        let bytes = sealed.await.map_err(failed("write the image", id))?;
        // CRIU may have written the last of it since the launcher's last look.
        if bytes > room {
            return Err(over_room(id, room));
        }
        parts.push(("all", micros(begun.elapsed())));
        let processes = contents.processes.into_iter().map(|(_, process)| process).collect();
        Ok(Dumped { bytes, not_kept, processes, parts_us: parts })
    }

    /// Returns what a restore must know of the sandbox whose first process is `first`.
    fn image_info(&self, id: &SandboxId, first: u32, lost: Vec<Connection>) -> Result<ImageInfo, EngineError> {
        let guest = version_of(Path::new(&format!("/proc/{first}/exe")), &self.config.guest);
        Ok(ImageInfo {
            version: self.memory.image_version().unwrap_or_default(),
            uid_base: uid_base(first).map_err(failed("read its map of users", id))?,
            guest: guest.map_err(failed("find its guest's program", id))?,
            lost,
        })
    }

    /// What there is to save, if it can be.
    async fn look(&self, id: &SandboxId, group: Group) -> Result<Contents, EngineError> {
        match blocking(move || Look::at(&group)).await.map_err(failed("look at its processes", id))? {
            Look::Ready(contents) => Ok(contents),
            Look::Gone => Err(self.let_end(id).await),
            Look::Obstacle(process, why) => Err(not_saved(id, Some(&process), why)),
        }
    }

    /// Lets one come to its end that was killed while it stood still: where the kernel holds back frozen processes altogether,
    /// nobody would hear of it before it is woken.
    async fn let_end(&self, id: &SandboxId) -> EngineError {
        match self.groups.on_group("let it end", id, |group| group.thaw()).await {
            Ok(()) => EngineError::NotRunning { id: id.clone() },
            Err(error) => error,
        }
    }

    /// A launcher with a CRIU that waits to be told what to save.
    async fn begin_dump(&self, id: &SandboxId, spec: DumpSpec) -> Result<Launcher, EngineError> {
        let talk = failed("talk to the launcher", id);
        let mut launcher = Launcher::spawn(&self.mother, Vec::new()).await.map_err(&talk)?;
        launcher.begin(&Job::Dump(spec), &[]).await.map_err(&talk)?;
        Ok(launcher)
    }

    async fn run_dump(
        &self,
        id: &SandboxId,
        mut launcher: Launcher,
        target: &DumpTarget,
        contents: &Contents,
        room: u64,
    ) -> Result<Vec<(&'static str, u64)>, EngineError> {
        let talk = failed("talk to the launcher", id);
        if let Err(error) = launcher.save(target).await {
            tracing::debug!(sandbox = %id, %error, "the launcher has ended: it says why");
        }
        let parts = loop {
            match launcher.next().await.map_err(&talk)? {
                Some(Heard::Report(Report::Done { kernel_cache, timings })) => {
                    if let Some(cache) = kernel_cache {
                        self.memory.learn(cache);
                    }
                    break timings.into_iter().map(|(step, us)| (step.name(), us)).collect();
                }
                Some(Heard::Report(Report::OverRoom)) => return Err(over_room(id, room)),
                Some(Heard::Report(Report::CriuFailed { signal: Some(signal), .. })) => {
                    return Err(not_saved(id, None, &ended_by(signal)));
                }
                Some(Heard::Report(Report::CriuFailed { log, .. })) => return Err(refused(id, &log, contents)),
                Some(Heard::Report(Report::Failed(Failure { step, detail, full }))) => {
                    return Err(step_failed(step.name(), detail, full, id));
                }
                Some(_) => {}
                None => return Err(talk(io::ErrorKind::UnexpectedEof.into())),
            }
        };
        launcher.finish().await.map_err(&talk)?;
        Ok(parts)
    }

    /// Waits for a dump that an earlier daemon began: until it ends the sandbox is in CRIU's hands.
    pub(crate) async fn await_earlier_dump(&self, id: &SandboxId) {
        if until_free(&self.dump_lock(id), PATIENCE).await.is_err() {
            tracing::error!(sandbox = %id, "a CRIU of an earlier daemon does not end; going on without it");
        }
    }

    fn dump_lock(&self, id: &SandboxId) -> String {
        format!("roost-{}-dump-{id}", self.config.tag)
    }

    pub(crate) fn criu(&self, what: roost_engine::Step) -> Result<Criu, EngineError> {
        self.memory.criu().ok_or_else(|| self.unfit(what, &format!("no CRIU that works: {}", self.memory.finding)))
    }

    fn unfit(&self, what: roost_engine::Step, why: &str) -> EngineError {
        EngineError::Unfit { engine: EngineKind::Native, what, why: why.to_owned() }
    }
}

/// Refuses contents that take more than the room by what can be counted before anything is written.
fn fitting(id: &SandboxId, contents: Contents, room: u64) -> Result<Contents, EngineError> {
    let Contents { deleted, private, .. } = contents;
    if deleted.saturating_add(private) <= room {
        return Ok(contents);
    }
    let (deleted, private, room) = (deleted >> 20, private >> 20, room >> 20);
    let why = if deleted > 0 {
        format!(
            "deleted files that it keeps open take {deleted} MiB beside {private} MiB of memory, and its image may take \
             {room} MiB"
        )
    } else {
        format!(
            "its processes have {private} MiB of memory, counting what they share since a fork for each, and its image \
             may take {room} MiB"
        )
    };
    Err(not_saved(id, None, &why))
}

fn over_room(id: &SandboxId, room: u64) -> EngineError {
    let why = format!(
        "its image would take more than the {} MiB that are left for it; memory that processes share since a fork, and \
         deleted files that are still open, are written in full",
        room >> 20
    );
    not_saved(id, None, &why)
}

fn refused(id: &SandboxId, log: &str, contents: &Contents) -> EngineError {
    let Refusal { pid, why } = Refusal::read(log);
    tracing::debug!(sandbox = %id, log, "criu could not save a sandbox");
    let process = pid.and_then(|pid| contents.processes.iter().find(|(host, _)| *host == pid));
    not_saved(id, process.map(|(_, process)| process), &why)
}

fn not_saved(id: &SandboxId, process: Option<&SavedProcess>, why: &str) -> EngineError {
    let process = process.map(|SavedProcess { pid, name }| format!("{name} (pid {pid})"));
    EngineError::NotSaved { id: id.clone(), process, why: why.to_owned() }
}

/// Waits until nobody holds a lock any more.
pub(super) async fn until_free(lock: &str, patience: Duration) -> Result<(), Elapsed> {
    let free = async {
        while is_taken(lock) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    tokio::time::timeout(patience, free).await
}

pub(super) fn is_taken(name: &str) -> bool {
    let attempt = || {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    };
    attempt() == Err(rustix::io::Errno::ADDRINUSE)
}

/// Which host uid root inside is.
fn uid_base(pid: u32) -> io::Result<u32> {
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    map.split_whitespace().nth(1).and_then(|base| base.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
