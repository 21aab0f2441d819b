//! `roost usage`

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::Client;
use roost_model::{Spent, UsageView};

use crate::complete;
use crate::output::{self, Columns};
use crate::units::show_size;

/// Show how long sandboxes were awake and asleep, the disk that is their own, and their memory images
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost usage
  roost usage box
  roost usage --json | jq .spent.active_ms")]
pub(crate) struct UsageArgs {
    /// Name, id or unique start of an id; every living sandbox and their sum if none is given
    #[arg(value_name = "SANDBOX", add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn usage(client: &Client, wanted: UsageArgs) -> anyhow::Result<()> {
    let mut columns = Columns::new(
        &["NAME", "ACTIVE", "RAM", "DISK", "FILES", "AWAKE", "WAKES", "OWN DISK", "IMAGES"],
        &["ACTIVE", "RAM", "DISK", "FILES", "AWAKE", "WAKES", "OWN DISK", "IMAGES"],
    );
    if let Some(name) = &wanted.sandbox {
        let usage = client.usage(name).await?;
        if wanted.json {
            return output::json(&usage);
        }
        columns.row(one(&usage));
        return Ok(columns.print()?);
    }
    let report = client.usage_of_all().await?;
    if wanted.json {
        return output::json(&report);
    }
    for usage in &report.sandboxes {
        columns.row(one(usage));
    }
    let count = report.sandboxes.len();
    columns.row(row(format!("all {count}"), &report.spent, report.disk_exclusive, report.images));
    Ok(columns.print()?)
}

fn one(usage: &UsageView) -> [String; 9] {
    row(usage.name.to_string(), &usage.spent, usage.disk_exclusive, usage.images)
}

fn row(name: String, spent: &Spent, disk: u64, images: u64) -> [String; 9] {
    let all = spent.active_ms + spent.asleep_ms();
    let share = if all == 0 { 0 } else { u128::from(spent.active_ms) * 100 / u128::from(all) };
    [
        name,
        show_hours(spent.active_ms),
        show_hours(spent.ram_ms),
        show_hours(spent.disk_ms),
        show_hours(spent.files_ms),
        format!("{share} %"),
        spent.wakes.to_string(),
        show_size(disk),
        show_size(images),
    ]
}

/// A time in hours and minutes, or in seconds while it is short.
fn show_hours(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_fitting_units() {
        assert_eq!(show_hours(0), "0 s");
        assert_eq!(show_hours(59_999), "59 s");
        assert_eq!(show_hours(61_000), "1 min 1 s");
        assert_eq!(show_hours(90 * 3_600_000 + 60_000), "90 h 1 min");
    }

    #[test]
    fn a_share_of_nothing_is_nothing() {
        assert_eq!(row("a".to_owned(), &Spent::default(), 0, 0)[5], "0 %");
        let spent = Spent { active_ms: 22, ram_ms: 78, ..Spent::default() };
        assert_eq!(row("a".to_owned(), &spent, 0, 0)[5], "22 %");
    }
}
