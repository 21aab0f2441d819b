//! Control groups on v1, v2 and mixed hosts: limits, freezing, usage and clean removal.
//!
//! [`Layout`] says where each concern lives on this host, [`Cgroups`] is the folder of one instance in every hierarchy in
//! use, [`Group`] one sandbox's folder in each of them:
//!
//! ```text
//! v1     /sys/fs/cgroup/<controller>/roost-<tag>/<name>     one folder per mounted hierarchy
//! v2     /sys/fs/cgroup/roost-<tag>/<name>                  one folder for all
//! mixed  v1 folders for the controllers mounted there, one v2 folder if any concern is left to v2
//! ```
//!
//! On v1 a process that joins a group takes a lock whose first taker waits for a grace period of RCU: 8 to 20 ms on an
//! idle machine, while joins right after it cost 10 µs. So a joined group is worth keeping in reserve, and
//! [`Group::rename_v1`] lets it get its final name when it is needed. v2 has no such cost for a process born in its
//! group, and no renaming.

mod account;
mod confine;
mod group;
mod layout;
mod limits;
mod shown;
#[cfg(test)]
mod tests;
mod widen;

use std::io;
use std::path::{Path, PathBuf};

pub use account::{GroupCpu, GroupMemory};
pub use confine::{confine_self, own_processors};
pub use group::{Cgroups, Group};
pub use layout::{Home, Layout};
pub use limits::{GroupCounters, GroupLimits, GroupUsage};

/// A control group operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt} `{}`", path.display())]
pub struct CgroupError {
    attempt: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl CgroupError {
    fn new(attempt: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { attempt, path: path.to_owned(), source: source.into() }
    }

    /// The errno behind the failure.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.raw_os_error()
    }
}

fn write_value(path: &Path, value: &str) -> Result<(), CgroupError> {
    use std::io::Write;
    // Neither created nor truncated: a control file exists or the kernel does not know it.
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()))
        .map_err(|e| CgroupError::new("write control file", path, e))
}

fn read_value(path: &Path) -> Result<String, CgroupError> {
    std::fs::read_to_string(path).map_err(|e| CgroupError::new("read control file", path, e))
}
