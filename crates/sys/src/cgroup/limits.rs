//! Limits and usage in the words of each hierarchy version.

use std::path::Path;

use super::layout::Home;
use super::{CgroupError, Group, read_value, write_value};
use crate::process::innermost_pid;

/// The period over which a CPU quota is counted; the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// The kernel takes no quota below this.
const CPU_QUOTA_MIN_US: u64 = 1_000;

/// Sockets may hold this part of a group's memory limit where they have a limit of their own.
const SOCKET_PART: u64 = 4;

/// What a group may use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupLimits {
    /// Bytes of memory; swap is not given on top.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// What a group uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// CPU time since birth, in microseconds.
    pub cpu_us: u64,
    /// Bytes of memory, page cache included.
    pub memory: u64,
    /// Bytes of page cache that files on disk can give back.
    pub file_cache: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Processes killed because the memory limit was reached.
    pub oom_kills: u64,
    /// Processes that were not made because the limit was reached.
    pub pids_refused: u64,
    /// Bytes that sockets hold.
    pub sockets: u64,
}

impl Group {
    /// Puts limits in force; concerns that the host does not serve are left out.
    pub fn set_limits(&self, limits: &GroupLimits) -> Result<(), CgroupError> {
        if let Some(folder) = self.folder(self.layout().memory.as_ref()) {
            match &self.layout().memory {
                Some(Home::V1(_)) => set_memory_v1(&folder, limits.memory)?,
                _ => set_memory_v2(&folder, limits.memory)?,
            }
        }
        if let Some(folder) = self.folder(self.layout().cpu.as_ref()) {
            let quota = (limits.milli_cpus * CPU_PERIOD_US / 1000).max(CPU_QUOTA_MIN_US);
            match &self.layout().cpu {
                Some(Home::V1(_)) => write_value(&folder.join("cpu.cfs_quota_us"), &quota.to_string())?,
                _ => write_value(&folder.join("cpu.max"), &format!("{quota} {CPU_PERIOD_US}"))?,
            }
        }
        if let Some(folder) = self.folder(self.layout().pids.as_ref()) {
            write_value(&folder.join("pids.max"), &limits.pids.to_string())?;
        }
        Ok(())
    }

    /// Reads what the group uses; a concern that the host does not serve reads as 0.
    pub fn usage(&self) -> Result<GroupUsage, CgroupError> {
        let mut usage = GroupUsage { cpu_us: self.cpu_us()?, ..GroupUsage::default() };
        if let Some(folder) = self.folder(self.layout().memory.as_ref()) {
            let (current, prefix, events) = match &self.layout().memory {
                Some(Home::V1(_)) => ("memory.usage_in_bytes", "total_", "memory.oom_control"),
                _ => ("memory.current", "", "memory.events"),
            };
            usage.memory = number(&folder.join(current))?;
            let stat = read_value(&folder.join("memory.stat"))?;
            usage.file_cache =
                field(&stat, &format!("{prefix}active_file")) + field(&stat, &format!("{prefix}inactive_file"));
            usage.oom_kills = keyed(&folder.join(events), "oom_kill")?;
            usage.sockets = match &self.layout().memory {
                // Not every kernel counts them.
                Some(Home::V1(_)) => number(&folder.join("memory.kmem.tcp.usage_in_bytes")).unwrap_or_default(),
                _ => field(&stat, "sock"),
            };
        }
        if let Some(folder) = self.folder(self.layout().pids.as_ref()) {
            usage.pids = number(&folder.join("pids.current"))?;
            // Old kernels do not count them.
            usage.pids_refused = keyed(&folder.join("pids.events"), "max").unwrap_or_default();
        }
        Ok(usage)
    }
}

/// What the processes of a group have used since their birth, for a look every few seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// CPU time, in microseconds.
    pub cpu_us: u64,
    /// Bytes that living processes read from and wrote to disk.
    pub disk: u64,
    /// Bytes that came in and went out by any device but the loopback.
    pub network: u64,
}

impl Group {
    /// Reads what the group has used; what the host does not tell reads as 0.
    ///
    /// Disk and network are read from the processes themselves, because the controllers that count them are in few hosts'
    /// hierarchies. The bytes of a process are gone with it, which one look sees as less and the next no more.
    pub fn counters(&self) -> Result<GroupCounters, CgroupError> {
        let cpu_us = self.cpu_us()?;
        let pids = self.pids()?;
        let disk = pids.iter().map(|pid| disk_bytes(&proc_text(*pid, "io"))).sum();
        // Every process sees the devices of its own namespace; the first one's is the sandbox's.
        let first = pids.into_iter().find(|pid| matches!(innermost_pid(*pid), Ok(Some(1))));
        let network = first.map_or(0, |pid| network_bytes(&proc_text(pid, "net/dev")));
        Ok(GroupCounters { cpu_us, disk, network })
    }

    fn cpu_us(&self) -> Result<u64, CgroupError> {
        let Some(folder) = self.folder(self.layout().accounting.as_ref()) else { return Ok(0) };
        match &self.layout().accounting {
            Some(Home::V1(_)) => Ok(number(&folder.join("cpuacct.usage"))? / 1000),
            _ => keyed(&folder.join("cpu.stat"), "usage_usec"),
        }
    }
}

/// A file of a process; nothing of one that has just ended.
fn proc_text(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn disk_bytes(text: &str) -> u64 {
    field(text, "read_bytes:") + field(text, "write_bytes:")
}

/// The bytes of both directions, from the table of network devices.
fn network_bytes(text: &str) -> u64 {
    let devices = text.lines().filter_map(|line| line.split_once(':'));
    devices
        .filter(|(name, _)| name.trim() != "lo")
        .map(|(_, numbers)| {
            let number = |place| numbers.split_ascii_whitespace().nth(place).and_then(|text| text.parse::<u64>().ok());
            number(0).unwrap_or(0) + number(8).unwrap_or(0)
        })
        .sum()
}

/// Memory alone may never exceed memory plus swap, so the order of the two writes depends on the direction.
pub(super) fn set_memory_v1(folder: &Path, bytes: u64) -> Result<(), CgroupError> {
    let value = bytes.to_string();
    let (memory, with_swap) = (folder.join("memory.limit_in_bytes"), folder.join("memory.memsw.limit_in_bytes"));
    set_socket_memory_v1(folder, bytes)?;
    if !with_swap.exists() {
        return write_value(&memory, &value);
    }
    match write_value(&memory, &value) {
        Ok(()) => write_value(&with_swap, &value),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            write_value(&with_swap, &value)?;
            write_value(&memory, &value)
        }
        Err(e) => Err(e),
    }
}

/// Sockets are charged to the group only once it has a limit for them; v2 counts them as memory. It is a limit of its own: what
/// sockets hold does not count as memory here.
///
/// A socket at the limit keeps one buffer in each direction, so the sum of many can exceed it.
fn set_socket_memory_v1(folder: &Path, bytes: u64) -> Result<(), CgroupError> {
    let sockets = folder.join("memory.kmem.tcp.limit_in_bytes");
    if !sockets.exists() {
        return Ok(());
    }
    match write_value(&sockets, &(bytes / SOCKET_PART).to_string()) {
        // More is in use than a lowered limit allows; the one before stays.
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Ok(()),
        written => written,
    }
}

pub(super) fn set_memory_v2(folder: &Path, bytes: u64) -> Result<(), CgroupError> {
    write_value(&folder.join("memory.max"), &bytes.to_string())?;
    // Both files are absent on kernels built without swap or before 4.19.
    for (file, value) in [("memory.swap.max", "0"), ("memory.oom.group", "0")] {
        let path = folder.join(file);
        if path.exists() {
            write_value(&path, value)?;
        }
    }
    Ok(())
}

pub(super) fn number(path: &Path) -> Result<u64, CgroupError> {
    let text = read_value(path)?;
    text.trim().parse().map_err(|e| CgroupError::new("parse control file", path, std::io::Error::other(e)))
}

pub(super) fn keyed(path: &Path, key: &str) -> Result<u64, CgroupError> {
    Ok(field(&read_value(path)?, key))
}

pub(super) fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{Cgroups, Layout};

    /// A plain folder stands for the unified hierarchy: what is written and read can be seen without one.
    #[test]
    fn v2_files_are_written_and_read() {
        let root = std::env::temp_dir().join(format!("roost-cgroup-{}", std::process::id()));
        let folder = root.join("roost-test/one");
        std::fs::create_dir_all(&folder).unwrap();
        for (file, value) in [
            ("memory.max", ""),
            ("memory.swap.max", ""),
            ("cpu.max", ""),
            ("pids.max", ""),
            ("cpu.stat", "usage_usec 42\nuser_usec 40\n"),
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 600\nsock 8192\nactive_file 100\ninactive_file 50\n"),
            ("memory.events", "oom 3\noom_kill 2\n"),
            ("pids.events", "max 4\n"),
            ("pids.current", "7\n"),
        ] {
            std::fs::write(folder.join(file), value).unwrap();
        }
        let home = Some(Home::V2(root.clone()));
        let layout = Layout {
            memory: home.clone(),
            cpu: home.clone(),
            accounting: home.clone(),
            pids: home.clone(),
            freezer: home,
        };
        let group = Cgroups::new(layout, "roost-test").group("one");
        let limits = GroupLimits { memory: 1 << 30, milli_cpus: 1500, pids: 64 };
        group.set_limits(&limits).unwrap();
        let written = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(written("memory.max"), "1073741824");
        assert_eq!(written("memory.swap.max"), "0");
        assert_eq!(written("cpu.max"), "150000 100000");
        assert_eq!(written("pids.max"), "64");
        let usage = group.usage().unwrap();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            usage,
            GroupUsage {
                cpu_us: 42,
                memory: 1000,
                file_cache: 150,
                pids: 7,
                oom_kills: 2,
                pids_refused: 4,
                sockets: 8192
            }
        );
    }

    #[test]
    fn v1_sockets_get_a_quarter_of_the_memory() {
        let folder = std::env::temp_dir().join(format!("roost-cgroup-v1-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"] {
            std::fs::write(folder.join(file), "").unwrap();
        }
        set_memory_v1(&folder, 1 << 30).unwrap();
        let written = std::fs::read_to_string(folder.join("memory.kmem.tcp.limit_in_bytes")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(written, (256 << 20).to_string());
    }

    #[test]
    fn tables_of_processes_are_summed() {
        assert_eq!(disk_bytes("rchar: 9\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n"), 12_288);
        let devices = "Inter-| Receive | Transmit\n face |bytes packets|bytes packets\n    lo: 100 1 0 0 0 0 0 0 100 1\n  \
                       eth0: 700 5 0 0 0 0 0 0 300 4 0 0\n  tap0:1 1 0 0 0 0 0 0 2 4 0 0\n";
        assert_eq!(network_bytes(devices), 1003);
        assert_eq!((disk_bytes(""), network_bytes("")), (0, 0));
    }

    #[test]
    fn absent_fields_read_as_zero() {
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", "oom_kill"), 5);
        assert_eq!(field("oom 1\n", "oom_kill"), 0);
    }
}
