//! Compares Roost with runc and bubblewrap on this machine, in one run.
//!
//! Absolute figures say more about the machine than about Roost, so what counts is the ratio to a peer that was
//! measured in the same run, turn by turn. Roost is driven through its HTTP API on the unix socket, as a program
//! would; a peer by starting its command-line tool, which is how programs drive it. Each clock stops at the first
//! useful output.
#![forbid(unsafe_code)]

mod figures;
mod peers;
mod report;
mod rounds;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Parser;
use roost_client::Client;

/// Compare Roost with runc and bubblewrap on this machine
#[derive(Debug, Parser)]
struct Arguments {
    /// Rounds; each round measures everything once
    #[arg(short, long, default_value_t = 60)]
    n: usize,
    /// Rounds before those that count
    #[arg(long, default_value_t = 5)]
    warmup: usize,
    /// Template of the sandboxes, whose root the peers run on too
    #[arg(long, default_value = "mini")]
    template: String,
    /// File for all raw values
    #[arg(long)]
    json: Option<PathBuf>,
    /// Fail if a ratio misses its bar
    #[arg(long)]
    check: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    ensure!(arguments.n > 0, "no rounds, no figures");
    let client = Client::from_env()?;
    let figures = rounds::measure(&client, &arguments.template, arguments.warmup, arguments.n).await?;
    let report = report::Report::new(figures, &arguments.template);
    report.print()?;
    if let Some(path) = &arguments.json {
        report.save(path)?;
    }
    ensure!(!arguments.check || report.holds(), "a ratio misses its bar");
    Ok(())
}
