//! A memory limit that is raised for a while.
//!
//! The usual path: [`Group::widen_memory`] notes the limit in force as an attribute of the group's own folder, then raises
//! it; [`Group::narrow_memory`] puts the noted limit back and removes the note. The note lives as long as the group, so a
//! process that finds the group later can put the limit back for a process that died.

use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::layout::Home;
use super::limits::{keyed, number, set_memory_v1, set_memory_v2};
use super::{CgroupError, Group};

/// The attribute that holds the limit to put back, in bytes.
const NOTE: &str = "trusted.roost.memory";
/// Bytes that a group may use beyond its present use while its limit cannot be put back yet.
const SLACK: u64 = 8 << 20;

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

    /// Puts the limit back that [`Group::widen_memory`] raised. Returns whether it is in force.
    ///
    /// A limit below what is in use would end processes on v2 and be refused on v1. The group then gets a limit just above
    /// its use, keeps its note, and can be narrowed again later.
    pub fn narrow_memory(&self) -> Result<bool, CgroupError> {
        let Some((folder, present)) = self.memory_limit()? else { return Ok(true) };
        let Some(limit) = noted(&folder)? else { return Ok(true) };
        let usage = self.usage()?;
        let fitting = limit_that_fits(limit, usage.memory.saturating_sub(usage.file_cache));
        match self.set_memory(&folder, fitting.min(present)) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(false),
            outcome => outcome?,
        }
        if fitting == limit {
            self.forget_widening()?;
        }
        Ok(fitting == limit)
    }

    /// Whether the memory limit is raised.
    pub fn is_widened(&self) -> Result<bool, CgroupError> {
        match self.folder(self.layout().memory.as_ref()) {
            Some(folder) => Ok(noted(&folder)?.is_some()),
            None => Ok(false),
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

/// The limit to set for a group that should have `limit` and uses `in_use` bytes that it cannot give back.
fn limit_that_fits(limit: u64, in_use: u64) -> u64 {
    limit.max(in_use.saturating_add(SLACK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{Cgroups, GroupLimits, Layout};

    #[test]
    fn limit_below_the_use_is_put_back_step_by_step() {
        assert_eq!(limit_that_fits(100 << 20, 20 << 20), 100 << 20);
        assert_eq!(limit_that_fits(100 << 20, 92 << 20), 100 << 20);
        assert_eq!(limit_that_fits(100 << 20, 120 << 20), 128 << 20);
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
        let raised = (limit(), group.is_widened().unwrap());
        group.widen_memory(|limit| limit * 2).unwrap();
        let narrowed = cgroups.group("one").narrow_memory().unwrap();
        let back = (limit(), group.is_widened().unwrap());
        group.remove().unwrap();
        cgroups.remove().unwrap();
        if back.0.is_some() {
            assert!(narrowed_before && narrowed);
            assert_eq!((raised, back), ((Some(256 << 20), true), (Some(64 << 20), false)));
        }
    }
}
