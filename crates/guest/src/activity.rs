//! What goes on inside, for the host's idle watcher.

use std::sync::atomic::Ordering;

use roost_wire::Activity;

use crate::guest::Guest;
use crate::processes::stat;
use crate::{ports, talks};

pub(crate) fn activity(guest: &Guest) -> Activity {
    let (listening, outbound) = ports::count(guest.config.listen.port());
    Activity {
        running_execs: count(guest.execs.running().len()),
        attached: guest.attached.load(Ordering::Relaxed),
        cpu_us: cpu_us(),
        listening_ports: count(listening),
        outbound: count(outbound),
        talks: talks::talks(),
    }
}

/// CPU time of every process that lives, in microseconds. Where the guest is not alone this counts the others too.
fn cpu_us() -> u64 {
    let ticks: u64 = stat::all().unwrap_or_default().iter().map(|process| process.ticks).sum();
    ticks.saturating_mul(1_000_000) / rustix::param::clock_ticks_per_second().max(1)
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
