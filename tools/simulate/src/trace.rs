//! What happens to sandboxes: modelled lives of agents, servers and jobs, from a seed.
//!
//! Times are milliseconds since the start of a year that begins on a Monday.

use std::collections::VecDeque;

use crate::random::Random;

pub const SECOND: u64 = 1000;
pub const MINUTE: u64 = 60 * SECOND;
pub const HOUR: u64 = 60 * MINUTE;
pub const DAY: u64 = 24 * HOUR;

/// The ways to live, with how many of a hundred sandboxes live so.
pub const MIX: [(Living, u64); 5] =
    [(Living::Agent, 6), (Living::Visited, 14), (Living::Server, 20), (Living::Cron, 10), (Living::Left, 50)];

/// How a sandbox is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Living {
    /// Agent sessions on every working day.
    Agent,
    /// The same, about once a week.
    Visited,
    /// A quiet server that is visited more by day than by night.
    Server,
    /// A job by the clock.
    Cron,
    /// A few sessions in the first days, and hardly anything ever after.
    Left,
}

/// What goes on inside for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// A client waits for a command.
    Exec,
    /// A request through a port is answered.
    Request,
    /// A program inside waits for an answer from outside.
    Think,
    /// A program works and nobody is connected.
    Background,
}

/// Something that happens at a moment and lasts.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    pub at: u64,
    pub doing: Doing,
    pub lasts: u64,
}

/// All that ever happens to one sandbox, in order.
#[derive(Debug)]
pub struct Trace {
    living: Living,
    random: Random,
    /// Whether the agent that uses it runs inside, and asks its model from there.
    agent_inside: bool,
    /// The end of what is known already.
    now: u64,
    acts: VecDeque<Act>,
    sessions: u32,
}

impl Trace {
    pub fn new(living: Living, mut random: Random) -> Self {
        let agent_inside = random.percent(50);
        // Its first use follows its birth.
        let now = random.below(MINUTE);
        let mut trace = Self { living, random, agent_inside, now, acts: VecDeque::new(), sessions: 0 };
        trace.more();
        trace
    }

    /// A way to live for the so-manieth sandbox.
    pub fn living(number: u64) -> Living {
        let place = number * 37 % 100;
        let mut below = 0;
        for (living, share) in MIX {
            below += share;
            if place < below {
                return living;
            }
        }
        Living::Left
    }

    fn act(&mut self, doing: Doing, lasts: u64) {
        self.acts.push_back(Act { at: self.now, doing, lasts });
        self.now += lasts;
    }

    /// Waits until something happens that follows the day's rhythm, so often in a busy hour.
    fn wait_by_day(&mut self, mean: u64) {
        loop {
            self.now += self.random.until_next(mean);
            let (hour, day) = (self.now / HOUR % 24, self.now / DAY % 7);
            let weight = match hour {
                9..18 => 100,
                7 | 8 | 18..22 => 40,
                _ => 8,
            };
            if self.random.percent(if day >= 5 { weight / 4 } else { weight }) {
                return;
            }
        }
    }

    fn more(&mut self) {
        match self.living {
            Living::Agent => {
                self.wait_by_day(3 * HOUR);
                self.session();
            }
            Living::Visited => {
                self.wait_by_day(40 * HOUR);
                self.session();
            }
            Living::Server => {
                self.wait_by_day(2 * HOUR);
                for _ in 0..self.random.between(1, 15) {
                    self.act(Doing::Request, 50);
                    self.now += self.random.until_next(6 * SECOND);
                }
            }
            Living::Cron => {
                self.now = (self.now / HOUR + 1) * HOUR;
                let lasts = self.random.between(5 * SECOND, MINUTE);
                self.act(Doing::Background, lasts);
            }
            Living::Left => {
                self.sessions += 1;
                let mean = if self.sessions < 6 { 6 * HOUR } else { 45 * DAY };
                self.wait_by_day(mean);
                self.session();
            }
        }
    }

    /// Turns of an agent: a command, a thought; now and then a person thinks, or a build goes on by itself.
    fn session(&mut self) {
        for _ in 0..5 + self.random.until_next(25) {
            let lasts = match self.random.below(100) {
                0..70 => self.random.between(100, 2 * SECOND),
                70..95 => self.random.between(2 * SECOND, 20 * SECOND),
                _ => self.random.between(20 * SECOND, 3 * MINUTE),
            };
            self.act(Doing::Exec, lasts);
            if self.random.percent(3) {
                let lasts = self.random.between(30 * SECOND, 5 * MINUTE);
                self.act(Doing::Background, lasts);
            }
            let thinks = 2 * SECOND + self.random.until_next(8 * SECOND);
            if self.agent_inside {
                self.act(Doing::Think, thinks);
            } else {
                self.now += thinks;
            }
            if self.random.once_in(8) {
                self.now += self.random.until_next(2 * MINUTE);
            }
        }
    }
}

impl Iterator for Trace {
    type Item = Act;

    fn next(&mut self) -> Option<Act> {
        while self.acts.is_empty() {
            self.more();
        }
        self.acts.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_come_one_after_the_other_and_again_from_the_same_seed() {
        for number in 0..50 {
            let acts = || Trace::new(Trace::living(number), Random::of(7, number)).take(300).collect::<Vec<_>>();
            let (once, twice) = (acts(), acts());
            assert!(once.windows(2).all(|two| two[0].at + two[0].lasts <= two[1].at));
            assert!(once.iter().zip(&twice).all(|(one, other)| one.at == other.at));
        }
    }

    #[test]
    fn every_way_to_live_has_its_share() {
        for (living, share) in MIX {
            let found = (0..1000).filter(|number| Trace::living(*number) == living).count();
            assert_eq!(found, usize::try_from(share * 10).unwrap(), "{living:?}");
        }
    }
}
