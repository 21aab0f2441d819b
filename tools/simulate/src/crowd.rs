//! Many lives, on every processor.

use std::thread;

use roost_model::IdlePolicy;

use crate::life::{Fate, Spent, live};

/// Lives so many lives under one policy; the same seed gives the same sums, however many processors there are.
pub fn crowd(lives: u64, seed: u64, policy: &IdlePolicy, fate: Fate, until: u64) -> Spent {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        let share = |first: u64| {
            let mut sum = Spent::default();
            for number in (first..lives).step_by(usize::try_from(threads).unwrap_or(1)) {
                sum.add(live(number, seed, policy, fate, until));
            }
            sum
        };
        let running: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        let mut sum = Spent::default();
        for lived in running {
            // A broken promise in any of them is this one's too.
            sum.add(lived.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        sum
    })
}
