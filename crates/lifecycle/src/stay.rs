//! The time to live, and sleeps that stay.
//!
//! A sandbox usually sleeps lightly: whatever needs it wakes it. One that was told to stay asleep does not: what needs it is
//! refused until somebody wakes it expressly, or it was allowed to wake for whoever touches it and has its memory to wake
//! with. While it stays asleep its time to live stands still; awake again, it has all of that time before it.

use jiff::{SignedDuration, Timestamp};
use roost_model::{Level, OnTtl, Span};

use crate::{Event, Phase};

/// Who wants a sandbox awake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Waker {
    /// Somebody said so.
    Order,
    /// Something needs it: a request, a connection, an alarm.
    Touch,
}

/// How long a sandbox lives, and whether it wakes for a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Whether it stays asleep until somebody wakes it expressly.
    pub stays: bool,
    /// When its time to live ends; nothing if it has none, or while it stands still.
    pub expires_at: Option<Timestamp>,
}

/// Whether a sandbox in this phase may be woken by this waker.
pub fn may_wake(phase: Phase, stays: bool, auto_resume: bool, waker: Waker) -> bool {
    let has_memory = phase.level() != Some(Level::Files);
    !stays || waker == Waker::Order || (auto_resume && has_memory)
}

/// What is asked of a sandbox whose time to live has ended.
pub const fn at_end_of_ttl(wish: OnTtl) -> Event {
    match wish {
        OnTtl::Delete => Event::TerminateRequested,
        OnTtl::Disk => Event::SuspendRequested(Level::Disk),
        OnTtl::Files => Event::SuspendRequested(Level::Files),
    }
}

impl Clock {
    /// The same for a sandbox that enters a phase.
    #[must_use]
    pub fn entering(self, phase: Phase, ttl: Option<Span>, now: Timestamp) -> Self {
        match phase {
            Phase::Suspended(_) if self.stays => Self { expires_at: None, ..self },
            // A sleep that did not come about has not stopped the clock.
            Phase::Active if self.stays => {
                Self { stays: false, expires_at: self.expires_at.or_else(|| end_of(now, ttl)) }
            }
            _ => self,
        }
    }
}

/// The moment at which a time to live that starts `from` ends; the last moment there is, if it is longer than that.
pub fn end_of(from: Timestamp, ttl: Option<Span>) -> Option<Timestamp> {
    let length = ttl.and_then(Span::get)?;
    let end = SignedDuration::try_from(length).ok().and_then(|length| from.checked_add(length).ok());
    Some(end.unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::step::tests::World;
    use crate::{Seen, recover};

    const TTL: Option<Span> = Some(Span::seconds(300));

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_touch_wakes_what_sleeps_lightly_and_an_order_wakes_everything() {
        for level in [Level::Ram, Level::Disk, Level::Files] {
            let asleep = Phase::Suspended(level);
            assert!(may_wake(asleep, false, false, Waker::Touch));
            assert!(may_wake(asleep, true, false, Waker::Order));
            assert!(!may_wake(asleep, true, false, Waker::Touch));
            // What has lost its memory would be another one for whoever touches it.
            assert_eq!(may_wake(asleep, true, true, Waker::Touch), level != Level::Files);
        }
    }

    #[test]
    fn the_clock_stands_still_while_it_stays_asleep() {
        let running = Clock { stays: true, expires_at: Some(at(100)) };
        let asleep = running.entering(Phase::Suspended(Level::Disk), TTL, at(50));
        assert_eq!(asleep, Clock { stays: true, expires_at: None });
        assert_eq!(asleep.entering(Phase::Resuming(Level::Disk), TTL, at(1000)), asleep);
        let awake = asleep.entering(Phase::Active, TTL, at(1000));
        assert_eq!(awake, Clock { stays: false, expires_at: Some(at(1300)) });
        assert_eq!(running.entering(Phase::Active, TTL, at(60)).expires_at, Some(at(100)), "it never slept");
        assert_eq!(asleep.entering(Phase::Active, None, at(1000)).expires_at, None);
        let light = Clock { stays: false, expires_at: Some(at(100)) };
        assert_eq!(light.entering(Phase::Suspended(Level::Disk), TTL, at(50)), light);
    }

    #[test]
    fn a_time_that_is_too_long_ends_at_the_end_of_time() {
        assert_eq!(end_of(at(0), Some(Span::from(std::time::Duration::MAX))), Some(Timestamp::MAX));
        assert_eq!(end_of(at(0), Some(Span::NEVER)), None);
    }

    /// A life with a clock, as the actor leads it.
    struct Life {
        world: World,
        clock: Clock,
        now: i64,
    }

    impl Life {
        fn ask(&mut self, event: Event, stays: bool, works: &mut impl FnMut() -> bool) {
            let before = self.clock;
            self.clock.stays |= stays;
            self.world.ask(event, works);
            self.clock = match self.world.phase {
                Phase::Suspended(_) | Phase::Active => self.clock.entering(self.world.phase, TTL, at(self.now)),
                _ => before,
            };
        }

        fn wake(&mut self, waker: Waker, auto_resume: bool, works: &mut impl FnMut() -> bool) {
            if may_wake(self.world.phase, self.clock.stays, auto_resume, waker) {
                self.ask(Event::WakeRequested, false, works);
            }
        }
    }

    proptest! {
        #[test]
        fn no_touch_ends_a_sleep_that_stays_and_no_clock_runs_in_it(
            auto_resume in any::<bool>(),
            wish in prop_oneof![Just(OnTtl::Disk), Just(OnTtl::Files)],
            moments in proptest::collection::vec((0u8..7, any::<bool>()), 1..40),
        ) {
            let mut life = Life {
                world: World::new(),
                clock: Clock { stays: false, expires_at: end_of(at(0), TTL) },
                now: 0,
            };
            life.world.settle(&[crate::Effect::MakeDisk, crate::Effect::Start], &mut || true);
            for (choice, luck) in moments {
                life.now += 60;
                let (phase, stayed) = (life.world.phase, life.clock.stays);
                // What did not work once is undone, which works.
                let mut first = true;
                let mut works = || luck || !std::mem::take(&mut first);
                match choice {
                    0 => life.wake(Waker::Touch, auto_resume, &mut works),
                    1 => life.wake(Waker::Order, auto_resume, &mut || true),
                    2 => life.ask(Event::SuspendRequested(Level::Ram), false, &mut works),
                    3 => life.ask(Event::SuspendRequested(Level::Disk), true, &mut works),
                    4 => life.ask(Event::SuspendRequested(Level::Files), true, &mut works),
                    // A daemon that ends and another one that comes, while nothing is going on.
                    5 => {
                        let seen = life.world.seen();
                        let (next, effects) = recover(life.world.phase, seen);
                        life.world.phase = next;
                        life.world.settle(effects, &mut || true);
                        prop_assert!(next == phase || seen == Seen::Absent);
                    }
                    _ => {
                        if life.clock.expires_at.is_some_and(|end| end <= at(life.now)) {
                            life.ask(at_end_of_ttl(wish), true, &mut || true);
                            prop_assert!(life.clock.stays, "{:?}", life.world);
                        }
                    }
                }
                life.world.check();
                if stayed && choice == 0 && !auto_resume {
                    prop_assert_eq!(life.world.phase, phase);
                }
                match life.world.phase {
                    Phase::Active => prop_assert!(!life.clock.stays && life.clock.expires_at.is_some()),
                    Phase::Suspended(_) => prop_assert_eq!(life.clock.stays, life.clock.expires_at.is_none()),
                    other => prop_assert!(false, "{}", other),
                }
            }
        }
    }
}
