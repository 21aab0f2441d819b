//! `roost fork`

use std::collections::BTreeSet;

use clap::Args;
use roost_client::{Client, ClientError};
use roost_model::{Fork, ForkResult};

use crate::args::{SandboxArg, ShowArgs};
use crate::commands::checkpoint::resolve;
use crate::failure::report;
use crate::output::{self, Columns, printable};
use crate::receipt::{show_lost, show_ms};

/// Make new sandboxes that start from a moment of another, with its memory and processes
///
/// Parent and forks run on and go their own ways. They keep pids and the address inside, and get names, ids and a
/// generation of their own; `/etc/roost/on-fork.d` inside says what to do about the rest.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost fork box
  roost fork box -n 10
  roost fork box --names left,right
  roost fork box --from ckp_01… -q")]
pub(crate) struct ForkArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Make N of them; as many as there are names otherwise, or one
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u32>,
    /// Name them; friendly names are made up for the rest
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) names: Vec<String>,
    /// Start from CHECKPOINT and not from what runs now
    #[arg(long, value_name = "CHECKPOINT")]
    from: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) async fn fork(client: &Client, wanted: ForkArgs) -> anyhow::Result<()> {
    let from = match &wanted.from {
        Some(text) => Some(resolve(client, text).await?),
        None => None,
    };
    let names = (!wanted.names.is_empty()).then(|| wanted.names.clone());
    let forks = client.fork_sandbox(&wanted.sandbox.sandbox, &Fork { count: wanted.count, names, from }).await?;
    let failures = failures(&forks, &wanted.names);
    if wanted.show.json {
        output::json(&forks)?;
    } else if wanted.show.quiet {
        for sandbox in forks.iter().filter_map(|fork| fork.sandbox.as_ref()) {
            output::line(sandbox.id.as_str())?;
        }
    } else {
        print(&forks, &wanted.sandbox.sandbox)?;
    }
    let mut failed = None;
    for failure in failures {
        if let Some(earlier) = failed.replace(failure) {
            report(&earlier);
        }
    }
    failed.map_or(Ok(()), Err)
}

fn print(forks: &[ForkResult], parent: &str) -> anyhow::Result<()> {
    let mut columns = Columns::new(&["NAME", "ID", "GENERATION", "IN"], &["GENERATION", "IN"]);
    for sandbox in forks.iter().filter_map(|fork| Some((fork.sandbox.as_ref()?, fork.receipt.as_ref()))) {
        let (sandbox, receipt) = sandbox;
        columns.row([
            sandbox.name.to_string(),
            sandbox.id.to_string(),
            sandbox.generation.to_string(),
            receipt.map_or_else(|| "-".to_owned(), |receipt| show_ms(receipt.total_ms)),
        ]);
    }
    columns.print()?;
    let receipts = || forks.iter().filter_map(|fork| fork.receipt.as_ref());
    if let Some(paused) = receipts().filter_map(|receipt| receipt.paused_ms).max_by(f64::total_cmp) {
        output::line(format!("{parent} stood still for {}", show_ms(paused)))?;
    }
    let lost: BTreeSet<String> = receipts().flat_map(|receipt| &receipt.not_kept).map(show_lost).collect();
    for lost in lost {
        output::line(format!("not kept: {}", printable(&lost)))?;
    }
    Ok(())
}

/// Why some were not made, each with its name or number.
fn failures(forks: &[ForkResult], names: &[String]) -> Vec<anyhow::Error> {
    let one = |(place, fork): (usize, &ForkResult)| {
        let detail = fork.error.clone()?;
        let which = names.get(place).map_or_else(|| format!("fork {}", place + 1), |name| format!("fork `{name}`"));
        let error = ClientError::Api { status: 201, detail, sandbox: None };
        Some(anyhow::Error::from(error).context(format!("failed to make {which}")))
    };
    forks.iter().enumerate().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use roost_model::{ErrorCode, ErrorDetail};

    use super::*;

    #[test]
    fn failures_say_which() {
        let made = ForkResult { sandbox: None, receipt: None, error: None };
        let detail = ErrorDetail { code: ErrorCode::HostFull, message: "full".to_owned(), hint: None };
        let failed = ForkResult { error: Some(detail), ..made.clone() };
        let all = failures(&[failed.clone(), made, failed], &["left".to_owned()]);
        let texts: Vec<String> = all.iter().map(|error| format!("{error:#}")).collect();
        assert_eq!(texts, ["failed to make fork `left`: full", "failed to make fork 3: full"]);
    }
}
