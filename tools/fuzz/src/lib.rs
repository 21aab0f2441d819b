//! Attacks a reader of bytes with what its inputs become when they are damaged on purpose.
//!
//! A test hands over a corpus of good inputs and what is done with one; [`attack`] makes thousands of bad ones of them. Without
//! further ado it is the same ones each time, in a second or so. `ROOST_FUZZ_SECONDS=60` goes on for that long with a seed of its
//! own, which is printed, and which `ROOST_FUZZ_SEED` repeats. An input at which the reader panics is printed in hex.
#![forbid(unsafe_code)]

mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant, SystemTime};

pub use mutate::{Mutator, Random};

/// How many inputs an ordinary run of the tests tries, and how many of a reader that takes its time.
const ORDINARY: u64 = 2_000;
const ORDINARY_SLOW: u64 = 200;
const ORDINARY_SEED: u64 = 8;
/// Most bytes of an input that are printed.
const SHOWN: usize = 2048;

/// How long, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    seed: u64,
    time: Option<Duration>,
}

impl Plan {
    /// After two variables of the environment.
    fn new(seconds: Option<&str>, seed: Option<&str>, now: u64) -> Self {
        let time = seconds.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        let own = if time.is_some() { now } else { ORDINARY_SEED };
        Self { seed: seed.and_then(|text| text.parse().ok()).unwrap_or(own), time }
    }

    fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok();
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.subsec_nanos().into());
        Self::new(variable("ROOST_FUZZ_SECONDS").as_deref(), variable("ROOST_FUZZ_SEED").as_deref(), now)
    }

    fn is_over(self, tried: u64, ordinary: u64, began: Instant) -> bool {
        match self.time {
            Some(time) => began.elapsed() >= time,
            None => tried >= ordinary,
        }
    }
}

/// Hands damaged inputs to `reader`, which fails by panicking. The good ones are tried too.
///
/// # Panics
///
/// As soon as the reader does, after printing what it was given.
pub fn attack<I: AsRef<[u8]>>(corpus: &[I], reader: impl FnMut(&[u8])) {
    attack_with(corpus, ORDINARY, reader);
}

/// The same for a reader that takes its time, for example because it writes files: an ordinary run tries fewer inputs.
///
/// # Panics
///
/// As [`attack`].
pub fn attack_slow<I: AsRef<[u8]>>(corpus: &[I], reader: impl FnMut(&[u8])) {
    attack_with(corpus, ORDINARY_SLOW, reader);
}

fn attack_with<I: AsRef<[u8]>>(corpus: &[I], ordinary: u64, mut reader: impl FnMut(&[u8])) {
    let plan = Plan::from_env();
    let began = Instant::now();
    let mut mutator = Mutator::new(corpus.iter().map(|input| input.as_ref().to_vec()).collect(), plan.seed);
    let mut tried = 0;
    for input in corpus {
        attempt(&mut reader, input.as_ref(), plan.seed, tried);
    }
    while !plan.is_over(tried, ordinary, began) {
        attempt(&mut reader, &mutator.next_input(), plan.seed, tried);
        tried += 1;
    }
    eprintln!("seed {}: {tried} inputs in {:.1} s", plan.seed, began.elapsed().as_secs_f64());
}

fn attempt(reader: &mut impl FnMut(&[u8]), input: &[u8], seed: u64, number: u64) {
    // A reader that panicked is not used again.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| reader(input))) {
        eprintln!("input {number} of seed {seed}, {} bytes: {}", input.len(), hex(input));
        resume_unwind(panic);
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}"));
    digits.chain((bytes.len() > SHOWN).then(|| "…".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_same_each_time_unless_time_is_given() {
        let plan = |seconds, seed| Plan::new(seconds, seed, 77);
        assert_eq!(plan(None, None), Plan { seed: ORDINARY_SEED, time: None });
        assert_eq!(plan(None, Some("5")), Plan { seed: 5, time: None });
        assert_eq!(plan(Some("3"), None), Plan { seed: 77, time: Some(Duration::from_secs(3)) });
        assert_eq!(plan(Some("3"), Some("5")).seed, 5);
    }

    #[test]
    fn a_reader_that_trusts_a_length_is_found_out() {
        let found = catch_unwind(|| {
            attack(&[b"\x05hello"], |bytes| {
                if let Some((length, rest)) = bytes.split_first() {
                    let _whole = &rest[..usize::from(*length)];
                }
            });
        });
        assert!(found.is_err());
    }
}
