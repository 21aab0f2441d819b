//! Who is being served by a sandbox now, and the agreement by which a sleep and a request never miss each other.
//!
//! A request first raises its guard, then looks whether the sandbox is falling asleep. The actor first says that it is
//! falling asleep, then looks at the guards. Both happen under one lock, so one of the two sees the other: either the
//! sleep is called off or the request waits for the wake.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use roost_model::{Keeper, Signal};
use tokio::sync::Notify;

/// What keeps one sandbox awake, as far as the daemon itself serves it.
#[derive(Debug)]
pub(crate) struct Guards {
    inner: Mutex<Inner>,
    /// Tells the actor to look again.
    look: Notify,
}

#[derive(Debug)]
struct Inner {
    raised: BTreeMap<u64, Raised>,
    next: u64,
    falling_asleep: bool,
    /// When a request was last served, it woke, or something was seen to count.
    touched: Instant,
    stirred_at: Timestamp,
    /// When a client of each kind last left.
    left: BTreeMap<Signal, (Instant, Timestamp)>,
    /// What was found to count at the last look.
    seen: Vec<Keeper>,
    /// Set while the actor waits for the last guard that counts to go.
    tell: Option<Vec<Signal>>,
}

#[derive(Debug, Clone)]
struct Raised {
    signal: Signal,
    kind: Kind,
    what: Arc<str>,
    since: Timestamp,
}

/// How much a guard asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A client that may be there for long and do nothing; counts unless its signal is ignored.
    Client,
    /// A request that is being answered; always counts, and is worth a wake.
    Request,
    /// A look that must not be frozen half-way, and is no reason to stay awake afterwards.
    Glance,
}

impl Raised {
    fn counts(&self, ignore: &[Signal]) -> bool {
        self.kind != Kind::Client || !ignore.contains(&self.signal)
    }
}

/// Keeps a sandbox awake for as long as it is held.
#[derive(Debug)]
pub struct Busy {
    guards: Arc<Guards>,
    number: u64,
    what: Arc<str>,
}

impl Busy {
    /// What it is held for; the cause of a wake, should one be needed.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut inner = self.guards.lock();
        let now = (Instant::now(), Timestamp::now());
        match inner.raised.remove(&self.number) {
            Some(Raised { kind: Kind::Client, signal, .. }) => drop(inner.left.insert(signal, now)),
            Some(Raised { kind: Kind::Request, .. }) => (inner.touched, inner.stirred_at) = now,
            _ => {}
        }
        let alone =
            inner.tell.as_ref().is_some_and(|ignore| !inner.raised.values().any(|raised| raised.counts(ignore)));
        if alone {
            inner.tell = None;
            drop(inner);
            self.guards.look.notify_one();
        }
    }
}

/// A sandbox on its way to sleep; requests wait for its wake until this is dropped.
#[derive(Debug)]
pub(crate) struct Falling(Arc<Guards>);

impl Drop for Falling {
    fn drop(&mut self) {
        self.0.lock().falling_asleep = false;
    }
}

impl Guards {
    pub(crate) fn new() -> Arc<Self> {
        let inner = Inner {
            raised: BTreeMap::new(),
            next: 0,
            falling_asleep: false,
            touched: Instant::now(),
            stirred_at: Timestamp::now(),
            left: BTreeMap::new(),
            seen: Vec::new(),
            tell: None,
        };
        Arc::new(Self { inner: Mutex::new(inner), look: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a guard.
    pub(crate) fn raise(self: &Arc<Self>, signal: Signal, kind: Kind, what: &str) -> Busy {
        let what: Arc<str> = what.into();
        let mut inner = self.lock();
        let number = inner.next;
        inner.next += 1;
        inner.raised.insert(number, Raised { signal, kind, what: what.clone(), since: Timestamp::now() });
        Busy { guards: self.clone(), number, what }
    }

    /// Whether it is on its way to sleep. To be asked after a guard was raised, and before its phase is looked at.
    pub(crate) fn falling_asleep(&self) -> bool {
        self.lock().falling_asleep
    }

    /// Says that it falls asleep, unless somebody is being served.
    pub(crate) fn fall_asleep(self: &Arc<Self>, ignore: &[Signal]) -> Option<Falling> {
        let mut inner = self.lock();
        if inner.raised.values().any(|raised| raised.counts(ignore)) {
            return None;
        }
        inner.falling_asleep = true;
        Some(Falling(self.clone()))
    }

    /// The signals of guards that count, and when a client was last served. If there are any, the actor is told when
    /// the last of them has gone.
    pub(crate) fn look(&self, ignore: &[Signal]) -> (Vec<Signal>, Instant) {
        let mut inner = self.lock();
        let counting: Vec<Signal> =
            inner.raised.values().filter(|raised| raised.counts(ignore)).map(|raised| raised.signal).collect();
        inner.tell = (!counting.is_empty()).then(|| ignore.to_vec());
        let left = inner.left.iter().filter(|(signal, _)| !ignore.contains(signal)).map(|(_, (moment, _))| *moment);
        let touched = left.fold(inner.touched, Instant::max);
        (counting, touched)
    }

    /// What a request that is under way is for, if there is one.
    pub(crate) fn request(&self) -> Option<Arc<str>> {
        self.lock().raised.values().find(|raised| raised.kind == Kind::Request).map(|raised| raised.what.clone())
    }

    /// Notes that somebody used it just now.
    pub(crate) fn touch(&self) {
        let mut inner = self.lock();
        inner.touched = Instant::now();
        inner.stirred_at = Timestamp::now();
        inner.seen.clear();
    }

    /// Notes what was found to count when it was looked at.
    pub(crate) fn saw(&self, seen: Vec<Keeper>) {
        let mut inner = self.lock();
        if !seen.is_empty() {
            inner.stirred_at = Timestamp::now();
        }
        inner.seen = seen;
    }

    /// Everything that keeps it awake, served or seen.
    pub(crate) fn keepers(&self, ignore: &[Signal]) -> Vec<Keeper> {
        let inner = self.lock();
        let served = inner.raised.values().filter(|raised| raised.kind != Kind::Glance && raised.counts(ignore));
        let served = served.map(|raised| Keeper {
            signal: raised.signal,
            what: raised.what.to_string(),
            since: Some(raised.since),
        });
        served.chain(inner.seen.iter().cloned()).collect()
    }

    /// Since when nothing has counted; nothing while something does.
    pub(crate) fn quiet_since(&self, ignore: &[Signal]) -> Option<Timestamp> {
        if !self.keepers(ignore).is_empty() {
            return None;
        }
        let inner = self.lock();
        let left = inner.left.iter().filter(|(signal, _)| !ignore.contains(signal)).map(|(_, (_, moment))| *moment);
        Some(left.fold(inner.stirred_at, Timestamp::max))
    }

    /// Resolves when the actor should look again.
    pub(crate) async fn told(&self) {
        self.look.notified().await;
    }

    /// Has the actor look again.
    pub(crate) fn tell(&self) {
        self.look.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_guard_counts_while_it_is_held_unless_its_signal_is_ignored() {
        let guards = Guards::new();
        let busy = guards.raise(Signal::Connections, Kind::Client, "watch /root");
        assert!(guards.fall_asleep(&[]).is_none());
        assert_eq!(guards.keepers(&[])[0].what, "watch /root");
        assert_eq!(guards.quiet_since(&[]), None);
        drop(guards.fall_asleep(&[Signal::Connections]).expect("nobody counts"));
        let request = guards.raise(Signal::Connections, Kind::Request, "file read /etc/passwd");
        assert!(guards.fall_asleep(&[Signal::Connections]).is_none(), "a request always counts");
        assert_eq!(guards.request().as_deref(), Some("file read /etc/passwd"));
        drop(request);
        let (_, before) = guards.look(&[Signal::Connections]);
        drop(busy);
        assert_eq!(guards.look(&[Signal::Connections]).1, before, "an ignored client that leaves counts as little");
        assert!(guards.look(&[]).1 > before);
        assert!(guards.quiet_since(&[]).is_some());
        let falling = guards.fall_asleep(&[]).expect("all have left");
        assert!(guards.falling_asleep());
        drop(falling);
        assert!(!guards.falling_asleep());
    }

    #[test]
    fn a_glance_leaves_no_trace() {
        let guards = Guards::new();
        let (_, before) = guards.look(&[]);
        let glance = guards.raise(Signal::Connections, Kind::Glance, "ports");
        assert!(guards.fall_asleep(&[]).is_none(), "it must not be frozen half-way");
        assert!(guards.keepers(&[]).is_empty());
        drop(glance);
        assert_eq!(guards.look(&[]).1, before);
    }

    #[tokio::test]
    async fn the_actor_is_told_when_the_last_one_that_counts_has_gone() {
        let guards = Guards::new();
        let (one, two) = (
            guards.raise(Signal::Execs, Kind::Client, "exec"),
            guards.raise(Signal::Connections, Kind::Client, "watch"),
        );
        let ignore = [Signal::Connections];
        assert_eq!(guards.look(&ignore).0, [Signal::Execs]);
        drop(one);
        guards.told().await;
        assert!(guards.look(&ignore).0.is_empty());
        drop(two);
    }

    /// A sandbox that only a thread plays: asleep or awake, and never both served and asleep.
    #[test]
    fn a_sleep_and_a_request_never_miss_each_other() {
        const ROUNDS: u64 = 20_000;
        let guards = Guards::new();
        // What the actor publishes; `served_asleep` is what must never happen.
        let (awake, served_asleep, sleeps) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
        let wakes = Mutex::new(());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // The actor does one thing at a time: a wake waits until it has fallen asleep.
                    let turn = wakes.lock().unwrap();
                    if let Some(falling) = guards.fall_asleep(&[]) {
                        thread::yield_now();
                        awake.store(false, Ordering::SeqCst);
                        sleeps.fetch_add(1, Ordering::Relaxed);
                        drop(falling);
                    }
                    drop(turn);
                    thread::yield_now();
                }
            });
            let clients: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..ROUNDS {
                            let busy = guards.raise(Signal::Connections, Kind::Request, "request");
                            if guards.falling_asleep() || !awake.load(Ordering::SeqCst) {
                                let _turn = wakes.lock().unwrap();
                                awake.store(true, Ordering::SeqCst);
                            }
                            if !awake.load(Ordering::SeqCst) {
                                served_asleep.fetch_add(1, Ordering::Relaxed);
                            }
                            drop(busy);
                        }
                    })
                })
                .collect();
            for client in clients {
                client.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(served_asleep.load(Ordering::Relaxed), 0);
        assert!(sleeps.load(Ordering::Relaxed) > 0, "it slept now and then");
    }
}
