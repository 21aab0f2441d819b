//! Signs of progress: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where nobody watches.
const PAUSE: Duration = Duration::from_secs(5);

/// Shows how far a batch has come.
#[derive(Debug)]
pub(crate) struct Signs {
    bar: Option<ProgressBar>,
    total: u64,
    last: Instant,
}

impl Signs {
    /// Starts at `done` of `total`.
    pub(crate) fn new(total: u64, done: u64) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30.cyan/dim} {pos}/{len} {msg} {per_sec} {eta}");
            let bar = ProgressBar::new(total).with_position(done);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.reset_eta();
            bar
        });
        if bar.is_none() {
            eprintln!("{done} of {total} tasks done");
        }
        Self { bar, total, last: Instant::now() }
    }

    /// Tells that `done` have results, `bad` of which are no successes.
    pub(crate) fn tell(&mut self, done: u64, bad: u64) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                if bad > 0 {
                    bar.set_message(format!("{bad} failed"));
                }
            }
            None if self.last.elapsed() >= PAUSE && done < self.total => {
                self.last = Instant::now();
                eprintln!("{done} of {} tasks done, {bad} failed", self.total);
            }
            None => {}
        }
    }

    /// Says something beside the bar.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}

impl Drop for Signs {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
