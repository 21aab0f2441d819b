//! Compares Roost with runc and bubblewrap on this machine, in one run.
//!
//! Absolute figures say more about the machine than about Roost, so what counts is the ratio to a peer that was
//! measured in the same run, turn by turn. Roost is driven through its HTTP API on the unix socket, as a program
//! would; a peer by starting its command-line tool, which is how programs drive it. Each clock stops at the first
//! useful output.
#![forbid(unsafe_code)]

mod ahead;
mod asleep;
mod gvisor;
mod memory;
mod paused;
mod proxied;
mod quiet;
mod report;
mod rounds;
mod sdk;
mod ssh;
mod workload;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use roost_client::Client;
use roost_measure::{figures, peers};
use serde::Serialize;

use crate::memory::Rounds;
use crate::report::Report;
use crate::sdk::Sdk;

/// Compare Roost with runc and bubblewrap on this machine
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure
    #[arg(default_values = ["start", "memory", "ahead", "asleep", "gvisor", "e2b", "ssh"])]
    suites: Vec<Suite>,
    /// Rounds that count
    #[arg(short, long, default_value_t = 60)]
    n: usize,
    /// Rounds before those that count
    #[arg(long, default_value_t = 5)]
    warmup: usize,
    /// Template of the sandboxes that are started, whose root the peers run on too
    #[arg(long, default_value = "mini")]
    template: String,
    /// Template of the sandboxes whose memory is kept; it has Python
    #[arg(long, default_value = "base")]
    memory_template: String,
    /// How many runs the batch has
    #[arg(long, default_value_t = 2000)]
    runs: usize,
    /// Where the daemon listens for E2B's package
    #[arg(long, default_value = "http://127.0.0.1:7077")]
    url: String,
    /// Folder of E2B's packages, which scripts/e2b-packages fills
    #[arg(long, default_value = "target/e2b")]
    packages: PathBuf,
    /// How many sleep at once
    #[arg(long, default_value_t = 1000)]
    sleepers: usize,
    /// File for all raw values
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail if a figure misses its bar
    #[arg(long)]
    check: bool,
}

/// Figures that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Suite {
    /// Create, exec, delete
    Start,
    /// Suspend, wake, checkpoint, fork
    Memory,
    /// Pools and batches
    Ahead,
    /// E2B's Python package beside /v1
    E2b,
    /// `ssh web@host true` beside a plain sshd
    Ssh,
    /// A request that wakes, and a thousand that sleep
    Asleep,
    /// Sandboxes on gVisor beside `runsc run`
    Gvisor,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.n > 0, "no rounds, no figures");
    ensure!(peers::installed("runc"), "runc is not installed: scripts/setup runc");
    let rounds = Rounds { warmup: arguments.warmup, count: arguments.n };
    let client = Client::from_env()?;
    let mut reports = Vec::new();
    for suite in arguments.suites {
        let used = quiet::wait().await;
        let (template, figures) = match suite {
            Suite::Start => (&arguments.template, rounds::measure(&client, &arguments.template, rounds).await?),
            Suite::Ahead => {
                let template = &arguments.template;
                (template, ahead::measure(&client, template, rounds, arguments.runs).await?)
            }
            Suite::E2b => {
                let template = &arguments.memory_template;
                let sdk = Sdk { packages: &arguments.packages, url: &arguments.url };
                (template, sdk::measure(&client, template, rounds, &sdk).await?)
            }
            Suite::Asleep => {
                let template = &arguments.template;
                (template, asleep::measure(&client, template, rounds, arguments.sleepers).await?)
            }
            Suite::Gvisor => {
                let template = &arguments.template;
                (template, gvisor::measure(&client, template, &arguments.memory_template, rounds).await?)
            }
            Suite::Ssh => (&arguments.template, ssh::measure(&client, &arguments.template, rounds).await?),
            Suite::Memory => {
                let template = &arguments.memory_template;
                (template, memory::measure(&client, template, rounds).await?)
            }
        };
        let report = Report::new(suite, figures, template, used);
        report.print()?;
        reports.push(report);
    }
    if let Some(path) = &arguments.json {
        report::save(&reports, path)?;
    }
    ensure!(!arguments.check || reports.iter().all(Report::holds), "a figure misses its bar");
    Ok(())
}
