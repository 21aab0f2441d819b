//! One sandbox's folders, and the instance's folders they live in.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use super::layout::{Home, Layout};
use super::{CgroupError, read_value, write_value};

/// A frozen group that does not settle within this time holds a task the kernel cannot stop.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// A group stays busy for a moment after its last process was reaped.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The sandboxes of an instance may have this part of the host's processes and threads; a daemon has two instances, one for each
/// engine.
const SHARE: (u64, u64) = (3, 8);

/// The folder of one instance in every hierarchy in use.
#[derive(Debug, Clone)]
pub struct Cgroups {
    layout: Arc<Layout>,
    folder: String,
}

impl Cgroups {
    /// Names the instance's folder; touches nothing.
    pub fn new(layout: Layout, folder: &str) -> Self {
        Self { layout: Arc::new(layout), folder: folder.to_owned() }
    }

    /// Where each concern lives.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Makes the instance's folders and hands the controllers down to what is made in them; idempotent.
    pub fn prepare(&self) -> Result<(), CgroupError> {
        for home in self.layout.homes() {
            let folder = home.mount().join(&self.folder);
            make_folder(&folder)?;
            if let Home::V2(mount) = home {
                for controller in self.unified_controllers(home) {
                    let value = format!("+{controller}");
                    write_value(&mount.join("cgroup.subtree_control"), &value)?;
                    write_value(&folder.join("cgroup.subtree_control"), &value)?;
                }
            }
        }
        self.leave_processes_to_the_host()
    }

    /// However many sandboxes each reach their own limit, the host can still start processes.
    fn leave_processes_to_the_host(&self) -> Result<(), CgroupError> {
        let Some(home) = &self.layout.pids else { return Ok(()) };
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?.trim().parse().ok()
        };
        let Some(all) = number("pid_max").into_iter().chain(number("threads-max")).min() else { return Ok(()) };
        let share = (all / SHARE.1 * SHARE.0).to_string();
        write_value(&home.mount().join(&self.folder).join("pids.max"), &share)
    }

    fn unified_controllers(&self, unified: &Home) -> Vec<&'static str> {
        [("memory", &self.layout.memory), ("cpu", &self.layout.cpu), ("pids", &self.layout.pids)]
            .into_iter()
            .filter(|(_, home)| home.as_ref() == Some(unified))
            .map(|(name, _)| name)
            .collect()
    }

    /// The group called `name`, whether it exists or not.
    pub fn group(&self, name: &str) -> Group {
        Group { layout: Arc::clone(&self.layout), relative: PathBuf::from(&self.folder).join(name) }
    }

    /// Names of all groups of this instance, in any hierarchy.
    pub fn names(&self) -> Result<Vec<String>, CgroupError> {
        let mut names = BTreeSet::new();
        for home in self.layout.homes() {
            let folder = home.mount().join(&self.folder);
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(CgroupError::new("list", &folder, e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| CgroupError::new("list", &folder, e))?;
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    names.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    /// Removes the instance's own folders, which must be empty; idempotent.
    pub fn remove(&self) -> Result<(), CgroupError> {
        for home in self.layout.homes() {
            remove_folder(&home.mount().join(&self.folder))?;
        }
        Ok(())
    }
}

/// One sandbox's folder in every hierarchy in use.
#[derive(Debug, Clone)]
pub struct Group {
    layout: Arc<Layout>,
    relative: PathBuf,
}

impl Group {
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn folder(&self, home: Option<&Home>) -> Option<PathBuf> {
        home.map(|home| home.mount().join(&self.relative))
    }

    fn folders(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.layout.homes().into_iter().map(|home| home.mount().join(&self.relative))
    }

    fn v1_folders(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.layout
            .homes()
            .into_iter()
            .filter(|home| matches!(home, Home::V1(_)))
            .map(|home| home.mount().join(&self.relative))
    }

    /// Makes the group in the v1 hierarchies only, to be joined ahead of time.
    pub fn create_v1(&self) -> Result<(), CgroupError> {
        self.v1_folders().try_for_each(|folder| make_folder(&folder))
    }

    /// Makes the group in every hierarchy; what exists already stays.
    pub fn create(&self) -> Result<(), CgroupError> {
        self.folders().try_for_each(|folder| make_folder(&folder))
    }

    /// Gives the v1 folders, with the processes in them, the name of `target`; what is left of an earlier one of that name
    /// must be empty.
    pub fn rename_v1(&self, target: &Self) -> Result<(), CgroupError> {
        for (from, to) in self.v1_folders().zip(target.v1_folders()) {
            let renamed = match fs::rename(&from, &to) {
                // Whoever removed it was killed half-way through the hierarchies.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    remove_folder(&to)?;
                    fs::rename(&from, &to)
                }
                renamed => renamed,
            };
            renamed.map_err(|e| CgroupError::new("rename control group", &from, e))?;
        }
        Ok(())
    }

    /// Makes the group out of `from`, with the processes in it: by its name in the v1 hierarchies, one by one in v2, where a group
    /// keeps its name. Nothing is left of `from`.
    pub fn take_over(&self, from: &Self) -> Result<(), CgroupError> {
        from.rename_v1(self)?;
        if let (Some(old), Some(new)) = (from.unified_folder(), self.unified_folder()) {
            make_folder(&new)?;
            let (members, join) = (old.join("cgroup.procs"), new.join("cgroup.procs"));
            // Those that were born meanwhile are seen the next time.
            loop {
                let pids = read_value(&members)?;
                if pids.is_empty() {
                    break;
                }
                for pid in pids.lines() {
                    match write_value(&join, pid) {
                        // It has just ended.
                        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                        moved => moved?,
                    }
                }
            }
        }
        from.remove()
    }

    /// The files that a process writes `0` into to join the group in the v1 hierarchies.
    pub fn join_files(&self) -> Vec<PathBuf> {
        self.v1_folders().map(|folder| folder.join("cgroup.procs")).collect()
    }

    /// The v2 folder, for a process to be born in; `None` if v2 is not in use.
    pub fn unified_folder(&self) -> Option<PathBuf> {
        self.layout
            .homes()
            .into_iter()
            .find(|home| matches!(home, Home::V2(_)))
            .map(|home| home.mount().join(&self.relative))
    }

    /// Opens the v2 folder for `clone3`.
    pub fn open_unified(folder: &std::path::Path) -> Result<OwnedFd, CgroupError> {
        rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| CgroupError::new("open control group", folder, e))
    }

    /// Whether the group exists in any hierarchy.
    pub fn exists(&self) -> bool {
        self.folders().any(|folder| folder.exists())
    }

    /// All processes in the group, in any hierarchy.
    pub fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = BTreeSet::new();
        for folder in self.folders() {
            let file = folder.join("cgroup.procs");
            match fs::read_to_string(&file) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok())),
                Err(e) if is_gone(&e) => {}
                Err(e) => return Err(CgroupError::new("read control file", &file, e)),
            }
        }
        // Processes of a foreign pid namespace read as 0.
        pids.remove(&0);
        Ok(pids.into_iter().collect())
    }

    /// Stops all processes where they are; returns when they stand still. On failure they run again.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        let Some((file, frozen, thawed)) = self.freezer() else {
            let cause = io::Error::from(io::ErrorKind::Unsupported);
            return Err(CgroupError::new("freeze control group", &self.relative, cause));
        };
        let deadline = Instant::now() + FREEZE_TIMEOUT;
        let mut pause = Duration::from_micros(100);
        loop {
            // v1 looks again for tasks that slipped through (a fork in flight) when told again.
            write_value(&file, frozen)?;
            if self.is_frozen()? {
                return Ok(());
            }
            if Instant::now() > deadline {
                write_value(&file, thawed)?;
                let cause = io::Error::from(io::ErrorKind::TimedOut);
                return Err(CgroupError::new("freeze control group", &self.relative, cause));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    /// Lets frozen processes go on; nothing to do if they run or are gone.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        let Some((file, _, thawed)) = self.freezer() else {
            return Ok(());
        };
        match write_value(&file, thawed) {
            Err(e) if is_gone(&e.source) => Ok(()),
            other => other,
        }
    }

    /// Whether all processes of the group stand still.
    pub fn is_frozen(&self) -> Result<bool, CgroupError> {
        let Some(folder) = self.folder(self.layout.freezer.as_ref()) else {
            return Ok(false);
        };
        Ok(match &self.layout.freezer {
            Some(Home::V1(_)) => read_value(&folder.join("freezer.state"))?.trim() == "FROZEN",
            _ => read_value(&folder.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"),
        })
    }

    /// The folder whose processes are frozen together; `None` if the host has no freezer.
    pub fn freezer_folder(&self) -> Option<PathBuf> {
        self.folder(self.layout.freezer.as_ref())
    }

    fn freezer(&self) -> Option<(PathBuf, &'static str, &'static str)> {
        let folder = self.folder(self.layout.freezer.as_ref())?;
        Some(match &self.layout.freezer {
            Some(Home::V1(_)) => (folder.join("freezer.state"), "FROZEN", "THAWED"),
            _ => (folder.join("cgroup.freeze"), "1", "0"),
        })
    }

    /// Removes the group everywhere; waits a little for processes that are just ending. Idempotent.
    pub fn remove(&self) -> Result<(), CgroupError> {
        self.folders().try_for_each(|folder| remove_folder(&folder))
    }
}

fn make_folder(folder: &std::path::Path) -> Result<(), CgroupError> {
    match fs::create_dir(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(CgroupError::new("create control group", folder, e)),
        _ => Ok(()),
    }
}

fn remove_folder(folder: &std::path::Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + REMOVE_TIMEOUT;
    let mut pause = Duration::from_micros(100);
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(e) if is_gone(&e) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            Err(e) => return Err(CgroupError::new("remove control group", folder, e)),
        }
    }
}

/// A control file of a group that was removed after it was opened reads as `ENODEV`.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
}
