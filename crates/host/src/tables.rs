//! Tables of the kernel that all sandboxes and the host share: made large when the daemon starts, and watched from then on.
//!
//! One task reads a handful of small files every few seconds. A table that is nearly full is logged and shown by the doctor. If a
//! sandbox has a good part of it, that sandbox gets the event `strained`; else the host gets the event `host_short`.

use std::fs;
use std::time::Duration;

use roost_lifecycle::Phase;
use roost_model::{DoctorCheck, EventKind, Level, chain};
use roost_net::raise_setting;
use tokio::time::MissedTickBehavior;

use crate::handle::Handle;
use crate::host::Host;

const LOOK: Duration = Duration::from_secs(5);

/// Settings below `/proc/sys` and their least value, with room for 8000 sandboxes.
const LEAST: [(&str, u64); 5] = [
    ("kernel/pid_max", 4_194_304),
    ("kernel/threads-max", 524_288),
    // The kernel's own end. A sandbox has 256 at most.
    ("kernel/pty/max", 1_048_576),
    // These two are for one user, and each sandbox is one.
    ("fs/inotify/max_user_instances", 1024),
    ("fs/inotify/max_user_watches", 524_288),
];

/// Makes the host's tables large enough; a refusal is left at that.
///
/// To be called before control groups are made, which take a share of some of them.
pub fn raise_tables() {
    for (name, least) in LEAST {
        raise_setting(name, least);
    }
}

/// What of a sandbox fills a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    /// Its processes and threads.
    Processes,
    /// The memory of its sockets, in pages.
    SocketPages,
    /// The kernel does not say by whom.
    Unknown,
}

/// A table, and how full it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Table {
    name: &'static str,
    filled: Filled,
    used: u64,
    limit: u64,
}

impl Table {
    /// Three quarters of it are taken.
    fn is_short(&self) -> bool {
        self.used >= self.limit / 4 * 3
    }

    /// Less than half of it is taken.
    fn is_relaxed(&self) -> bool {
        self.used < self.limit / 2
    }

    fn describe(&self) -> String {
        format!("{}: {} of {} in use", self.name, self.used, self.limit)
    }
}

/// All tables that this kernel has.
fn tables() -> Vec<Table> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let limit = |path: &str| nth(&read(path), 0);
    let (sockets, files) = (read("/proc/net/sockstat"), read("/proc/sys/fs/file-nr"));
    let processes = limit("/proc/sys/kernel/pid_max").into_iter().chain(limit("/proc/sys/kernel/threads-max")).min();
    let neighbours = read("/proc/net/stat/arp_cache");
    let all = [
        ("processes and threads", Filled::Processes, threads(&read("/proc/loadavg")), processes),
        (
            "memory of TCP, in pages",
            Filled::SocketPages,
            socket_pages(&sockets, "TCP:"),
            nth(&read("/proc/sys/net/ipv4/tcp_mem"), 2),
        ),
        (
            "memory of UDP, in pages",
            Filled::SocketPages,
            socket_pages(&sockets, "UDP:"),
            nth(&read("/proc/sys/net/ipv4/udp_mem"), 2),
        ),
        ("terminals", Filled::Unknown, limit("/proc/sys/kernel/pty/nr"), limit("/proc/sys/kernel/pty/max")),
        (
            "contexts of asynchronous I/O",
            Filled::Unknown,
            limit("/proc/sys/fs/aio-nr"),
            limit("/proc/sys/fs/aio-max-nr"),
        ),
        ("open files", Filled::Unknown, nth(&files, 0), nth(&files, 2)),
        (
            "neighbours (ARP)",
            Filled::Unknown,
            neighbour_entries(&neighbours),
            limit("/proc/sys/net/ipv4/neigh/default/gc_thresh3"),
        ),
    ];
    all.into_iter()
        .filter_map(|(name, filled, used, limit)| Some(Table { name, filled, used: used?, limit: limit? }))
        .collect()
}

pub(crate) fn nth(text: &str, place: usize) -> Option<u64> {
    text.split_whitespace().nth(place)?.parse().ok()
}

/// The fourth field of the load: `running/all`.
fn threads(text: &str) -> Option<u64> {
    text.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

pub(crate) fn socket_pages(text: &str, protocol: &str) -> Option<u64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix(protocol))?.split_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

/// The first column, in hexadecimal, which is the same for each processor.
fn neighbour_entries(text: &str) -> Option<u64> {
    let first = text.lines().nth(1)?.split_whitespace().next()?;
    u64::from_str_radix(first, 16).ok()
}

/// The tables that were reported as short, so that a table whose use swings is reported once.
#[derive(Debug, Default)]
struct Reported(Vec<&'static str>);

impl Reported {
    /// Returns the tables that became short. A table that was reported counts again after it was less than half full.
    fn newly_short(&mut self, now: &[Table]) -> Vec<Table> {
        self.0.retain(|name| !now.iter().any(|table| table.name == *name && table.is_relaxed()));
        let new: Vec<Table> =
            now.iter().filter(|table| table.is_short() && !self.0.contains(&table.name)).cloned().collect();
        self.0.extend(new.iter().map(|table| table.name));
        new
    }
}

impl Host {
    /// Looks at the tables again and again until the daemon leaves.
    pub(crate) async fn watch_tables(self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = Reported::default();
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.shared.leaving.cancelled() => return,
            }
            for table in reported.newly_short(&tables()) {
                self.report_short(&table).await;
            }
        }
    }

    async fn report_short(&self, table: &Table) {
        let what = table.describe();
        let Some((handle, share)) = self.fills_most(table).await else {
            tracing::warn!(table = what, "a table of the kernel is nearly full");
            return self
                .events()
                .log_host(EventKind::HostShort, format!("a table of the kernel is nearly full: {what}"))
                .await;
        };
        tracing::warn!(table = what, sandbox = %handle.id(), share, "a table of the kernel is nearly full");
        let reason = format!("it fills a table of the host: {what}, {share} by this sandbox");
        if let Err(error) = handle.note_strain(reason).await {
            tracing::debug!(sandbox = %handle.id(), error = %chain(&error), "could not note that it fills a table");
        }
    }

    /// The sandbox that has most of a table, if it has at least a quarter of what is taken.
    async fn fills_most(&self, table: &Table) -> Option<(Handle, u64)> {
        let mut most: Option<(Handle, u64)> = None;
        for handle in self.handles() {
            let record = handle.record();
            if !matches!(record.phase, Phase::Active | Phase::Suspended(Level::Ram)) {
                continue;
            }
            let Ok(engine) = self.shared.engine(record.engine) else { continue };
            let Ok(usage) = engine.usage(&record.id).await else { continue };
            let share = match table.filled {
                Filled::Processes => usage.pids,
                Filled::SocketPages => usage.sockets / rustix::param::page_size() as u64,
                Filled::Unknown => return None,
            };
            if most.as_ref().is_none_or(|(_, before)| share > *before) {
                most = Some((handle, share));
            }
        }
        most.filter(|(_, share)| *share >= table.used / 4)
    }

    /// The tables that are short, or that none is.
    pub(crate) async fn table_checks(&self) -> Vec<DoctorCheck> {
        let check = |ok, detail| DoctorCheck { what: "tables of the kernel".to_owned(), ok, required: false, detail };
        let mut short = tables();
        short.retain(Table::is_short);
        if short.is_empty() {
            return vec![check(true, "all of them have room".to_owned())];
        }
        let mut checks = Vec::with_capacity(short.len());
        for table in short {
            let detail = match self.fills_most(&table).await {
                Some((handle, share)) => format!("{}, {share} by sandbox `{}`", table.describe(), handle.record().name),
                None => table.describe(),
            };
            checks.push(check(false, detail));
        }
        checks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &'static str, used: u64) -> Table {
        Table { name, filled: Filled::Unknown, used, limit: 100 }
    }

    #[test]
    fn this_kernel_has_all_tables() {
        let found = tables();
        assert_eq!(found.len(), 7, "{found:?}");
        assert!(found.iter().all(|table| table.limit > 0), "{found:?}");
    }

    #[test]
    fn table_is_reported_once_when_it_becomes_short() {
        let mut reported = Reported(vec!["c"]);
        let now = [table("a", 75), table("b", 74), table("c", 100)];
        let names: Vec<_> = reported.newly_short(&now).into_iter().map(|table| table.name).collect();
        assert_eq!(names, ["a"]);
        assert_eq!(now[0].describe(), "a: 75 of 100 in use");
    }

    #[test]
    fn swinging_table_is_reported_again_only_after_it_was_half_empty() {
        let mut reported = Reported::default();
        let mut reports = |used| reported.newly_short(&[table("a", used)]).len();
        let swings: Vec<usize> = [76, 74, 76, 50, 76, 49, 74, 75].into_iter().map(&mut reports).collect();
        assert_eq!(swings, [1, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(threads("3.05 3.73 3.43 3/289 22161"), Some(289));
        let sockets = "sockets: used 37\nTCP: inuse 1 orphan 0 tw 0 alloc 12 mem 75\nUDP: inuse 0 mem 4\n";
        assert_eq!((socket_pages(sockets, "TCP:"), socket_pages(sockets, "UDP:")), (Some(75), Some(4)));
        assert_eq!(neighbour_entries("entries allocs\n0000ffff 0dc9\n0000ffff 09de\n"), Some(65535));
        assert_eq!((threads(""), socket_pages("", "TCP:"), neighbour_entries("")), (None, None, None));
    }
}
