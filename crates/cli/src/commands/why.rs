//! `roost why`

use clap::Args;
use jiff::Timestamp;
use roost_client::Client;
use roost_model::LedgerEntry;
use roost_model::words::{self, lasted};

use crate::args::SandboxArg;
use crate::output::{self, Columns, Palette, printable};

/// Say what keeps a sandbox awake or why it sleeps, and what comes next
///
/// Does not wake it. Below that comes its ledger: the last sleeps and wakes, what caused each and how long it lasted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost why box
  roost why box --json | jq .keeps_awake
  roost set box --idle-ignore network     let a signal no longer count")]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn why(client: &Client, wanted: WhyArgs) -> anyhow::Result<()> {
    let why = client.why(&wanted.sandbox.sandbox).await?;
    if wanted.json {
        return output::json(&why);
    }
    let now = Timestamp::now();
    output::line(Palette::stdout().bold(why.name.as_str()))?;
    for sentence in words::why(&why, now) {
        output::line(format!("  {}", printable(&sentence)))?;
    }
    if why.ledger.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let mut columns = Columns::new(&["WHEN", "WHAT", "FOR", "TOOK", "CAUSE"], &["FOR", "TOOK"]);
    for line in &why.ledger {
        columns.row(row(line));
    }
    Ok(columns.print()?)
}

fn row(line: &LedgerEntry) -> [String; 5] {
    let what = match line.level {
        Some(level) => format!("{} ({level})", line.kind.as_str()),
        None => line.kind.as_str().to_owned(),
    };
    [
        format!("{:.0}", line.at),
        what,
        lasted(line.lasted_ms),
        line.took_ms.map_or_else(|| "-".to_owned(), crate::receipt::show_ms),
        line.cause.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use roost_model::{LedgerKind, Level};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_line_of_the_ledger_has_its_cause() {
        let line = LedgerEntry {
            at: at(0),
            kind: LedgerKind::Slept,
            level: Some(Level::Disk),
            cause: Some("after 10m asleep in ram".to_owned()),
            took_ms: Some(88.0),
            lasted_ms: 7_200_000,
        };
        assert_eq!(row(&line), ["1970-01-01T00:00:00Z", "slept (disk)", "2 h", "88.0 ms", "after 10m asleep in ram"]);
    }
}
