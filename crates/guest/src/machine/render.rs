//! Renders the text of the files, in the kernel's own form, from a reading of the sandbox.

use std::fmt::Write as _;
use std::time::Duration;

use roost_sys::cgroup::{GroupCpu, GroupMemory};

/// CPU time in `/proc/stat` is in hundredths of a second on every system.
const TICKS: u128 = 100;
const NANOS_PER_TICK: u128 = 1_000_000_000 / TICKS;

/// A reading of the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) memory: GroupMemory,
    /// Memory of the host, in bytes: no sandbox has more, whatever its limit says.
    pub(super) host_memory: u64,
    pub(super) cpu: GroupCpu,
    /// Processes and threads.
    pub(super) threads: u64,
    /// The newest process.
    pub(super) newest: u64,
    /// The processors that it may run on, in ascending order.
    pub(super) processors: Vec<usize>,
    /// Since the sandbox's start.
    pub(super) uptime: Duration,
    /// That start, since 1970.
    pub(super) started: Duration,
}

impl Sight {
    /// CPU time used.
    pub(super) fn used(&self) -> Duration {
        self.cpu.user.saturating_add(self.cpu.system)
    }

    /// CPU time that all its processors together did not use.
    fn idle(&self) -> Duration {
        let count = u32::try_from(self.processors.len()).unwrap_or(u32::MAX);
        self.uptime.saturating_mul(count).saturating_sub(self.used())
    }
}

/// The averages that programs know as load: how many processors were in use over 1, 5 and 15 minutes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Load([f64; 3]);

impl Load {
    const MINUTES: [f64; 3] = [1.0, 5.0, 15.0];

    /// Adds a time and the CPU time that was used in it.
    pub(super) fn pass(&mut self, time: Duration, used: Duration) {
        if time.is_zero() {
            return;
        }
        let now = used.as_secs_f64() / time.as_secs_f64();
        for (average, minutes) in self.0.iter_mut().zip(Self::MINUTES) {
            let kept = (-time.as_secs_f64() / (60.0 * minutes)).exp();
            *average = *average * kept + now * (1.0 - kept);
        }
    }
}

/// `/proc/meminfo`. There is no swap: the limit is for memory and swap together.
pub(super) fn memory(sight: &Sight) -> String {
    let memory = &sight.memory;
    let total = if sight.host_memory == 0 { memory.limit } else { memory.limit.min(sight.host_memory) };
    let free = total.saturating_sub(memory.used);
    // Shared memory is in the cache, too, but is not given back.
    let given_back = memory.active_file + memory.inactive_file + memory.slab_reclaimable;
    let rows = [
        ("MemTotal", total),
        ("MemFree", free),
        ("MemAvailable", free.saturating_add(given_back).min(total)),
        ("Buffers", 0),
        ("Cached", memory.cache),
        ("SwapCached", 0),
        ("Active", memory.active_anonymous + memory.active_file),
        ("Inactive", memory.inactive_anonymous + memory.inactive_file),
        ("Active(anon)", memory.active_anonymous),
        ("Inactive(anon)", memory.inactive_anonymous),
        ("Active(file)", memory.active_file),
        ("Inactive(file)", memory.inactive_file),
        ("Unevictable", memory.unevictable),
        ("Mlocked", 0),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", memory.dirty),
        ("Writeback", memory.writeback),
        ("AnonPages", memory.anonymous),
        ("Mapped", memory.mapped),
        ("Shmem", memory.shared),
        ("KReclaimable", memory.slab_reclaimable),
        ("Slab", memory.slab_reclaimable + memory.slab_unreclaimable),
        ("SReclaimable", memory.slab_reclaimable),
        ("SUnreclaim", memory.slab_unreclaimable),
        ("KernelStack", memory.kernel_stack),
        ("PageTables", memory.page_tables),
    ];
    let mut text = String::with_capacity(rows.len() * 28);
    for (name, bytes) in rows {
        // Writing to a string cannot fail.
        writeln!(text, "{:<15} {:>8} kB", format!("{name}:"), bytes / 1024).ok();
    }
    text
}

/// `/proc/stat`. Every processor has its part of the whole.
pub(super) fn stat(sight: &Sight) -> String {
    let count = u32::try_from(sight.processors.len()).unwrap_or(u32::MAX).max(1);
    let mut text = String::with_capacity(128 + 64 * sight.processors.len());
    let mut line = |name: &str, share: u32| {
        let ticks = |time: Duration| (time / share).as_nanos() / NANOS_PER_TICK;
        let (user, system, idle) = (ticks(sight.cpu.user), ticks(sight.cpu.system), ticks(sight.idle()));
        writeln!(text, "{name} {user} 0 {system} {idle} 0 0 0 0 0 0").ok();
    };
    // The kernel's first line has a blank more.
    line("cpu ", 1);
    for number in &sight.processors {
        line(&format!("cpu{number}"), count);
    }
    write!(
        text,
        "intr 0\nctxt 0\nbtime {}\nprocesses {}\nprocs_running 1\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
        sight.started.as_secs(),
        sight.newest,
    )
    .ok();
    text
}

/// `/proc/uptime`.
pub(super) fn uptime(sight: &Sight) -> String {
    let seconds = |time: Duration| format!("{}.{:02}", time.as_secs(), time.subsec_millis() / 10);
    format!("{} {}\n", seconds(sight.uptime), seconds(sight.idle()))
}

/// `/proc/loadavg`.
pub(super) fn load(load: &Load, sight: &Sight) -> String {
    let [one, five, fifteen] = load.0;
    format!("{one:.2} {five:.2} {fifteen:.2} 1/{} {}\n", sight.threads.max(1), sight.newest)
}

/// `/proc/cpuinfo`: what the kernel says about one processor, for each that the sandbox has.
pub(super) fn processors(one: &str, numbers: &[usize]) -> String {
    let mut text = String::with_capacity((one.len() + 16) * numbers.len());
    for (place, number) in numbers.iter().enumerate() {
        for line in one.lines() {
            let Some((name, _)) = line.split_once(':') else {
                writeln!(text, "{line}").ok();
                continue;
            };
            let value = match name.trim_end() {
                "processor" => *number,
                "siblings" | "cpu cores" => numbers.len(),
                "physical id" => 0,
                "core id" | "apicid" | "initial apicid" => place,
                _ => {
                    writeln!(text, "{line}").ok();
                    continue;
                }
            };
            writeln!(text, "{name}: {value}").ok();
        }
        text.push('\n');
    }
    text
}

/// `/sys/devices/system/cpu/online`: runs of numbers.
pub(super) fn online(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let words: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    format!("{}\n", words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sight() -> Sight {
        Sight {
            memory: GroupMemory {
                limit: 512 * MIB,
                used: 200 * MIB,
                cache: 90 * MIB,
                shared: 10 * MIB,
                active_file: 50 * MIB,
                inactive_file: 30 * MIB,
                anonymous: 100 * MIB,
                ..GroupMemory::default()
            },
            host_memory: 24 << 30,
            cpu: GroupCpu { user: Duration::from_secs(30), system: Duration::from_secs(10) },
            threads: 7,
            newest: 99,
            processors: vec![1, 3],
            uptime: Duration::from_millis(100_250),
            started: Duration::from_secs(1_700_000_000),
        }
    }

    fn row(text: &str, name: &str) -> u64 {
        let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        rest.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    #[test]
    fn memory_is_the_limit_and_what_is_left_of_it() {
        let text = memory(&sight());
        assert!(text.starts_with("MemTotal:         524288 kB\n"), "{text}");
        assert_eq!(row(&text, "MemFree") * 1024, 312 * MIB);
        assert_eq!(row(&text, "MemAvailable") * 1024, 392 * MIB);
        assert_eq!((row(&text, "Cached") * 1024, row(&text, "Shmem") * 1024), (90 * MIB, 10 * MIB));
        assert_eq!(row(&text, "SwapTotal"), 0);
    }

    #[test]
    fn memory_without_a_limit_is_the_hosts() {
        let mut sight = sight();
        sight.memory.limit = u64::MAX;
        assert_eq!(row(&memory(&sight), "MemTotal"), 24 << 20);
    }

    #[test]
    fn memory_over_its_limit_leaves_nothing_free() {
        let mut sight = sight();
        sight.memory.used = 600 * MIB;
        let text = memory(&sight);
        assert_eq!((row(&text, "MemFree"), row(&text, "MemAvailable")), (0, 80 << 10));
        sight.memory.inactive_file = 900 * MIB;
        assert_eq!(row(&memory(&sight), "MemAvailable"), 512 << 10);
    }

    #[test]
    fn time_is_shared_by_the_processors_that_it_has() {
        let text = stat(&sight());
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("cpu  3000 0 1000 16050 0 0 0 0 0 0"));
        assert_eq!(lines.next(), Some("cpu1 1500 0 500 8025 0 0 0 0 0 0"));
        assert_eq!(lines.next(), Some("cpu3 1500 0 500 8025 0 0 0 0 0 0"));
        assert!(text.contains("\nbtime 1700000000\nprocesses 99\n"), "{text}");
        assert_eq!(uptime(&sight()), "100.25 160.50\n");
    }

    #[test]
    fn more_time_used_than_passed_is_not_idle_below_zero() {
        let sight = Sight { uptime: Duration::from_secs(1), ..sight() };
        assert_eq!(uptime(&sight), "1.00 0.00\n");
    }

    #[test]
    fn load_comes_and_goes_with_the_use_of_processors() {
        let mut busy = Load::default();
        for _ in 0..60 {
            busy.pass(Duration::from_secs(1), Duration::from_secs(2));
        }
        let [one, five, fifteen] = busy.0;
        assert!((1.26..1.27).contains(&one) && one > five && five > fifteen, "{busy:?}");
        // A long sleep counts as the time in which nothing ran.
        busy.pass(Duration::from_secs(600), Duration::ZERO);
        assert_eq!(load(&busy, &sight()), "0.00 0.05 0.07 1/7 99\n");
        let before = busy;
        busy.pass(Duration::ZERO, Duration::from_secs(1));
        assert_eq!(busy, before);
    }

    #[test]
    fn every_processor_is_told_under_its_own_number() {
        let one = "processor\t: 0\nmodel name\t: Fast: One\nphysical id\t: 1\nsiblings\t: 64\ncore id\t\t: 5\ncpu cores\t: 32\n";
        let text = processors(one, &[1, 3]);
        assert_eq!(
            text,
            "processor\t: 1\nmodel name\t: Fast: One\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 0\ncpu cores\t: 2\n\n\
             processor\t: 3\nmodel name\t: Fast: One\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 1\ncpu cores\t: 2\n\n"
        );
        assert_eq!(processors("", &[0]), "\n");
    }

    #[test]
    fn online_processors_are_runs_of_numbers() {
        assert_eq!(online(&[0]), "0\n");
        assert_eq!(online(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8\n");
        assert_eq!(online(&[]), "\n");
    }
}
