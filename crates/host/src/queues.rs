//! Ends sandboxes whose sockets hold more of the host's memory than they may.
//!
//! Data that waits at a socket is memory of the kernel, and for most kinds of sockets no control group pays for it. A sandbox that
//! opens many sockets and reads none of them could take all memory of the host, or all memory that the kernel has for TCP. So a
//! sandbox has an allowance for the data that waits at its sockets. Programs that read what they asked for stay far below it.
//!
//! One task looks at two small files of the kernel several times a second. It adds up the queues of the sandboxes only if the host
//! lost memory since the last time, and every few seconds in any case. Adding up takes at most a twentieth of the task's time.

use std::fs;
use std::time::{Duration, Instant};

use roost_lifecycle::Phase;
use roost_model::chain;
use tokio::time::MissedTickBehavior;

use crate::host::Host;
use crate::tables::{nth, socket_pages};

const GLANCE: Duration = Duration::from_millis(200);
/// The queues are added up at least so often.
const AT_LEAST: Duration = Duration::from_secs(5);
/// For every second of adding up, so many seconds pass before the next time.
const REST: u32 = 20;
/// Memory that the host loses between two looks without a cause to look closer.
const TRIFLE: u64 = 32 << 20;
/// Every sandbox may hold so much: a few busy sockets.
const LEAST_ALLOWANCE: u64 = 16 << 20;

/// The state of the host's memory that tells whether sockets may have taken some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Glance {
    /// Bytes of memory that are available.
    available: u64,
    /// Bytes that wait at the sockets of TCP and UDP.
    sockets: u64,
}

impl Glance {
    fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            available: available_memory(&read("/proc/meminfo")),
            sockets: pages_of_sockets(&read("/proc/net/sockstat")) * rustix::param::page_size() as u64,
        }
    }

    /// The best of two, as what a host had before it lost any.
    fn or_better(self, other: Self) -> Self {
        Self { available: self.available.max(other.available), sockets: self.sockets.min(other.sockets) }
    }

    /// Whether sockets may have taken memory of the host since `before`.
    fn is_worse_than(self, before: Self) -> bool {
        before.available.saturating_sub(self.available) > TRIFLE || self.sockets.saturating_sub(before.sockets) > TRIFLE
    }
}

fn available_memory(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The pages that TCP and UDP hold on the whole host.
fn pages_of_sockets(text: &str) -> u64 {
    ["TCP:", "UDP:"].into_iter().filter_map(|protocol| socket_pages(text, protocol)).sum()
}

/// The bytes that may wait at the sockets of a sandbox with this limit of memory, on a host whose TCP may hold `tcp` bytes.
fn allowance(memory: u64, tcp: u64) -> u64 {
    (memory / 4).min(tcp / 4).max(LEAST_ALLOWANCE)
}

/// The bytes that TCP may hold on this host.
fn tcp_memory() -> u64 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").unwrap_or_default();
    nth(&text, 2).map_or(u64::MAX, |pages| pages.saturating_mul(rustix::param::page_size() as u64))
}

impl Host {
    /// Looks at the queues again and again until the daemon leaves.
    pub(crate) async fn guard_queues(self) {
        let mut ticks = tokio::time::interval(GLANCE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let tcp = tcp_memory();
        let (mut best, mut looked, mut rest) = (Glance::now(), Instant::now(), Duration::ZERO);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.shared.leaving.cancelled() => return,
            }
            let (now, since) = (Glance::now(), looked.elapsed());
            if since < rest || (since < AT_LEAST && !now.is_worse_than(best)) {
                best = best.or_better(now);
                continue;
            }
            let began = Instant::now();
            self.end_hoarders(tcp).await;
            (looked, best) = (Instant::now(), Glance::now());
            rest = began.elapsed() * REST;
        }
    }

    async fn end_hoarders(&self, tcp: u64) {
        for handle in self.handles() {
            let record = handle.record();
            // The processes of a frozen sandbox send nothing.
            if record.phase != Phase::Active {
                continue;
            }
            let Ok(engine) = self.shared.engine(record.engine) else { continue };
            let allowed = allowance(record.limits.memory, tcp);
            let Ok(queued) = engine.queued(&record.id, allowed).await else { continue };
            if queued <= allowed {
                continue;
            }
            let reason = format!(
                "unread data at its sockets reached {} MiB, and {} MiB are allowed",
                queued >> 20,
                allowed >> 20
            );
            tracing::warn!(sandbox = %record.id, queued, allowed, "a sandbox holds too much memory of the kernel");
            if let Err(error) = handle.end_processes(reason).await {
                tracing::warn!(sandbox = %record.id, error = %chain(&error), "failed to end its processes");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_is_a_part_of_the_limit_and_of_what_the_host_has() {
        let (mib, gib) = (1 << 20, 1 << 30);
        assert_eq!(allowance(512 * mib, 2 * gib), 128 * mib);
        assert_eq!(allowance(16 * gib, 2 * gib), 512 * mib);
        assert_eq!(allowance(16 * mib, 2 * gib), LEAST_ALLOWANCE);
    }

    #[test]
    fn loss_of_memory_is_a_cause_to_look() {
        let before = Glance { available: 1 << 30, sockets: 0 };
        assert!(!before.is_worse_than(before));
        assert!(!Glance { available: 2 << 30, ..before }.is_worse_than(before));
        assert!(Glance { available: 900 << 20, ..before }.is_worse_than(before));
        assert!(Glance { sockets: 33 << 20, ..before }.is_worse_than(before));
        let freed = before.or_better(Glance { available: 2 << 30, sockets: 7 });
        assert_eq!(freed, Glance { available: 2 << 30, sockets: 0 });
        assert!(before.is_worse_than(freed));
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(available_memory("MemTotal: 5 kB\nMemAvailable:    2048 kB\n"), 2 << 20);
        let sockets =
            "sockets: used 37\nTCP: inuse 1 orphan 0 tw 0 alloc 12 mem 75\nUDP: inuse 0 mem 4\nUDPLITE: inuse 0\n";
        assert_eq!(pages_of_sockets(sockets), 79);
        assert!(tcp_memory() > 1 << 20);
        assert!(Glance::now().available > 0);
    }
}
