//! `roost bench`

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use roost_client::Client;
use roost_measure::{Plan, measure};

use crate::failure::{Interrupted, interrupted};
use crate::output;
use crate::progress::SharedSteps;

/// Measure this host: create, exec, sleep and wake, checkpoints, forks, files, many at once, and how it grows
#[derive(Debug, Args)]
#[command(after_help = "\
Makes sandboxes of its own, up to a thousand of them, and removes them; takes about ten minutes, half a minute with --quick.
runc, bubblewrap, runsc and podman are measured in the same rounds where they are installed. Let nothing else run meanwhile.

Examples:
  roost bench --quick
  roost bench --report figures       a page with plots, and every value as JSON
  roost bench --json >figures.json")]
pub(crate) struct BenchArgs {
    /// Less of everything
    #[arg(long)]
    quick: bool,
    /// Template of the sandboxes that are measured
    #[arg(short, long, value_name = "TEMPLATE", default_value = "mini")]
    template: String,
    /// Write a page with plots and the raw values into a folder
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    /// Print everything, each value, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn bench(client: &Client, wanted: BenchArgs) -> anyhow::Result<()> {
    let plan = if wanted.quick { Plan::quick(&wanted.template) } else { Plan::full(&wanted.template) };
    let steps = SharedSteps::new();
    let report = measure(client, &plan, &|what| steps.tell(what), interrupted()).await?.ok_or(Interrupted)?;
    drop(steps);
    if let Some(folder) = &wanted.report {
        report.save(folder)?;
    }
    if wanted.json {
        output::json(&report)?;
    } else {
        std::io::stdout().lock().write_all(report.text().as_bytes())?;
    }
    Ok(())
}
