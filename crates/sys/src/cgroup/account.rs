//! Limits and use of a group in detail, for a process inside that describes its own machine.

use std::time::Duration;

use super::layout::Home;
use super::limits::field;
use super::{CgroupError, Group, read_value};

/// The unit of CPU time on v1.
const NANOS: u64 = 1_000_000_000;

/// A group's memory, in bytes. A detail that the hierarchy does not count is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupMemory {
    /// The limit; a very large number where there is none.
    pub limit: u64,
    /// Everything that is charged.
    pub used: u64,
    /// Memory of processes.
    pub anonymous: u64,
    /// Page cache, shared memory included.
    pub cache: u64,
    /// Shared memory and the contents of tmpfs.
    pub shared: u64,
    /// Page cache that is mapped.
    pub mapped: u64,
    /// Page cache that is not written out yet.
    pub dirty: u64,
    /// Page cache that is being written out.
    pub writeback: u64,
    /// Anonymous pages that were used lately.
    pub active_anonymous: u64,
    /// Anonymous pages that were not.
    pub inactive_anonymous: u64,
    /// Pages of files that were used lately.
    pub active_file: u64,
    /// Pages of files that were not.
    pub inactive_file: u64,
    /// Pages that cannot be given back.
    pub unevictable: u64,
    /// The kernel's objects that can be given back.
    pub slab_reclaimable: u64,
    /// The kernel's objects that cannot.
    pub slab_unreclaimable: u64,
    /// The kernel's stacks.
    pub kernel_stack: u64,
    /// Page tables.
    pub page_tables: u64,
}

/// CPU time that a group used since its birth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCpu {
    /// By programs.
    pub user: Duration,
    /// By the kernel for them.
    pub system: Duration,
}

impl Group {
    /// Reads the group's memory in detail.
    pub fn memory(&self) -> Result<GroupMemory, CgroupError> {
        let Some(folder) = self.folder(self.layout().memory.as_ref()) else { return Ok(GroupMemory::default()) };
        let read = |file: &str| read_value(&folder.join(file));
        Ok(match &self.layout().memory {
            Some(Home::V1(_)) => {
                memory_v1(&read("memory.limit_in_bytes")?, &read("memory.usage_in_bytes")?, &read("memory.stat")?)
            }
            _ => memory_v2(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?),
        })
    }

    /// Reads the group's CPU time in detail.
    pub fn cpu(&self) -> Result<GroupCpu, CgroupError> {
        let Some(folder) = self.folder(self.layout().accounting.as_ref()) else { return Ok(GroupCpu::default()) };
        Ok(match &self.layout().accounting {
            Some(Home::V1(_)) => {
                let ticks = rustix::param::clock_ticks_per_second();
                cpu_v1(&read_value(&folder.join("cpuacct.stat"))?, ticks)
            }
            _ => cpu_v2(&read_value(&folder.join("cpu.stat"))?),
        })
    }

    /// Reads how many processes and threads the group has.
    pub fn threads_count(&self) -> Result<u64, CgroupError> {
        let Some(folder) = self.folder(self.layout().pids.as_ref()) else { return Ok(0) };
        Ok(bytes(&read_value(&folder.join("pids.current"))?))
    }
}

/// A number; `max` is as large as it gets.
fn bytes(text: &str) -> u64 {
    match text.trim() {
        "max" => u64::MAX,
        number => number.parse().unwrap_or(0),
    }
}

fn memory_v1(limit: &str, used: &str, stat: &str) -> GroupMemory {
    let of = |key: &str| field(stat, &format!("total_{key}"));
    let (used, anonymous, cache) = (bytes(used), of("rss"), of("cache"));
    GroupMemory {
        limit: bytes(limit),
        used,
        anonymous,
        cache,
        shared: of("shmem"),
        mapped: of("mapped_file"),
        dirty: of("dirty"),
        writeback: of("writeback"),
        active_anonymous: of("active_anon"),
        inactive_anonymous: of("inactive_anon"),
        active_file: of("active_file"),
        inactive_file: of("inactive_file"),
        unevictable: of("unevictable"),
        // v1 does not say how the kernel's share is made up.
        slab_unreclaimable: used.saturating_sub(anonymous).saturating_sub(cache),
        ..GroupMemory::default()
    }
}

fn memory_v2(limit: &str, used: &str, stat: &str) -> GroupMemory {
    let of = |key: &str| field(stat, key);
    GroupMemory {
        limit: bytes(limit),
        used: bytes(used),
        anonymous: of("anon"),
        cache: of("file"),
        shared: of("shmem"),
        mapped: of("file_mapped"),
        dirty: of("file_dirty"),
        writeback: of("file_writeback"),
        active_anonymous: of("active_anon"),
        inactive_anonymous: of("inactive_anon"),
        active_file: of("active_file"),
        inactive_file: of("inactive_file"),
        unevictable: of("unevictable"),
        slab_reclaimable: of("slab_reclaimable"),
        slab_unreclaimable: of("slab_unreclaimable"),
        kernel_stack: of("kernel_stack"),
        page_tables: of("pagetables"),
    }
}

fn cpu_v1(stat: &str, ticks_per_second: u64) -> GroupCpu {
    let of = |key| Duration::from_nanos(field(stat, key).saturating_mul(NANOS / ticks_per_second.max(1)));
    GroupCpu { user: of("user"), system: of("system") }
}

fn cpu_v2(stat: &str) -> GroupCpu {
    let of = |key| Duration::from_micros(field(stat, key));
    GroupCpu { user: of("user_usec"), system: of("system_usec") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_memory_counts_the_rest_as_the_kernels() {
        let stat = "cache 1\nrss 2\ntotal_cache 3000\ntotal_rss 5000\ntotal_shmem 100\ntotal_mapped_file 70\n\
                    total_active_file 1000\ntotal_inactive_file 1900\ntotal_inactive_anon 4900\ntotal_active_anon 200\n";
        let memory = memory_v1("536870912\n", "9000\n", stat);
        assert_eq!((memory.limit, memory.used, memory.anonymous, memory.cache), (512 << 20, 9000, 5000, 3000));
        assert_eq!((memory.shared, memory.mapped, memory.slab_unreclaimable), (100, 70, 1000));
        assert_eq!((memory.active_file, memory.inactive_file, memory.slab_reclaimable), (1000, 1900, 0));
    }

    #[test]
    fn v2_memory_without_a_limit_is_as_large_as_it_gets() {
        let stat = "anon 5000\nfile 3000\nkernel_stack 16\npagetables 8\nshmem 100\nfile_mapped 70\nslab_reclaimable 40\n\
                    slab_unreclaimable 30\nactive_file 1000\n";
        let memory = memory_v2("max\n", "9000\n", stat);
        assert_eq!((memory.limit, memory.used, memory.anonymous, memory.cache), (u64::MAX, 9000, 5000, 3000));
        assert_eq!((memory.slab_reclaimable, memory.slab_unreclaimable), (40, 30));
        assert_eq!((memory.kernel_stack, memory.page_tables, memory.active_file), (16, 8, 1000));
    }

    #[test]
    fn processor_time_is_the_same_in_both_hierarchies() {
        let wanted = GroupCpu { user: Duration::from_millis(2500), system: Duration::from_millis(300) };
        assert_eq!(cpu_v1("user 250\nsystem 30\n", 100), wanted);
        assert_eq!(cpu_v2("usage_usec 2800000\nuser_usec 2500000\nsystem_usec 300000\n"), wanted);
    }

    #[test]
    fn unreadable_text_counts_as_nothing() {
        assert_eq!(memory_v2("", "x", "y"), GroupMemory::default());
        assert_eq!(cpu_v1("", 0), GroupCpu::default());
    }
}
