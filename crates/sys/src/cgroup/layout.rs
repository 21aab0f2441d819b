//! Finds out which hierarchy serves which concern.

use std::path::{Path, PathBuf};

use super::{CgroupError, read_value};
use crate::mount::{MountEntry, mount_table};

/// The hierarchy that serves a concern, by its mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// A v1 hierarchy of its own or shared with other controllers.
    V1(PathBuf),
    /// The unified hierarchy.
    V2(PathBuf),
}

impl Home {
    /// Where the hierarchy is mounted.
    pub fn mount(&self) -> &Path {
        match self {
            Self::V1(path) | Self::V2(path) => path,
        }
    }
}

/// Where each concern lives; `None` is a concern this host does not serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Memory limit and usage.
    pub memory: Option<Home>,
    /// CPU quota.
    pub cpu: Option<Home>,
    /// CPU time used.
    pub accounting: Option<Home>,
    /// Number of processes and threads.
    pub pids: Option<Home>,
    /// Freezing.
    pub freezer: Option<Home>,
}

impl Layout {
    /// Reads this host's mounts.
    pub fn detect() -> Result<Self, CgroupError> {
        let mounts = mount_table().map_err(|e| {
            let cause = e
                .raw_os_error()
                .map_or_else(|| std::io::Error::other(e.to_string()), std::io::Error::from_raw_os_error);
            CgroupError::new("read mount table", Path::new("/proc/self/mountinfo"), cause)
        })?;
        let controllers = match mounts.iter().find(|m| m.kind == "cgroup2") {
            Some(unified) => read_value(&unified.target.join("cgroup.controllers"))?,
            None => String::new(),
        };
        Ok(Self::from_mounts(&mounts, &controllers))
    }

    /// A controller mounted as v1 is not available to v2, so v1 is asked first; that also prefers the v1 freezer, whose thaw
    /// is quicker.
    fn from_mounts(mounts: &[MountEntry], unified_controllers: &str) -> Self {
        let v1 = |controller: &str| {
            mounts
                .iter()
                .find(|m| m.kind == "cgroup" && m.super_options.split(',').any(|o| o == controller))
                .map(|m| Home::V1(m.target.clone()))
        };
        let unified = mounts.iter().find(|m| m.kind == "cgroup2").map(|m| Home::V2(m.target.clone()));
        let v2 = |controller: &str| {
            unified.clone().filter(|_| unified_controllers.split_whitespace().any(|c| c == controller))
        };
        Self {
            memory: v1("memory").or_else(|| v2("memory")),
            cpu: v1("cpu").or_else(|| v2("cpu")),
            // Time used and freezing are part of v2's core, whatever its controllers.
            accounting: v1("cpuacct").or_else(|| unified.clone()),
            pids: v1("pids").or_else(|| v2("pids")),
            freezer: v1("freezer").or_else(|| unified.clone()),
        }
    }

    /// Every hierarchy in use, once.
    pub fn homes(&self) -> Vec<&Home> {
        let mut homes: Vec<&Home> = Vec::new();
        for home in [&self.memory, &self.cpu, &self.accounting, &self.pids, &self.freezer].into_iter().flatten() {
            if !homes.contains(&home) {
                homes.push(home);
            }
        }
        homes
    }

    /// The concerns that this host does not serve.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("memory", &self.memory),
            ("cpu", &self.cpu),
            ("cpu accounting", &self.accounting),
            ("pids", &self.pids),
            ("freezer", &self.freezer),
        ]
        .into_iter()
        .filter(|(_, home)| home.is_none())
        .map(|(name, _)| name)
        .collect()
    }

    /// `v1`, `v2` or `mixed`, by what is used.
    pub fn describe(&self) -> &'static str {
        let homes = self.homes();
        let v2 = homes.iter().filter(|h| matches!(h, Home::V2(_))).count();
        match (homes.len(), v2) {
            (0, _) => "none",
            (_, 0) => "v1",
            (all, v2) if all == v2 => "v2",
            _ => "mixed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &str, target: &str, super_options: &str) -> MountEntry {
        MountEntry {
            id: 1,
            parent: 0,
            device: (0, 1),
            root: "/".into(),
            target: target.into(),
            options: "rw".into(),
            kind: kind.into(),
            source: kind.into(),
            super_options: super_options.into(),
        }
    }

    #[test]
    fn v1_controllers_with_a_bare_v2() {
        let mounts = [
            entry("cgroup", "/c/cpu,cpuacct", "rw,cpu,cpuacct"),
            entry("cgroup", "/c/memory", "rw,memory"),
            entry("cgroup", "/c/pids", "rw,pids"),
            entry("cgroup", "/c/freezer", "rw,freezer"),
            entry("cgroup2", "/c/unified", "rw"),
        ];
        let layout = Layout::from_mounts(&mounts, "hugetlb\n");
        assert_eq!(layout.describe(), "v1");
        assert_eq!(layout.cpu, layout.accounting);
        assert_eq!(layout.homes().len(), 4);
        assert!(layout.missing().is_empty());
    }

    #[test]
    fn v2_alone_serves_everything() {
        let mounts = [entry("cgroup2", "/c", "rw,nsdelegate")];
        let layout = Layout::from_mounts(&mounts, "cpuset cpu io memory pids\n");
        assert_eq!(layout.describe(), "v2");
        assert_eq!(layout.homes(), [&Home::V2("/c".into())]);
        assert!(layout.missing().is_empty());
    }

    #[test]
    fn mixed_takes_from_v2_what_v1_has_not() {
        let mounts = [entry("cgroup", "/c/memory", "rw,memory"), entry("cgroup2", "/c/unified", "rw")];
        let layout = Layout::from_mounts(&mounts, "cpu pids");
        assert_eq!(layout.describe(), "mixed");
        assert_eq!(layout.freezer, Some(Home::V2("/c/unified".into())));
        assert_eq!(layout.memory, Some(Home::V1("/c/memory".into())));
    }

    #[test]
    fn without_mounts_everything_is_missing() {
        assert_eq!(Layout::from_mounts(&[], "").missing().len(), 5);
        assert_eq!(Layout::default().describe(), "none");
    }

    #[test]
    fn this_host_has_a_layout() {
        assert_ne!(Layout::detect().unwrap().describe(), "none");
    }
}
