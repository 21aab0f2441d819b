//! A memory limit that is raised for a while.
//!
//! The usual path: [`Group::widen_memory`] notes the limit in force as an attribute of the group's own folder, then raises
//! it; [`Group::bound_memory`] lowers it to the present use and some slack; [`Group::narrow_memory`] puts the noted limit back
//! and removes the note once the use fits. [`Group::enforce_memory`] puts it back whether the use fits or not. The note lives
//! as long as the group, so a process that finds the group later can put the limit back for a process that died.
//!
//! ```text
//! in force -> widened -> bounded -> in force, when the use fits or by enforcement
//! ```

use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::layout::Home;
use super::limits::{keyed, number, set_memory_v1, set_memory_v2};
use super::{CgroupError, Group};

/// The attribute that holds the limit to put back, in bytes.
const NOTE: &str = "trusted.roost.memory";
/// Bytes below the noted limit that a group leaves unused before the limit is put back without force.
const MARGIN: u64 = 8 << 20;

impl Group {
    /// Raises the memory limit to what `wider` makes of it, in bytes, until [`Group::narrow_memory`].
    ///
    /// A group whose limit is raised already keeps the note of its first limit, which `wider` gets.
    pub fn widen_memory(&self, wider: impl FnOnce(u64) -> u64) -> Result<(), CgroupError> {
        let Some((folder, present)) = self.memory_limit()? else { return Ok(()) };
        let noted = noted(&folder)?;
        let limit = noted.unwrap_or(present);
        if noted.is_none() {
            let written = setxattr(&folder, NOTE, limit.to_string().as_bytes(), XattrFlags::empty());
            written.map_err(|error| CgroupError::new("note the memory limit of", &folder, error))?;
        }
        self.set_memory(&folder, wider(limit).max(present))
    }

    /// Lowers a raised limit to the present use and `slack` bytes, but not below the noted limit.
    ///
    /// The limit never rises by this, so what the group takes after the first call does not count in a later one.
    pub fn bound_memory(&self, slack: u64) -> Result<(), CgroupError> {
        let Some((folder, present)) = self.memory_limit()? else { return Ok(()) };
        let Some(limit) = noted(&folder)? else { return Ok(()) };
        let bound = limit.max(self.memory_held()?.saturating_add(slack));
        if bound >= present {
            return Ok(());
        }
        self.try_set_memory(&folder, bound).map(drop)
    }

    /// Puts the noted limit back if the group's use fits. Returns whether it is in force.
    ///
    /// A limit below the use would end processes on v2 and be refused on v1. The limit then stays as it is.
    pub fn narrow_memory(&self) -> Result<bool, CgroupError> {
        let Some((folder, _)) = self.memory_limit()? else { return Ok(true) };
        let Some(limit) = noted(&folder)? else { return Ok(true) };
        if !fits(limit, self.memory_held()?) || !self.try_set_memory(&folder, limit)? {
            return Ok(false);
        }
        self.forget_widening()?;
        Ok(true)
    }

    /// Puts the noted limit back, whatever the group uses. Returns whether it is in force.
    ///
    /// The kernel ends processes of a group that uses more on v2. On v1 the kernel refuses the limit, and it is up to the
    /// caller to end them.
    pub fn enforce_memory(&self) -> Result<bool, CgroupError> {
        let Some((folder, _)) = self.memory_limit()? else { return Ok(true) };
        let Some(limit) = noted(&folder)? else { return Ok(true) };
        if !self.try_set_memory(&folder, limit)? {
            return Ok(false);
        }
        self.forget_widening()?;
        Ok(true)
    }

    /// Returns the limit to put back; `None` for a group whose limit is not raised.
    pub fn noted_memory(&self) -> Result<Option<u64>, CgroupError> {
        match self.folder(self.layout().memory.as_ref()) {
            Some(folder) => noted(&folder),
            None => Ok(None),
        }
    }

    /// Makes the present limit the group's own: there is nothing to put back any more.
    pub fn forget_widening(&self) -> Result<(), CgroupError> {
        let Some(folder) = self.folder(self.layout().memory.as_ref()) else { return Ok(()) };
        match removexattr(&folder, NOTE) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(CgroupError::new("forget the memory limit of", &folder, error)),
        }
    }

    /// Returns how many processes the memory limit has ended.
    pub fn oom_kills(&self) -> Result<u64, CgroupError> {
        let Some(folder) = self.folder(self.layout().memory.as_ref()) else { return Ok(0) };
        let events = if self.has_v1_memory() { "memory.oom_control" } else { "memory.events" };
        keyed(&folder.join(events), "oom_kill")
    }

    fn has_v1_memory(&self) -> bool {
        matches!(self.layout().memory, Some(Home::V1(_)))
    }

    /// The folder that holds the memory limit, and the limit; `None` on a host that limits no memory.
    fn memory_limit(&self) -> Result<Option<(PathBuf, u64)>, CgroupError> {
        let Some(folder) = self.folder(self.layout().memory.as_ref()) else { return Ok(None) };
        let file = folder.join(if self.has_v1_memory() { "memory.limit_in_bytes" } else { "memory.max" });
        let limit = match number(&file) {
            // v2 writes `max` for a group without a limit.
            Err(error) if error.raw_os_error().is_none() => u64::MAX,
            read => read?,
        };
        Ok(Some((folder, limit)))
    }

    /// The bytes in use that the group cannot give back by dropping caches.
    fn memory_held(&self) -> Result<u64, CgroupError> {
        let usage = self.usage()?;
        Ok(usage.memory.saturating_sub(usage.file_cache))
    }

    /// Sets a limit; `false` if the group uses more and the hierarchy refuses such a limit.
    fn try_set_memory(&self, folder: &Path, bytes: u64) -> Result<bool, CgroupError> {
        match self.set_memory(folder, bytes) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    fn set_memory(&self, folder: &Path, bytes: u64) -> Result<(), CgroupError> {
        if self.has_v1_memory() { set_memory_v1(folder, bytes) } else { set_memory_v2(folder, bytes) }
    }
}

fn noted(folder: &Path) -> Result<Option<u64>, CgroupError> {
    let mut text = [0; 20];
    match getxattr(folder, NOTE, &mut text) {
        Ok(length) => {
            let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
            Ok(text.and_then(|text| text.parse().ok()))
        }
        // A folder that takes no attributes was never widened.
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(CgroupError::new("read the noted memory limit of", folder, error)),
    }
}

/// Whether a group that holds `in_use` bytes can go on at `limit`.
fn fits(limit: u64, in_use: u64) -> bool {
    in_use.saturating_add(MARGIN) <= limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{Cgroups, GroupLimits, Layout};

    #[test]
    fn limit_fits_a_use_below_it_by_a_margin() {
        assert!(fits(100 << 20, 20 << 20) && fits(100 << 20, 92 << 20));
        assert!(!fits(100 << 20, 93 << 20) && !fits(100 << 20, u64::MAX));
    }

    /// Needs root. The group has no process, so that every limit fits.
    #[test]
    fn raised_limit_is_put_back_by_another_handle() {
        let name = format!("roost-widen-{}", std::process::id());
        let cgroups = Cgroups::new(Layout::detect().unwrap(), &name);
        cgroups.prepare().unwrap();
        let group = cgroups.group("one");
        group.create().unwrap();
        group.set_limits(&GroupLimits { memory: 64 << 20, milli_cpus: 1000, pids: 64 }).unwrap();
        let limit = || group.memory_limit().unwrap().map(|(_, limit)| limit);

        let narrowed_before = group.narrow_memory().unwrap();
        group.widen_memory(|limit| limit * 4).unwrap();
        let raised = (limit(), group.noted_memory().unwrap().is_some());
        group.widen_memory(|limit| limit * 2).unwrap();
        let narrowed = cgroups.group("one").narrow_memory().unwrap();
        let back = (limit(), group.noted_memory().unwrap().is_some());
        group.remove().unwrap();
        cgroups.remove().unwrap();
        if back.0.is_some() {
            assert!(narrowed_before && narrowed);
            assert_eq!((raised, back), ((Some(256 << 20), true), (Some(64 << 20), false)));
        }
    }

    /// Needs root. A child process of the group holds 64 MiB, twice the noted limit.
    #[test]
    fn bound_never_rises_and_the_noted_limit_wins_in_the_end() {
        let name = format!("roost-bound-{}", std::process::id());
        let cgroups = Cgroups::new(Layout::detect().unwrap(), &name);
        cgroups.prepare().unwrap();
        let group = cgroups.group("one");
        group.create().unwrap();
        group.set_limits(&GroupLimits { memory: 32 << 20, milli_cpus: 1000, pids: 64 }).unwrap();
        group.widen_memory(|limit| limit * 8).unwrap();
        let mut child = holder(&group, 64);
        let limit = || group.memory_limit().unwrap().map_or(0, |(_, limit)| limit >> 20);

        group.bound_memory(16 << 20).unwrap();
        let first = limit();
        group.bound_memory(64 << 20).unwrap();
        let second = limit();
        let (fitted, enforced) = (group.narrow_memory().unwrap(), group.enforce_memory().unwrap());
        let left = (limit(), group.noted_memory().unwrap().is_some());
        child.kill().ok();
        child.wait().unwrap();
        let (fitted_then, last) = (group.narrow_memory().unwrap(), (limit(), group.noted_memory().unwrap().is_some()));
        group.remove().unwrap();
        cgroups.remove().unwrap();
        if first > 0 {
            assert!((80..96).contains(&first), "{first}");
            assert_eq!((second, fitted), (first, false));
            // v2 ends processes for the limit, v1 refuses it.
            assert_eq!(left, if enforced { (32, false) } else { (first, true) });
            assert_eq!((fitted_then, last), (true, (32, false)));
        }
    }

    /// A process in the group that holds so many MiB of memory.
    fn holder(group: &Group, mib: usize) -> std::process::Child {
        use std::io::Read as _;
        let mut files = group.join_files();
        files.extend(group.unified_folder().map(|folder| folder.join("cgroup.procs")));
        let joins: String = files.iter().map(|file| format!("echo 0 > {}; ", file.display())).collect();
        let script = format!("{joins} x=$(head -c {} /dev/zero | tr '\\0' x); echo; read _", mib << 20);
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(script).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        child
    }
}
