//! Describes the sandbox as a machine. An engine on the host's kernel shows files of the guest's in the place of
//! `/proc/meminfo`, `/proc/stat` and others, which speak of the whole host there.
//!
//! The guest knows its limits from the kernel alone: memory and time from its control group, processors from its own affinity. So
//! a changed limit needs no message, and an image brings no old one along. The files are written again at most once a second
//! and only while the sandbox runs; between two writes nothing is done.

mod render;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use roost_sys::cgroup::{CgroupError, Cgroups, Group, Layout, own_processors};
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};

use render::{Load, Sight};

/// The folder of the files, in the guest's own.
const FOLDER: &str = "proc";
const MEMORY: &str = "meminfo";
const LOAD: &str = "loadavg";
const STAT: &str = "stat";
const UPTIME: &str = "uptime";
const PROCESSORS: &str = "cpuinfo";
const ONLINE: &str = "online";

/// The least time between two writes, and so the greatest age of the files.
const PERIOD: Duration = Duration::from_secs(1);

/// Where the sandbox's own control groups are shown.
pub(crate) const GROUPS: &str = "/sys/fs/cgroup";
/// The kernel's number of the newest process of this pid namespace.
const NEWEST: &str = "/proc/sys/kernel/ns_last_pid";

/// Why the files cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineError {
    #[error(transparent)]
    Group(#[from] CgroupError),
    #[error("failed to read or write a file: {0}")]
    File(#[from] io::Error),
}

/// Keeps the files true.
#[derive(Debug)]
pub(crate) struct Machine {
    folder: PathBuf,
    group: Group,
    /// The kernel's words about one processor.
    processor: String,
    /// The processors that the files name.
    named: Vec<usize>,
    load: Load,
    written: Instant,
    /// The CPU time that was used by then.
    used: Duration,
}

impl Machine {
    /// Writes the files for the first time, from the control groups that are shown in `groups`. `None` where the kernel's own are seen, because it is the sandbox's own.
    pub(crate) fn open(run_dir: &Path, groups: &Path) -> Result<Option<Self>, MachineError> {
        let folder = run_dir.join(FOLDER);
        if !folder.is_dir() {
            return Ok(None);
        }
        let processor = fs::read_to_string(folder.join(PROCESSORS)).unwrap_or_default();
        let group = Cgroups::new(Layout::of_shown(groups), "").group("");
        let (written, used) = (Instant::now(), Duration::ZERO);
        let mut machine = Self { folder, group, processor, named: Vec::new(), load: Load::default(), written, used };
        machine.write(written)?;
        Ok(Some(machine))
    }

    /// Returns the time until the next write.
    pub(crate) fn due_in(&self, now: Instant) -> Duration {
        PERIOD.saturating_sub(now.saturating_duration_since(self.written))
    }

    /// Writes the files again if a write is due. A file that cannot be written stays as it is.
    pub(crate) fn renew(&mut self) {
        let now = Instant::now();
        if self.due_in(now).is_zero()
            && let Err(error) = self.write(now)
        {
            eprintln!("roost-guest: failed to describe the machine: {error}");
        }
    }

    fn write(&mut self, now: Instant) -> Result<(), MachineError> {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.written, now));
        let processors = own_processors()?;
        let sight = self.look(processors.clone())?;
        self.load.pass(passed, sight.used().saturating_sub(self.used));
        self.used = sight.used();

        put(&self.folder.join(MEMORY), &render::memory(&sight))?;
        put(&self.folder.join(STAT), &render::stat(&sight))?;
        put(&self.folder.join(UPTIME), &render::uptime(&sight))?;
        put(&self.folder.join(LOAD), &render::load(&self.load, &sight))?;
        if processors != self.named {
            put(&self.folder.join(PROCESSORS), &render::processors(&self.processor, &processors))?;
            put(&self.folder.join(ONLINE), &render::online(&processors))?;
            self.named = processors;
        }
        Ok(())
    }

    fn look(&self, processors: Vec<usize>) -> Result<Sight, MachineError> {
        let system = rustix::system::sysinfo();
        let since_start = clock_gettime(ClockId::Boottime);
        let uptime = Duration::try_from(since_start).unwrap_or_default();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(uptime);
        Ok(Sight {
            memory: self.group.memory()?,
            host_memory: u64::from(system.mem_unit).saturating_mul(system.totalram),
            cpu: self.group.cpu()?,
            threads: self.group.threads_count()?,
            newest: fs::read_to_string(NEWEST).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            processors,
            uptime,
            started,
        })
    }
}

/// Changes a file in place, because that very file is shown. A file that root inside has removed is not made again. Where root
/// has put a pipe or a link, the open fails and does not wait.
fn put(path: &Path, text: &str) -> io::Result<()> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    file.write_all_at(text.as_bytes(), 0)?;
    let length = u64::try_from(text.len()).map_err(io::Error::other)?;
    if file.metadata()?.len() != length {
        file.set_len(length)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn no_machine_is_described_without_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Machine::open(folder.path(), folder.path()).unwrap().is_none());
    }

    #[test]
    fn file_is_changed_in_place_and_never_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        put(&path, "new").unwrap();
        assert!(!path.exists());
        fs::write(&path, "a longer text").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        put(&path, "short").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[test]
    fn pipe_or_link_in_the_place_of_a_file_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (pipe, link, far) = (folder.path().join("pipe"), folder.path().join("link"), folder.path().join("far"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        fs::write(&far, "far").unwrap();
        std::os::unix::fs::symlink(&far, &link).unwrap();
        assert!(put(&pipe, "text").is_err() && put(&link, "text").is_err());
        assert_eq!(fs::read_to_string(&far).unwrap(), "far");
    }

    #[test]
    fn files_are_written_at_most_once_a_period() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join(FOLDER);
        fs::create_dir(&files).unwrap();
        for name in [MEMORY, LOAD, STAT, UPTIME, ONLINE] {
            fs::write(files.join(name), "").unwrap();
        }
        fs::write(files.join(PROCESSORS), "processor\t: 0\nmodel name\t: x\n").unwrap();
        let groups = folder.path().join("groups");
        fs::create_dir(&groups).unwrap();
        let shown = [
            ("memory.max", "536870912\n"),
            ("memory.current", "1048576\n"),
            ("memory.stat", "anon 524288\n"),
            ("cpu.max", "50000 100000\n"),
            ("cpu.stat", "user_usec 1000000\nsystem_usec 500000\n"),
            ("pids.max", "64\n"),
            ("pids.current", "3\n"),
        ];
        for (name, text) in shown {
            fs::write(groups.join(name), text).unwrap();
        }
        let mut machine = Machine::open(folder.path(), &groups).unwrap().unwrap();
        let read = |name| fs::read_to_string(files.join(name)).unwrap();
        assert!(read(MEMORY).starts_with("MemTotal:         524288 kB\n"), "{}", read(MEMORY));
        assert!(read(STAT).starts_with("cpu  100 0 50 ") && read(LOAD).contains(" 1/3 "), "{}", read(STAT));
        assert_eq!(read(PROCESSORS).matches("model name").count(), own_processors().unwrap().len());

        fs::write(files.join(MEMORY), "").unwrap();
        machine.renew();
        assert_eq!(read(MEMORY), "");
        assert!(machine.due_in(Instant::now()) <= PERIOD);
        machine.written = machine.written.checked_sub(PERIOD).unwrap();
        machine.renew();
        assert!(read(MEMORY).starts_with("MemTotal:"));
    }
}
