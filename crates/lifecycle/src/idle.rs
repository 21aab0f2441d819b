//! Whether a sandbox that is awake may sleep, and when to look again.
//!
//! What is known of it is a [`Sight`]; [`verdict`] says what follows. Nothing here has a clock: whoever calls brings the
//! moment, so that a decision can be repeated and tried on any life.
//!
//! ```text
//!   raised guard, never  ->  Awake, until told           nothing is read meanwhile
//!   counters above their rate over the window, a window that is not full yet  ->  Awake, look again in a step
//!   a hold, an alarm close by  ->  Awake, until it is over
//!   all of that quiet  ->  AskGuest  ->  somebody outside owes it an answer  ->  Awake, look again in a step
//!                                    ->  nobody  ->  Sleep
//! ```

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use roost_model::{IdlePolicy, Level, Signal};

/// More of one core than this, in thousandths, is work.
const CPU_PERMILLE: u128 = 10;
/// More bytes in a second than this are work.
const BYTES_PER_SECOND: u128 = 4096;
/// An answer that has not come by then is not waited for any more.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);
/// An alarm this close makes a sleep not worth its while.
const ALARM_CLOSE: Duration = Duration::from_secs(5);
/// How many times the counters are read in one window.
const STEPS: u32 = 4;
const SHORTEST_STEP: Duration = Duration::from_millis(50);
const LONGEST_STEP: Duration = Duration::from_secs(30);

/// What a sandbox has used since its start; only ever grows while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Microseconds of CPU.
    pub cpu_us: u64,
    /// Bytes read from and written to disk.
    pub disk: u64,
    /// Bytes received and sent.
    pub network: u64,
}

/// The counters as they were read over the last window.
#[derive(Debug, Clone, Default)]
pub struct Window {
    samples: VecDeque<(Instant, Counters)>,
}

impl Window {
    /// A window that begins with this reading.
    pub fn from(at: Instant, counters: Counters) -> Self {
        Self { samples: VecDeque::from([(at, counters)]) }
    }

    /// Adds a reading and forgets those that no window of this length needs any more.
    pub fn push(&mut self, at: Instant, counters: Counters, after: Duration) {
        self.samples.push_back((at, counters));
        // The second one is old enough to begin a window: nothing needs the first.
        while self.samples.get(1).is_some_and(|(second, _)| at.saturating_duration_since(*second) >= after) {
            self.samples.pop_front();
        }
    }

    /// When the newest reading was taken.
    pub fn newest(&self) -> Option<Instant> {
        self.samples.back().map(|(at, _)| *at)
    }

    /// The reading that the window of a sandbox begins with that was last touched at `touched`: old enough to tell of
    /// the whole of it, and not of the time before the touch.
    fn base(&self, touched: Instant, now: Instant, after: Duration) -> Option<&(Instant, Counters)> {
        let whole = self.samples.iter().rev().find(|(at, _)| now.saturating_duration_since(*at) >= after);
        let base = match whole {
            Some(whole) if whole.0 >= touched => Some(whole),
            _ => self.samples.iter().find(|(at, _)| *at >= touched).or(whole),
        };
        // A reading of just now tells nothing.
        base.filter(|(at, _)| now.saturating_duration_since(*at) >= after / 2)
    }
}

/// A connection from inside to somewhere outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conversation {
    /// The other end.
    pub peer: String,
    /// How long ago something was last sent to it.
    pub said: Duration,
    /// How long ago something last came from it.
    pub heard: Duration,
    /// Whether it is still being made.
    pub connecting: bool,
    /// Whether the last word was ours.
    pub owed: bool,
}

impl Conversation {
    /// Whether an answer is owed, or the talk goes on.
    ///
    /// Ours was the last word; or something was said by either within the quiet time, which a slow answer in pieces does
    /// and a connection that is only kept does not.
    pub fn goes_on(&self, after: Duration) -> bool {
        ((self.connecting || self.owed) && self.said <= LONGEST_ANSWER) || self.said.min(self.heard) < after
    }
}

/// What is known of a sandbox that is awake.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Signals of clients that are being served now.
    pub raised: &'a [Signal],
    /// When a client was last served, or it woke.
    pub touched: Instant,
    /// What it used.
    pub window: &'a Window,
    /// When each lease on it ends.
    pub holds: &'a [Instant],
    /// The time until its next alarm.
    pub next_alarm: Option<Duration>,
    /// Its connections to the outside, once they were asked for.
    pub outbound: Option<&'a [Conversation]>,
}

/// One reason to stay awake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A client is being served.
    Served(Signal),
    /// The CPU it uses, in thousandths of a core.
    Cpu(u64),
    /// The bytes it reads and writes each second.
    Disk(u64),
    /// The bytes it receives and sends each second.
    Network(u64),
    /// A lease.
    Held,
    /// An alarm is close.
    Alarm,
    /// An answer is waited for from this end.
    Outbound(Conversation),
}

/// What follows from a sight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It stays awake.
    Awake {
        /// Why; empty while it is quiet and not yet for long enough.
        because: Vec<Reason>,
        /// When to look again; nothing means when told.
        look_again: Option<Instant>,
    },
    /// All that can be seen from here is quiet: ask its guest for its connections to the outside, then decide.
    AskGuest,
    /// It may sleep.
    Sleep {
        /// How deep.
        level: Level,
        /// How long it has been quiet.
        quiet: Duration,
    },
}

/// How far apart the counters of a sandbox are read that is awake and serves nobody.
pub fn step_of(after: Duration) -> Duration {
    (after / STEPS).clamp(SHORTEST_STEP, LONGEST_STEP)
}

/// Says whether a sandbox that is awake may sleep.
pub fn verdict(policy: &IdlePolicy, sight: &Sight<'_>, now: Instant) -> Verdict {
    let counts = |signal: Signal| !policy.ignore.contains(&signal);
    let Some(after) = policy.after.get() else { return Verdict::Awake { because: Vec::new(), look_again: None } };
    let served: Vec<Reason> =
        sight.raised.iter().copied().filter(|signal| counts(*signal)).map(Reason::Served).collect();
    if !served.is_empty() {
        return Verdict::Awake { because: served, look_again: None };
    }
    let next_step = now + step_of(after);
    let quiet = now.saturating_duration_since(sight.touched);
    if quiet < after {
        let look_again = Some(next_step.min(sight.touched + after).max(now + SHORTEST_STEP));
        return Verdict::Awake { because: Vec::new(), look_again };
    }
    let Some(loads) = loads(policy, sight, now, after) else {
        return Verdict::Awake { because: Vec::new(), look_again: Some(next_step) };
    };
    if !loads.is_empty() {
        return Verdict::Awake { because: loads, look_again: Some(next_step) };
    }
    if let Some(end) = sight.holds.iter().filter(|end| **end > now).max().filter(|_| counts(Signal::Holds)) {
        return Verdict::Awake { because: vec![Reason::Held], look_again: Some(*end) };
    }
    if let Some(alarm) = sight.next_alarm.filter(|alarm| *alarm <= ALARM_CLOSE && counts(Signal::Timer)) {
        return Verdict::Awake { because: vec![Reason::Alarm], look_again: Some(now + alarm.max(SHORTEST_STEP)) };
    }
    if counts(Signal::Outbound) {
        let Some(talks) = sight.outbound else { return Verdict::AskGuest };
        let going: Vec<Reason> =
            talks.iter().filter(|talk| talk.goes_on(after)).cloned().map(Reason::Outbound).collect();
        if !going.is_empty() {
            return Verdict::Awake { because: going, look_again: Some(next_step) };
        }
    }
    Verdict::Sleep { level: policy.to, quiet }
}

/// The counters that are above their rates, or nothing while the window is not full.
fn loads(policy: &IdlePolicy, sight: &Sight<'_>, now: Instant, after: Duration) -> Option<Vec<Reason>> {
    let counts = |signal: Signal| !policy.ignore.contains(&signal);
    if ![Signal::Cpu, Signal::Disk, Signal::Network].into_iter().any(counts) {
        return Some(Vec::new());
    }
    let (began, before) = sight.window.base(sight.touched, now, after)?;
    let (ended, latest) = sight.window.samples.back()?;
    let micros = ended.saturating_duration_since(*began).as_micros();
    if micros == 0 {
        return None;
    }
    let per_second = |more: u64| u128::from(more) * 1_000_000 / micros;
    let whole = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
    // Microseconds of CPU in a second are millionths of a core.
    let cpu = per_second(latest.cpu_us.saturating_sub(before.cpu_us)) / 1000;
    let disk = per_second(latest.disk.saturating_sub(before.disk));
    let network = per_second(latest.network.saturating_sub(before.network));
    let mut loads = Vec::new();
    if cpu > CPU_PERMILLE && counts(Signal::Cpu) {
        loads.push(Reason::Cpu(whole(cpu)));
    }
    if disk > BYTES_PER_SECOND && counts(Signal::Disk) {
        loads.push(Reason::Disk(whole(disk)));
    }
    if network > BYTES_PER_SECOND && counts(Signal::Network) {
        loads.push(Reason::Network(whole(network)));
    }
    Some(loads)
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
