//! Falling asleep by itself and going deeper; the actor's part.
//!
//! What follows from what was seen is decided by [`roost_lifecycle::verdict`]; here it is seen and done.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use roost_lifecycle::{
    Conversation, Counters, Phase, Reason, Sight, Verdict, Waker, Window, deepens_at, step_of, verdict,
};
use roost_model::{Hold, IdlePolicy, Keeper, Level, Signal, Span, chain};
use roost_store::{NotSaved, SandboxRecord};
use roost_wire::{Activity, Reply, Request};

use crate::HostError;
use crate::account::Account;
use crate::actor::Actor;
use crate::effects::Effects;
use crate::guest::Guest;

/// How long a guest may take to tell of its connections; one that does not is taken to have none.
const ASK_TIME: Duration = Duration::from_secs(2);
/// Sandboxes go to disk by themselves one after the other; this is how long one waits for its turn.
const NOT_YOUR_TURN: Duration = Duration::from_secs(5);
/// The wall clock may be set while somebody waits for a moment of it.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What the actor has seen of its sandbox since it woke.
#[derive(Debug, Default)]
pub(crate) struct IdleWatch {
    window: Window,
    look_at: Option<Instant>,
}

impl Actor {
    /// Why it does not sleep by itself at all, if it does not.
    fn sleepless(&self) -> bool {
        // One that waits in a pool is asleep by itself already, or its engine cannot freeze.
        self.record.bound_to_run || self.record.pool.is_some() || self.record.idle.after == Span::NEVER
    }

    /// Begins to watch a sandbox that is awake from now on, or whose policy has changed.
    pub(crate) fn watch_anew(&mut self) {
        self.guards.touch();
        self.watch = IdleWatch::default();
        self.watch.look_at = match (self.record.phase, self.record.idle.after.get()) {
            (Phase::Active, Some(after)) if !self.sleepless() => Some(Instant::now() + step_of(after) / 2),
            (Phase::Suspended(Level::Ram), _) => self.look_before_deepening(),
            _ => None,
        };
    }

    /// When to look again, if at all.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.watch.look_at
    }

    /// Looks at the sandbox and does what follows.
    pub(crate) async fn look(&mut self) {
        self.watch.look_at = None;
        match self.record.phase {
            Phase::Active if !self.sleepless() => self.look_awake().await,
            Phase::Suspended(Level::Ram) => self.look_asleep().await,
            _ => {}
        }
    }

    async fn look_awake(&mut self) {
        let policy = self.record.idle.clone();
        let (raised, touched) = self.guards.look(&policy.ignore);
        if raised.is_empty() {
            self.sample(&policy).await;
        } else {
            // Whoever is served now is told of when he leaves, and a new window begins then.
            self.watch.window = Window::default();
        }
        let holds = self.effects.shared.holds_of(&self.record.id);
        let next_alarm = self.effects.shared.next_alarm(&self.record.id);
        let mut outbound = None;
        let (because, look_again) = loop {
            let (now, wall) = (Instant::now(), Timestamp::now());
            let ends: Vec<Instant> = holds.iter().map(|hold| now + until(hold.expires_at, wall)).collect();
            let sight = Sight {
                raised: &raised,
                touched,
                window: &self.watch.window,
                holds: &ends,
                next_alarm: next_alarm.map(|alarm| until(alarm, wall)),
                outbound: outbound.as_deref(),
            };
            match verdict(&policy, &sight, now) {
                Verdict::Awake { because, look_again } => break (because, look_again),
                Verdict::AskGuest => outbound = Some(outbound_of(&self.effects, &self.record).await),
                Verdict::Sleep { level, quiet } => return self.fall_asleep(level, quiet).await,
            }
        };
        tracing::trace!(sandbox = %self.record.id, ?because, "stays awake");
        self.watch.look_at = look_again;
        let after = policy.after.get().unwrap_or_default();
        self.guards.saw(keepers(&because, &holds, next_alarm, after));
    }

    async fn sample(&mut self, policy: &IdlePolicy) {
        let counters = match self.effects.engine.counters(&self.record.id).await {
            Ok(used) => Counters { cpu_us: used.cpu_us, disk: used.disk, network: used.network },
            Err(error) => {
                // It has just ended, which is heard of in another way.
                tracing::debug!(sandbox = %self.record.id, error = %chain(&error), "could not read its counters");
                return;
            }
        };
        self.watch.window.push(Instant::now(), counters, policy.after.get().unwrap_or_default());
    }

    /// Puts it to sleep, unless somebody reaches for it at the last moment.
    async fn fall_asleep(&mut self, level: Level, quiet: Duration) {
        let Some(falling) = self.guards.fall_asleep(&self.record.idle.ignore) else {
            return self.guards.tell();
        };
        let why = format!("after {} without activity", seconds(quiet));
        let deep = level == Level::Disk && self.effects.engine.capabilities().save_memory;
        let first = if level == Level::Disk && !deep { Level::Ram } else { level };
        self.account = Account::open();
        let mut outcome = self.suspend(first, why.clone()).await.map(drop);
        if let Err(error) = &outcome
            && first == Level::Disk
            && self.record.phase == Phase::Active
        {
            // Never quietly reduced, and never kept awake for it either.
            let attempt = NotSaved { why: chain(error), at: Timestamp::now() };
            self.record.not_saved = Some(attempt);
            self.account = Account::open();
            outcome = self.suspend(Level::Ram, why).await.map(drop);
        }
        drop(falling);
        if let Err(error) = outcome {
            tracing::warn!(sandbox = %self.record.id, error = %chain(&error), "it could not fall asleep");
            self.watch_anew();
        }
    }

    async fn look_asleep(&mut self) {
        if self.deepens_in() != Some(Duration::ZERO) {
            self.watch.look_at = self.look_before_deepening();
            return;
        }
        let shared = self.effects.shared.clone();
        let Ok(_turn) = shared.deepening.try_acquire() else {
            self.watch.look_at = Some(Instant::now() + NOT_YOUR_TURN);
            return;
        };
        let why = format!("after {} asleep in ram", self.record.idle.deepen_after);
        self.account = Account::open();
        if let Err(error) = self.deepen(why).await {
            tracing::info!(sandbox = %self.record.id, error = %chain(&error), "it stays in memory");
        }
    }

    /// When to look whether its memory shall go to disk; a long wait is cut short.
    fn look_before_deepening(&self) -> Option<Instant> {
        self.deepens_in().map(|wait| Instant::now() + wait.min(LONGEST_WAIT))
    }

    /// The time until its memory shall go to disk.
    fn deepens_in(&self) -> Option<Duration> {
        if !self.effects.engine.capabilities().save_memory {
            return None;
        }
        let record = &self.record;
        let since = record.asleep_since.unwrap_or(record.state_since);
        let due = deepens_at(&record.idle, since, record.not_saved.as_ref().map(|attempt| attempt.at))?;
        Some(until(due, Timestamp::now()))
    }

    /// Lets the memory of a sandbox that sleeps in RAM go to disk.
    pub(crate) async fn deepen(&mut self, why: String) -> Result<(), HostError> {
        if self.record.phase != Phase::Suspended(Level::Ram) {
            return Ok(());
        }
        let slept_for = self.record.reason.clone();
        let outcome = self.suspend(Level::Disk, why).await.map(drop);
        if let Err(error) = &outcome
            && self.record.phase == Phase::Suspended(Level::Ram)
        {
            let mut next = self.record.clone();
            next.not_saved = Some(NotSaved { why: chain(error), at: Timestamp::now() });
            next.reason = slept_for;
            if let Err(error) = self.store(next, None, roost_store::Durability::Process).await {
                tracing::warn!(sandbox = %self.record.id, error = %chain(&error), "could not store it");
            }
            self.watch.look_at = self.look_before_deepening();
        }
        outcome
    }

    /// Serves requests that an order to sleep has overtaken: they are under way and would wait for ever.
    pub(crate) async fn wake_for_requests(&mut self) {
        if self.record.phase != Phase::Suspended(Level::Ram) || self.record.stays {
            return;
        }
        if let Some(request) = self.guards.request() {
            self.account = Account::open();
            if let Err(error) = self.wake(&request, Waker::Touch).await {
                tracing::warn!(sandbox = %self.record.id, error = %chain(&error), "could not wake it for a request");
            }
        }
    }

    /// What happens to its watch when it has entered a phase.
    pub(crate) fn entered(&mut self, phase: Phase) {
        match phase {
            Phase::Active | Phase::Suspended(Level::Ram) => self.watch_anew(),
            _ => self.watch = IdleWatch::default(),
        }
    }
}

/// Its connections to the outside, as its guest knows them.
async fn outbound_of(effects: &Effects, record: &SandboxRecord) -> Vec<Conversation> {
    let ask = async {
        let guest = Guest::of(effects.shared.clone(), record)?;
        if let Some(mut connection) = guest.ready()
            && let Ok(reply) = connection.call(&Request::Activity).await
        {
            guest.give_back(connection);
            return Ok(reply);
        }
        let mut connection = guest.connect().await?;
        let reply = connection.call(&Request::Activity).await.map_err(|error| guest.failed(error))?;
        guest.give_back(connection);
        Ok::<_, HostError>(reply)
    };
    match tokio::time::timeout(ASK_TIME, ask).await {
        Ok(Ok(Reply::Activity(activity))) => {
            activity.talks.into_iter().take(Activity::MOST_TALKS).map(conversation).collect()
        }
        answer => {
            tracing::debug!(sandbox = %record.id, ?answer, "its guest does not tell of its connections");
            Vec::new()
        }
    }
}

/// Longest name of a peer: an IPv6 address with brackets, zone and port.
const LONGEST_PEER: usize = 80;
/// No connection is older; what a guest says beyond it cannot be calculated with.
const LONGEST_TALK: Duration = Duration::from_secs(10 * 365 * 86_400);

fn conversation(talk: roost_wire::Talk) -> Conversation {
    let span = |milliseconds| Duration::from_millis(milliseconds).min(LONGEST_TALK);
    Conversation {
        peer: talk.peer.chars().take(LONGEST_PEER).collect(),
        said: span(talk.said_ms),
        heard: span(talk.heard_ms),
        connecting: talk.connecting,
        owed: talk.owed,
    }
}

/// What was found to count, in words.
fn hold_text(hold: &Hold) -> String {
    match &hold.reason {
        Some(reason) => format!("hold \"{reason}\" until {:.0}", hold.expires_at),
        None => format!("hold {} until {:.0}", hold.id, hold.expires_at),
    }
}

fn keepers(because: &[Reason], holds: &[Hold], next_alarm: Option<Timestamp>, after: Duration) -> Vec<Keeper> {
    let now = Timestamp::now();
    let ago = |time: Duration| SignedDuration::try_from(time).ok().and_then(|time| now.checked_sub(time).ok());
    let over = seconds(after);
    let load = |signal, amount: String| Keeper { signal, what: format!("{amount} over the last {over}"), since: None };
    let mut keepers = Vec::new();
    for reason in because {
        match reason {
            // Guards are told of as they are now.
            Reason::Served(_) => {}
            Reason::Cpu(permille) => {
                keepers.push(load(Signal::Cpu, format!("{}.{} % of a core", permille / 10, permille % 10)));
            }
            Reason::Disk(bytes) => keepers.push(load(Signal::Disk, format!("{} KiB/s read and written", bytes / 1024))),
            Reason::Network(bytes) => {
                keepers.push(load(Signal::Network, format!("{} KiB/s received and sent", bytes / 1024)));
            }
            Reason::Held => keepers.extend(holds.iter().map(|hold| Keeper {
                signal: Signal::Holds,
                what: hold_text(hold),
                since: Some(hold.created_at),
            })),
            Reason::Alarm => keepers.extend(next_alarm.map(|alarm| Keeper {
                signal: Signal::Timer,
                what: format!("an alarm at {alarm:.0}"),
                since: None,
            })),
            Reason::Outbound(talk) if talk.connecting => keepers.push(Keeper {
                signal: Signal::Outbound,
                what: format!("connecting to {}", talk.peer),
                since: ago(talk.said),
            }),
            Reason::Outbound(talk) if talk.owed => keepers.push(Keeper {
                signal: Signal::Outbound,
                what: format!("waiting for an answer from {}", talk.peer),
                since: ago(talk.said),
            }),
            Reason::Outbound(talk) => keepers.push(Keeper {
                signal: Signal::Outbound,
                what: format!("talking with {}", talk.peer),
                since: None,
            }),
        }
    }
    keepers
}

/// The time until a moment of the wall clock; none if it is over.
fn until(moment: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(moment.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// A time as people say it: whole seconds where it has some.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        1..120 => format!("{} s", time.as_secs()),
        whole => Span::seconds(whole).to_string(),
    }
}
