//! The thread that keeps the network as the router made it, while other programs change the host.
//!
//! It waits for reports of the kernel and for flows to forget, and does three things:
//!
//! * When another program removed or changed the host's table (`flush ruleset` is how firewalls reload), it loads the table again.
//! * When the host's addresses changed, it loads the wall between sandboxes and the host again. The wall stands in the
//!   router's namespace, so it also holds in the moment in which the host's table is missing.
//! * Some time after slots were cut off it deletes what connection tracking remembers of them.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use roost_sys::netns;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::netlink::changes::TableChanges;
use crate::netlink::{NetlinkError, Socket, flows, route};
use crate::ranges::{self, Range};
use crate::rules::{self, HostRules, Mark};
use crate::slot::Slot;

/// The least time between two loads of the host's table, in case another program removes it again and again.
const LOAD_PAUSE: Duration = Duration::from_millis(200);
/// The time after which a failed load is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Addresses come and go in groups, so a change waits for the next ones.
const ADDRESS_PAUSE: Duration = Duration::from_millis(50);
/// Slots that are cut off within this time share one walk through the tracked flows, which takes some 30 ms.
const FORGET_PAUSE: Duration = Duration::from_secs(5);

/// The subscriptions to the kernel's reports; they must be made before the state that they watch is read or made.
#[derive(Debug)]
pub(crate) struct Reports {
    filter: Socket,
    addresses: Socket,
}

impl Reports {
    /// Subscribes in the network namespace of the calling thread, which is the host's.
    pub(crate) fn subscribe() -> Result<Self, NetlinkError> {
        Ok(Self { filter: Socket::filter_reports()?, addresses: Socket::address_reports()? })
    }
}

/// What the router loaded at its start, and is kept from then on.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) reports: Reports,
    pub(crate) rules: HostRules,
    pub(crate) mark: Mark,
    pub(crate) wall: Vec<Range>,
}

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    wake: OwnedFd,
    stopping: AtomicBool,
    loads: AtomicU64,
    cut_off: Mutex<HashSet<Slot>>,
}

impl Keeper {
    /// Starts the thread in the network namespace of the calling thread, which is the host's.
    pub(crate) fn start(loaded: Loaded, router: OwnedFd) -> io::Result<Self> {
        let home = netns::current()?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            wake,
            stopping: AtomicBool::new(false),
            loads: AtomicU64::new(0),
            cut_off: Mutex::default(),
        });
        let Loaded { reports, rules, mark, wall } = loaded;
        let changes = TableChanges::new(rules.table(), mark.chain());
        let keeping = Keeping {
            shared: Arc::clone(&shared),
            home,
            router,
            reports,
            rules,
            changes,
            wall,
            may_load: Instant::now(),
            is_failing: false,
            due: Due::default(),
        };
        let thread = std::thread::Builder::new().name("roost-keep".to_owned()).spawn(move || keeping.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Has the flows of a slot that was cut off forgotten before long.
    pub(crate) fn forget_flows(&self, slot: Slot) {
        let mut cut_off = self.shared.cut_off();
        let is_first = cut_off.is_empty();
        cut_off.insert(slot);
        drop(cut_off);
        // The thread knows already that it has to walk when others wait.
        if is_first {
            self.shared.wake();
        }
    }

    /// Keeps the flows of a slot that is about to be plugged again.
    pub(crate) fn keep_flows(&self, slot: Slot) {
        self.shared.cut_off().remove(&slot);
    }

    /// Returns how often the host's table had to be loaded again.
    pub(crate) fn loads(&self) -> u64 {
        self.shared.loads.load(Ordering::Relaxed)
    }

    /// Ends the thread and waits for it; afterwards nothing is loaded any more.
    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that keeps the network has panicked");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn cut_off(&self) -> MutexGuard<'_, HashSet<Slot>> {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full counter wakes the thread as well.
        if let Err(errno) = rustix::io::write(&self.wake, &1_u64.to_ne_bytes())
            && errno != Errno::AGAIN
        {
            tracing::warn!(error = %io::Error::from(errno), "failed to wake the thread that keeps the network");
        }
    }
}

/// When each of the three things is to be done, if at all.
#[derive(Debug, Default)]
struct Due {
    rules: Option<Instant>,
    wall: Option<Instant>,
    flows: Option<Instant>,
}

impl Due {
    fn first(&self) -> Option<Instant> {
        [self.rules, self.wall, self.flows].into_iter().flatten().min()
    }
}

/// Takes a time that has come.
fn take_due(due: &mut Option<Instant>, now: Instant) -> bool {
    due.take_if(|due| *due <= now).is_some()
}

/// The state of the thread.
#[derive(Debug)]
struct Keeping {
    shared: Arc<Shared>,
    home: OwnedFd,
    router: OwnedFd,
    reports: Reports,
    rules: HostRules,
    changes: TableChanges,
    wall: Vec<Range>,
    may_load: Instant,
    is_failing: bool,
    due: Due,
}

impl Keeping {
    fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Relaxed) {
            if let Err(error) = self.take_in() {
                tracing::error!(%error, "failed to read what the kernel reports; changes are noticed late");
                std::thread::sleep(RETRY);
                self.changes.lost();
                self.note(Instant::now());
            }
            let now = Instant::now();
            if take_due(&mut self.due.rules, now) {
                self.load_rules();
            }
            if take_due(&mut self.due.wall, now) {
                self.load_wall();
            }
            if take_due(&mut self.due.flows, now) {
                self.forget_flows();
            }
            if let Err(errno) = self.wait() {
                tracing::error!(error = %io::Error::from(errno), "failed to wait for reports of the kernel");
                std::thread::sleep(RETRY);
            }
        }
    }

    /// Sleeps until there is something to read or to do.
    fn wait(&self) -> rustix::io::Result<()> {
        let timeout = self.due.first().map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let (filter, addresses) = (self.reports.filter.as_fd(), self.reports.addresses.as_fd());
        let mut awaited = [
            PollFd::new(&self.shared.wake, PollFlags::IN),
            PollFd::from_borrowed_fd(filter, PollFlags::IN),
            PollFd::from_borrowed_fd(addresses, PollFlags::IN),
        ];
        match rustix::event::poll(&mut awaited, timeout.as_ref()) {
            Err(Errno::INTR) | Ok(_) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Reads all that waits, and decides when to do what.
    fn take_in(&mut self) -> Result<(), NetlinkError> {
        let now = Instant::now();
        // An empty counter is the usual case.
        rustix::io::read(&self.shared.wake, &mut [0; 8]).unwrap_or_default();
        let lost = self.reports.filter.reports(|report| self.changes.read(report))?;
        if lost {
            self.changes.lost();
        }
        let mut moved = false;
        let lost = self.reports.addresses.reports(|report| moved |= route::concerns_own_addresses(report))?;
        if moved || lost {
            self.due.wall.get_or_insert(now + ADDRESS_PAUSE);
        }
        if !self.shared.cut_off().is_empty() {
            self.due.flows.get_or_insert(now + FORGET_PAUSE);
        }
        self.note(now);
        Ok(())
    }

    fn note(&mut self, now: Instant) {
        if self.changes.changed() {
            self.due.rules.get_or_insert(now.max(self.may_load));
        }
    }

    fn load_rules(&mut self) {
        let (table, mark) = (self.rules.table(), Mark::next());
        let loaded = rules::load("host's", &self.rules.text(&mark));
        match loaded {
            Ok(()) => {
                tracing::warn!(table, "another program removed or changed the host's table: loaded it again");
                self.changes.loaded(mark.chain());
                self.shared.loads.fetch_add(1, Ordering::Relaxed);
                self.may_load = Instant::now() + LOAD_PAUSE;
            }
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(table, %error, "failed to load the host's table again; retrying each second");
                }
                self.may_load = Instant::now() + RETRY;
            }
        }
        self.is_failing = self.changes.changed();
        self.note(Instant::now());
    }

    fn load_wall(&mut self) {
        let loaded =
            Socket::route().and_then(|mut host| route::own_addresses(&mut host)).map(|own| ranges::of_host(&own));
        let wall = match loaded {
            Ok(wall) => wall,
            Err(error) => return self.retry_wall(&error),
        };
        if wall == self.wall {
            return;
        }
        let text = rules::wall_rules(&wall);
        match netns::visit(&self.home, &self.router, || rules::load("router's", &text)) {
            Ok(Ok(())) => {
                let ranges: Vec<_> = wall.iter().map(ToString::to_string).collect();
                tracing::info!(?ranges, "the host's addresses changed: no sandbox may send to these");
                self.wall = wall;
            }
            Ok(Err(error)) => self.retry_wall(&error),
            Err(error) => self.retry_wall(&error),
        }
    }

    fn retry_wall(&mut self, error: &dyn std::error::Error) {
        tracing::error!(%error, "failed to keep sandboxes from the host's new addresses; retrying");
        self.due.wall = Some(Instant::now() + RETRY);
    }

    fn forget_flows(&mut self) {
        let slots = std::mem::take(&mut *self.shared.cut_off());
        let sockets = netns::visit(&self.home, &self.router, Socket::netfilter);
        let forgotten = match sockets {
            Ok(Ok(mut router)) => {
                Socket::netfilter().and_then(|mut host| flows::forget(&mut router, &mut host, &slots))
            }
            Ok(Err(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "failed to enter the router's namespace");
                return;
            }
        };
        match forgotten {
            Ok(flows) => tracing::debug!(slots = slots.len(), flows, "forgot the flows of slots that were cut off"),
            Err(error) => tracing::warn!(%error, source = %error.source, "failed to forget the flows of slots"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_has_come_is_taken_once() {
        let now = Instant::now();
        let mut due = Due { rules: Some(now), wall: Some(now + RETRY), flows: None };
        assert_eq!(due.first(), Some(now));
        assert!(take_due(&mut due.rules, now) && !take_due(&mut due.rules, now));
        assert!(!take_due(&mut due.wall, now) && !take_due(&mut due.flows, now));
        assert_eq!(due.first(), Some(now + RETRY));
    }
}
