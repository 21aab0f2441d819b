//! One sandbox under one policy, through all that its trace brings.
//!
//! Whether it may sleep is asked of the same functions as in the daemon, at the same moments: [`verdict`] says when to look
//! again, and [`deepens_at`] when memory goes to disk.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use roost_lifecycle::{Conversation, Counters, Event, Phase, Sight, Verdict, Window, deepens_at, step_of, verdict};
use roost_model::{IdlePolicy, Level};

use crate::random::Random;
use crate::trace::{Act, Doing, Trace};
use crate::world::{Crashes, Odds, World};

/// An answer that is waited for longer than this is not expected any more, by contract.
const LONGEST_ANSWER: u64 = 600_000;

/// What a life was like; sums over many lives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Milliseconds in which somebody was served, or something was done.
    pub busy: u64,
    /// Milliseconds awake.
    pub awake: u64,
    /// Milliseconds asleep in RAM.
    pub ram: u64,
    /// Milliseconds asleep in an image, or in files.
    pub deep: u64,
    /// How often somebody came, and found it awake, in RAM, on disk and in files.
    pub found: [u64; 4],
    /// Images written.
    pub saves: u64,
    /// Looks at its counters.
    pub looks: u64,
    /// Things stored.
    pub persists: u64,
    /// Where the daemon died, and how often.
    pub crashes: Crashes,
}

impl Spent {
    /// Adds another life.
    pub fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.awake += other.awake;
        self.ram += other.ram;
        self.deep += other.deep;
        for (mine, its) in self.found.iter_mut().zip(other.found) {
            *mine += its;
        }
        self.saves += other.saves;
        self.looks += other.looks;
        self.persists += other.persists;
        for (place, count) in other.crashes {
            *self.crashes.entry(place).or_default() += count;
        }
    }

    /// How often somebody came.
    pub fn touches(&self) -> u64 {
        self.found.iter().sum()
    }

    /// How often the daemon died.
    pub fn deaths(&self) -> u64 {
        self.crashes.values().sum()
    }
}

/// What else happens to a sandbox than its trace: once in so many acts, 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fate {
    pub odds: Odds,
    /// Somebody suspends, keeps, restores or deletes it, or its processes are killed.
    pub order: u64,
}

/// Lives one life to its end and says what it was like; panics if a promise is broken.
pub fn live(number: u64, seed: u64, policy: &IdlePolicy, fate: Fate, until: u64) -> Spent {
    let trace = Trace::new(Trace::living(number), Random::of(seed, number));
    let world = World::new(Random::of(seed ^ 0x0dd5, number), fate.odds);
    let mut life = Life::new(world, policy, Random::of(seed ^ 0xfa7e, number));
    for act in trace.take_while(|act| act.at < until) {
        life.pass(act.at, None);
        life.order(fate.order);
        if life.world.is_over() {
            break;
        }
        life.act(act);
    }
    if !life.world.is_over() {
        life.pass(until, None);
        life.world.ask(Event::TerminateRequested);
    }
    assert!(life.world.is_over(), "does not end: {:?}", life.world);
    life.spent.persists = life.world.persists;
    life.spent.crashes = std::mem::take(&mut life.world.crashes);
    life.spent
}

struct Life<'a> {
    world: World,
    policy: &'a IdlePolicy,
    random: Random,
    spent: Spent,
    /// Any moment will do: only differences count.
    origin: Instant,
    now: u64,
    touched: u64,
    /// The phase of which time was last counted began here.
    counted: u64,
    asleep_since: u64,
    not_saved: Option<u64>,
    look_at: Option<u64>,
    window: Window,
    cpu_us: u64,
}

impl<'a> Life<'a> {
    fn new(world: World, policy: &'a IdlePolicy, random: Random) -> Self {
        let mut life = Self {
            world,
            policy,
            random,
            spent: Spent::default(),
            origin: Instant::now(),
            now: 0,
            touched: 0,
            counted: 0,
            asleep_since: 0,
            not_saved: None,
            look_at: None,
            window: Window::default(),
            cpu_us: 0,
        };
        life.watch_anew();
        life
    }

    fn instant(&self, at: u64) -> Instant {
        self.origin + Duration::from_millis(at)
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from((at - self.origin).as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    }

    fn after(&self) -> Duration {
        self.policy.after.get().unwrap_or(Duration::MAX)
    }

    /// Counts the time since the last count to the phase it is in.
    fn count(&mut self) {
        let time = self.now - self.counted;
        self.counted = self.now;
        match self.world.phase {
            Phase::Suspended(Level::Ram) => self.spent.ram += time,
            Phase::Suspended(_) => self.spent.deep += time,
            _ => self.spent.awake += time,
        }
    }

    fn watch_anew(&mut self) {
        self.touched = self.now;
        self.window = Window::default();
        self.look_at = match (self.world.phase, self.policy.after.get()) {
            (Phase::Active, Some(after)) => Some(self.millis(self.instant(self.now) + step_of(after) / 2)),
            _ => None,
        };
    }

    /// Lets time pass, with something going on inside or nothing, that nobody is connected to.
    fn pass(&mut self, until: u64, doing: Option<Act>) {
        while self.now < until {
            let next = match self.world.phase {
                Phase::Active => self.look_at,
                Phase::Suspended(Level::Ram) => self.deepens_at(),
                _ => None,
            };
            let next = next.map_or(until, |next| next.max(self.now).min(until));
            if doing.is_some_and(|act| act.doing == Doing::Background) {
                self.cpu_us += (next - self.now) * 1000;
            }
            let acts = next < until;
            self.now = next;
            self.count();
            match self.world.phase {
                Phase::Active if acts => self.look(doing),
                Phase::Suspended(Level::Ram) if acts => self.deepen(),
                _ => {}
            }
        }
    }

    fn deepens_at(&self) -> Option<u64> {
        let at = |millis: u64| Timestamp::from_millisecond(millis.cast_signed()).unwrap_or(Timestamp::MAX);
        let due = deepens_at(self.policy, at(self.asleep_since), self.not_saved.map(at))?;
        u64::try_from(due.as_millisecond()).ok()
    }

    fn look(&mut self, doing: Option<Act>) {
        self.spent.looks += 1;
        let (now, after) = (self.instant(self.now), self.after());
        self.window.push(now, Counters { cpu_us: self.cpu_us, ..Counters::default() }, after);
        let talk = doing.filter(|act| act.doing == Doing::Think).map(|act| {
            let said = Duration::from_millis(self.now - act.at);
            let heard = said + Duration::from_secs(1);
            Conversation { peer: String::new(), said, heard, connecting: false, owed: true }
        });
        let mut sight = Sight {
            raised: &[],
            touched: self.instant(self.touched),
            window: &self.window,
            holds: &[],
            next_alarm: None,
            outbound: None,
        };
        let mut judged = verdict(self.policy, &sight, now);
        if judged == Verdict::AskGuest {
            sight.outbound = Some(talk.as_slice());
            judged = verdict(self.policy, &sight, now);
        }
        match judged {
            Verdict::Awake { look_again, .. } => self.look_at = look_again.map(|at| self.millis(at).max(self.now + 1)),
            Verdict::AskGuest => unreachable!("its guest was asked"),
            Verdict::Sleep { level, .. } => {
                if let Some(act) = doing {
                    let long = act.doing == Doing::Think && self.now - act.at > LONGEST_ANSWER;
                    assert!(long, "put to sleep while it works: {act:?} at {}", self.now);
                }
                self.suspend(level);
            }
        }
    }

    fn suspend(&mut self, level: Level) {
        self.count();
        self.spent.saves += u64::from(level == Level::Disk);
        self.world.ask(Event::SuspendRequested(level));
        self.asleep_since = self.now;
        self.not_saved = None;
        self.watch_anew();
    }

    fn deepen(&mut self) {
        self.spent.saves += 1;
        self.world.ask(Event::SuspendRequested(Level::Disk));
        if self.world.phase == Phase::Suspended(Level::Ram) {
            self.not_saved = Some(self.now);
        }
    }

    fn act(&mut self, act: Act) {
        let place = match self.world.phase {
            Phase::Suspended(Level::Ram) => 1,
            Phase::Suspended(Level::Disk) => 2,
            Phase::Suspended(Level::Files) => 3,
            _ => 0,
        };
        // What goes on inside does not come from outside; but a job of the clock does.
        let comes = matches!(act.doing, Doing::Exec | Doing::Request) || place != 0;
        if comes {
            self.spent.found[place] += 1;
        }
        if self.world.phase != Phase::Active {
            self.count();
            self.world.ask(Event::WakeRequested);
            self.not_saved = None;
            self.watch_anew();
        }
        self.world.work();
        self.spent.busy += act.lasts;
        let end = act.at + act.lasts;
        if matches!(act.doing, Doing::Exec | Doing::Request) {
            // While somebody is served nobody looks.
            self.cpu_us += act.lasts * 200;
            self.now = end;
            self.count();
            self.watch_anew();
        } else {
            self.pass(end, Some(act));
        }
    }

    /// Something that a person does, or that nobody wants.
    fn order(&mut self, once_in: u64) {
        if !self.random.once_in(once_in) {
            return;
        }
        self.count();
        match self.random.below(20) {
            0..4 => self.suspend(Level::Ram),
            4..8 => self.suspend(Level::Disk),
            8..11 => self.suspend(Level::Files),
            11..14 => self.world.keep(),
            14..16 => self.world.ask(Event::RestoreRequested),
            16..19 => self.world.perish(),
            _ => self.world.ask(Event::TerminateRequested),
        }
        self.asleep_since = self.now;
        self.watch_anew();
    }
}
