//! `roost stats`

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::{Client, SandboxFilter};
use roost_model::{SandboxView, Stats};

use crate::commands::ls::stats_of;
use crate::complete;
use crate::output::{self, Columns};
use crate::units::show_size;

const INTERVAL: Duration = Duration::from_secs(1);
/// Cursor home and erase to the end: redraws without a flicker.
const REDRAW: &str = "\x1b[H\x1b[J";

/// Show what sandboxes use now
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost stats
  roost stats box --watch
  roost stats --json | jq '.[].memory'")]
pub(crate) struct StatsArgs {
    /// Names or ids; every living sandbox if none is given
    #[arg(value_name = "SANDBOX", add = ArgValueCompleter::new(complete::sandboxes))]
    sandboxes: Vec<String>,
    /// Refresh every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn stats(client: &Client, wanted: StatsArgs) -> anyhow::Result<()> {
    let mut before: HashMap<String, (u64, Instant)> = HashMap::new();
    loop {
        let sandboxes = chosen(client, &wanted.sandboxes).await?;
        let stats = stats_of(client, &sandboxes).await;
        let now = Instant::now();
        if wanted.json {
            let named = sandboxes.iter().zip(&stats).map(|(sandbox, stats)| {
                let mut value = serde_json::to_value(stats).unwrap_or_default();
                value["name"] = sandbox.name.as_str().into();
                value["id"] = sandbox.id.as_str().into();
                value
            });
            output::json(&named.collect::<Vec<_>>())?;
        } else {
            let mut columns = Columns::new(
                &["NAME", "CPU", "CPU TIME", "MEMORY", "LIMIT", "PIDS", "DISK", "OOM"],
                &["CPU", "CPU TIME", "MEMORY", "LIMIT", "PIDS", "DISK", "OOM"],
            );
            for (sandbox, stats) in sandboxes.iter().zip(&stats) {
                let Some(stats) = stats else { continue };
                let last = before.insert(sandbox.id.to_string(), (stats.cpu_us, now));
                columns.row(row(sandbox, stats, last, now));
            }
            if wanted.watch && std::io::stdout().is_terminal() {
                output::line(REDRAW)?;
            }
            columns.print()?;
        }
        if !wanted.watch {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn chosen(client: &Client, names: &[String]) -> anyhow::Result<Vec<SandboxView>> {
    if names.is_empty() {
        return Ok(client.all_sandboxes(&SandboxFilter::default()).await?);
    }
    let mut sandboxes = Vec::new();
    for name in names {
        sandboxes.push(client.sandbox(name).await?);
    }
    Ok(sandboxes)
}

fn row(sandbox: &SandboxView, stats: &Stats, last: Option<(u64, Instant)>, now: Instant) -> [String; 8] {
    let share = last.map_or_else(
        || "-".to_owned(),
        |(cpu_us, at)| {
            let passed = now.duration_since(at).as_micros().max(1);
            format!("{}%", u128::from(stats.cpu_us.saturating_sub(cpu_us)) * 100 / passed)
        },
    );
    [
        sandbox.name.to_string(),
        share,
        format!("{:.2}s", Duration::from_micros(stats.cpu_us).as_secs_f64()),
        show_size(stats.memory),
        show_size(stats.memory_limit),
        stats.pids.to_string(),
        show_size(stats.disk_exclusive),
        stats.oom_kills.to_string(),
    ]
}
