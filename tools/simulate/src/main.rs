//! Lives years of sandboxes in seconds: to see whether the core holds, and what its settings cost.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use roost_model::IdlePolicy;
use roost_simulate::crowd::crowd;
use roost_simulate::life::Fate;
use roost_simulate::report::{SAMPLE, report};
use roost_simulate::trace::DAY;
use roost_simulate::world::Odds;

/// Live years of sandboxes in seconds
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lives with a daemon that dies everywhere, a host that is rebooted and engines that fail
    Year {
        /// How many sandboxes
        #[arg(long, default_value_t = 10_000)]
        lives: u64,
        /// For how long
        #[arg(long, default_value_t = 365)]
        days: u64,
        /// Which lives
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// What settings of sleeping and of pools cost, as tables and as a plot
    Policies {
        /// Write the plot here
        #[arg(long)]
        plot: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().what {
        What::Year { lives, days, seed } => {
            let began = Instant::now();
            let fate = Fate { odds: Odds { crash: 150, reboot: 20, failure: 200 }, order: 200 };
            let spent = crowd(lives, seed, &IdlePolicy::default(), fate, days * DAY);
            writeln!(
                stdout(),
                "seed {seed}: {lives} lives of {days} days in {:.1} s: {} touches, {} wakes, {} looks, {} persists, the \
                 daemon died {} times at {} places; no promise was broken",
                began.elapsed().as_secs_f64(),
                spent.touches(),
                spent.touches() - spent.found[0],
                spent.looks,
                spent.persists,
                spent.deaths(),
                spent.crashes.len(),
            )?;
        }
        What::Policies { plot } => {
            let report = report(SAMPLE);
            write!(stdout(), "{}", report.tables)?;
            if let Some(path) = plot {
                fs::write(&path, report.plot).with_context(|| format!("failed to write `{}`", path.display()))?;
            }
        }
    }
    Ok(())
}
