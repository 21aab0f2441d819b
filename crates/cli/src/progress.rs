//! Bars and spinners on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TICK: Duration = Duration::from_millis(80);

/// A bar of bytes on standard error; it draws nothing where nobody watches.
pub(crate) fn bytes(total: Option<u64>, what: &str) -> ProgressBar {
    let target = if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(total, target);
    let template = match total {
        Some(_) => "{msg} {bar:30.cyan/dim} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        None => "{spinner:.cyan} {msg} {bytes} {bytes_per_sec}",
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what.to_owned());
    if total.is_none() {
        bar.enable_steady_tick(TICK);
    }
    bar
}

/// Steps of long work: one line that changes on a terminal, a line for each step elsewhere.
#[derive(Debug)]
pub(crate) struct Steps {
    bar: Option<ProgressBar>,
    last: String,
}

/// Steps of work that several threads do.
#[derive(Debug)]
pub(crate) struct SharedSteps(Mutex<Steps>);

impl SharedSteps {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Steps::new()))
    }

    /// Tells what is being done.
    pub(crate) fn tell(&self, message: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).tell(message, None);
    }
}

impl Steps {
    pub(crate) fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1000);
            bar.set_style(style("{spinner:.cyan} {msg} {elapsed}"));
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, last: String::new() }
    }

    /// Tells what is being done and, if known, how much of the whole is done.
    pub(crate) fn tell(&mut self, message: &str, fraction: Option<f64>) {
        match &self.bar {
            Some(bar) => {
                if let Some(fraction) = fraction {
                    bar.set_style(style("{spinner:.cyan} {bar:30.cyan/dim} {percent:>3}% {msg}"));
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
                    bar.set_position((fraction.clamp(0.0, 1.0) * 1000.0) as u64);
                }
                bar.set_message(message.to_owned());
            }
            None if self.last != message => eprintln!("{message}"),
            None => {}
        }
        self.last = message.to_owned();
    }

    /// Takes the line away.
    pub(crate) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.done();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
