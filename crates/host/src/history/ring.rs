//! What one sandbox has used, in steps of three lengths; pure bookkeeping.
//!
//! The finest ring has minutes, the coarsest a week: whoever looks far back needs no minutes. A ring is bounded, and a sandbox's
//! rings together take some 6 KB when they are full.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use roost_model::{Span, Spent, UsageHistory, UsageStep};

/// How long a step of each ring is in seconds, and how many are kept: two hours, a day, a week.
const RINGS: [(u32, usize); 3] = [(60, 120), (15 * 60, 96), (2 * 3600, 84)];

/// What was read of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// CPU time since its processes were started or loaded.
    pub(super) cpu_us: u64,
    /// Bytes in RAM.
    pub(super) memory: u64,
}

/// One sandbox's past.
#[derive(Debug, Default)]
pub(super) struct Past {
    last: Option<Last>,
    rings: [VecDeque<Step>; RINGS.len()],
}

/// How things stood at the last look.
#[derive(Debug, Clone, Copy)]
struct Last {
    at: Timestamp,
    reading: Reading,
    active_ms: u64,
    /// Time asleep without processes.
    gone_ms: u64,
}

/// One step: small numbers, because there are many of them.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// Which step since the epoch.
    number: u32,
    seen_ms: u32,
    awake_ms: u32,
    cpu_ms: u32,
    memory_kib: u32,
}

impl Past {
    /// A past that begins with a sandbox's birth.
    pub(super) fn since(birth: Timestamp) -> Self {
        let reading = Reading { cpu_us: 0, memory: 0 };
        Self { last: Some(Last { at: birth, reading, active_ms: 0, gone_ms: 0 }), ..Self::default() }
    }

    /// Takes in what was seen. Nothing was read of one of which nothing can have changed since the last look.
    pub(super) fn look(&mut self, now: Timestamp, spent: &Spent, reading: Option<Reading>) {
        let gone_ms = spent.disk_ms + spent.files_ms;
        let before = self.last.unwrap_or(Last {
            at: now,
            reading: reading.unwrap_or(Reading { cpu_us: 0, memory: 0 }),
            active_ms: spent.active_ms,
            gone_ms,
        });
        let mut known = before.reading;
        if gone_ms > before.gone_ms {
            // What it has now are other processes to the kernel, counted anew.
            known.cpu_us = 0;
        }
        let reading = reading.unwrap_or(known);
        let used_us = reading.cpu_us.checked_sub(known.cpu_us).unwrap_or(reading.cpu_us);
        self.last = Some(Last { at: now, reading, active_ms: spent.active_ms, gone_ms });
        let seen_ms = now.duration_since(before.at).as_millis().max(0);
        let awake_ms = u128::from(spent.active_ms.saturating_sub(before.active_ms));
        let step = Step {
            number: 0,
            seen_ms: small(seen_ms.unsigned_abs()),
            awake_ms: small(awake_ms.min(seen_ms.unsigned_abs())),
            cpu_ms: small(u128::from(used_us / 1000)),
            memory_kib: small(u128::from(reading.memory / 1024)),
        };
        for ((length, most), ring) in RINGS.iter().zip(&mut self.rings) {
            add(ring, *most, Step { number: number_of(before.at, *length), ..step });
        }
    }

    /// The steps of the last `over`, from the finest ring that goes back so far.
    pub(super) fn history(&self, over: Duration, now: Timestamp) -> UsageHistory {
        let reaches = |(length, most): &(u32, usize)| u64::from(*length) * (*most as u64) >= over.as_secs();
        let place = RINGS.iter().position(reaches).unwrap_or(RINGS.len() - 1);
        let (length, ring) = (RINGS[place].0, &self.rings[place]);
        let steps = u32::try_from(over.as_secs().div_ceil(u64::from(length))).unwrap_or(u32::MAX);
        let from = number_of(now, length).saturating_sub(steps.saturating_sub(1));
        let wanted = ring.iter().filter(|step| step.number >= from);
        UsageHistory { step: Span::seconds(u64::from(length)), steps: wanted.map(|step| told(step, length)).collect() }
    }
}

/// Puts a piece into its step. Time that went backwards stays where it is.
fn add(ring: &mut VecDeque<Step>, most: usize, piece: Step) {
    match ring.back_mut() {
        Some(step) if step.number >= piece.number => {
            step.seen_ms = step.seen_ms.saturating_add(piece.seen_ms);
            step.awake_ms = step.awake_ms.saturating_add(piece.awake_ms);
            step.cpu_ms = step.cpu_ms.saturating_add(piece.cpu_ms);
            step.memory_kib = step.memory_kib.max(piece.memory_kib);
        }
        _ => {
            ring.push_back(piece);
            if ring.len() > most {
                ring.pop_front();
            }
        }
    }
}

fn number_of(at: Timestamp, length: u32) -> u32 {
    u32::try_from(at.as_second() / i64::from(length)).unwrap_or(0)
}

fn told(step: &Step, length: u32) -> UsageStep {
    UsageStep {
        at: Timestamp::from_second(i64::from(step.number) * i64::from(length)).unwrap_or(Timestamp::UNIX_EPOCH),
        seen_ms: step.seen_ms.into(),
        awake_ms: step.awake_ms.into(),
        cpu_ms: step.cpu_ms.into(),
        memory: u64::from(step.memory_kib) * 1024,
    }
}

fn small(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn awake(seconds: u64) -> Spent {
        Spent { active_ms: seconds * 1000, ..Spent::default() }
    }

    fn reading(cpu_ms: u64, memory: u64) -> Option<Reading> {
        Some(Reading { cpu_us: cpu_ms * 1000, memory })
    }

    #[test]
    fn a_step_has_what_was_used_in_it() {
        let mut past = Past::since(at(0));
        past.look(at(30), &awake(30), reading(500, 4096));
        past.look(at(60), &awake(30), reading(600, 2048));
        past.look(at(120), &awake(90), None);
        let history = past.history(HOUR, at(120));
        assert_eq!(history.step, Span::seconds(60));
        assert_eq!(
            history.steps,
            [
                UsageStep { at: at(0), seen_ms: 60_000, awake_ms: 30_000, cpu_ms: 600, memory: 4096 },
                UsageStep { at: at(60), seen_ms: 60_000, awake_ms: 60_000, cpu_ms: 0, memory: 2048 },
            ]
        );
    }

    #[test]
    fn who_was_there_before_the_daemon_is_counted_from_the_first_look() {
        let mut past = Past::default();
        past.look(at(0), &awake(5000), reading(70_000, 1024));
        past.look(at(60), &awake(5060), reading(70_250, 1024));
        let cpu: Vec<u64> = past.history(HOUR, at(60)).steps.iter().map(|step| step.cpu_ms).collect();
        assert_eq!(cpu, [250]);
    }

    #[test]
    fn counters_that_begin_anew_lose_and_invent_nothing() {
        let mut past = Past::since(at(0));
        past.look(at(60), &awake(60), reading(900, 1024));
        // Asleep on disk, awake again, and busier than before.
        let spent = Spent { disk_ms: 30_000, ..awake(90) };
        past.look(at(120), &spent, reading(1000, 1024));
        // The same without a sleep: a restore.
        let spent = Spent { active_ms: 150_000, ..spent };
        past.look(at(180), &spent, reading(40, 1024));
        // Asleep on disk for good: nothing is used, and nothing is in RAM.
        let spent = Spent { disk_ms: 90_000, ..spent };
        past.look(at(240), &spent, reading(0, 0));
        let cpu: Vec<u64> = past.history(HOUR, at(240)).steps.iter().map(|step| step.cpu_ms).collect();
        assert_eq!(cpu, [900, 1000, 40, 0]);
    }

    #[test]
    fn the_further_back_the_coarser_and_nothing_grows_for_ever() {
        let mut past = Past::since(at(0));
        for minute in 1..=14 * 24 * 60 {
            past.look(
                at(minute * 60),
                &awake(minute.unsigned_abs() * 60),
                reading(minute.unsigned_abs() * 600, 1 << 20),
            );
        }
        let now = at(14 * 24 * 3600);
        // The present step has just begun and is not there yet.
        for (over, step, count) in [(2, 60, 119), (24, 900, 95), (7 * 24, 7200, 83), (1000, 7200, 84)] {
            let history = past.history(HOUR * over, now);
            assert_eq!((history.step, history.steps.len()), (Span::seconds(step), count), "{over} h");
            let full = &history.steps[1];
            assert_eq!((full.seen_ms, full.awake_ms, full.cpu_ms), (step * 1000, step * 1000, step * 10), "{over} h");
        }
        assert_eq!(past.history(HOUR, now).steps.len(), 59);
        let size: usize = past.rings.iter().map(|ring| ring.capacity() * size_of::<Step>()).sum();
        assert!(size < 10 << 10, "{size} bytes");
    }

    #[test]
    fn a_clock_that_is_set_back_spoils_nothing() {
        let mut past = Past::since(at(3600));
        past.look(at(3660), &awake(60), reading(100, 1024));
        past.look(at(0), &awake(60), reading(200, 1024));
        past.look(at(60), &awake(120), reading(300, 1024));
        let steps = past.history(HOUR * 2, at(3660)).steps;
        assert_eq!(steps.iter().map(|step| step.cpu_ms).sum::<u64>(), 300);
        assert!(steps.is_sorted_by_key(|step| step.at), "{steps:?}");
    }
}
