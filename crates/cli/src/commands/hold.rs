//! `roost hold`

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use roost_client::Client;
use roost_model::{Hold, PutHold, Span};

use crate::args::{SandboxArg, ShowArgs};
use crate::complete;
use crate::failure::hinted;
use crate::output::{self, Columns};
use crate::units::show_until;

/// Keep a sandbox awake for a while
///
/// It does not fall asleep by itself before the hold ends or is released. A sandbox that sleeps sleeps on, and one that is
/// put to sleep by hand goes to sleep.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  roost hold box --for 30m --reason 'long build'
  roost hold box --name build --for 2h        again to renew it
  roost hold ls box
  roost hold release box build
  roost hold release box                      all of them"
)]
pub(crate) struct HoldArgs {
    #[command(subcommand)]
    command: Option<HoldCommand>,
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", required = true, add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    /// How long, at most 30d
    #[arg(long = "for", value_name = "TIME", default_value = "30m")]
    length: Span,
    /// What for
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What it is called; the one of that name is renewed
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// What else to do with holds.
#[derive(Debug, Subcommand)]
enum HoldCommand {
    /// List what keeps a sandbox awake
    #[command(after_help = "\
Example:
  roost hold ls box")]
    Ls {
        #[command(flatten)]
        sandbox: SandboxArg,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// End holds before their time
    #[command(
        visible_alias = "rm",
        after_help = "\
Examples:
  roost hold release box build
  roost hold release box"
    )]
    Release {
        #[command(flatten)]
        sandbox: SandboxArg,
        /// Names of holds; all of them without any
        #[arg(value_name = "HOLD")]
        holds: Vec<String>,
    },
}

pub(crate) async fn hold(client: &Client, wanted: HoldArgs) -> anyhow::Result<()> {
    match (wanted.command, wanted.sandbox) {
        (Some(HoldCommand::Ls { sandbox, show }), _) => list(client, &sandbox.sandbox, show).await,
        (Some(HoldCommand::Release { sandbox, holds }), _) => release(client, &sandbox.sandbox, holds).await,
        (None, Some(sandbox)) => {
            let put = PutHold { length: wanted.length, reason: wanted.reason };
            let hold = client.put_hold(&sandbox, wanted.name.as_deref(), &put).await?;
            if wanted.show.json {
                return output::json(&hold);
            }
            let line = format!("{sandbox} is held awake until {:.0} ({})", hold.expires_at, hold.id);
            Ok(output::line(if wanted.show.quiet { hold.id.as_str() } else { &line })?)
        }
        (None, None) => Err(hinted("which sandbox?", "`roost hold SANDBOX`")),
    }
}

async fn list(client: &Client, sandbox: &str, show: ShowArgs) -> anyhow::Result<()> {
    let all = client.list_holds(sandbox).await?;
    let none = format!("no holds; `roost hold {sandbox}` takes one");
    output::list(&all, show, |hold| hold.id.as_str(), &none, |all| table(all, Timestamp::now()))
}

fn table(all: &[Hold], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["HOLD", "ENDS", "FROM", "REASON"], &[]);
    for hold in all {
        columns.row([
            hold.id.to_string(),
            show_until(hold.expires_at, now),
            hold.from.as_str().to_owned(),
            hold.reason.clone().unwrap_or_default(),
        ]);
    }
    columns
}

async fn release(client: &Client, sandbox: &str, holds: Vec<String>) -> anyhow::Result<()> {
    let holds = if holds.is_empty() {
        let all = client.list_holds(sandbox).await?;
        // What an alarm gives ends by itself in a moment, and is nobody's to release.
        let taken = all.into_iter().filter(|hold| hold.from != roost_model::Origin::Alarm);
        taken.map(|hold| hold.id.to_string()).collect()
    } else {
        holds
    };
    for hold in holds {
        client.release_hold(sandbox, &hold).await?;
        output::line(hold)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use roost_model::Origin;

    use super::*;

    #[test]
    fn holds_are_shown_with_what_is_left_of_them() {
        let hold = Hold {
            id: "build".parse().unwrap(),
            reason: Some("long build".to_owned()),
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::from_second(1800).unwrap(),
            from: Origin::Inside,
        };
        let lines = table(&[hold], Timestamp::from_second(60).unwrap()).lines();
        assert_eq!(lines, ["HOLD   ENDS    FROM    REASON", "build  in 29m  inside  long build"]);
    }
}
