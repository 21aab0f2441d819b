//! `roost alarm`

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use roost_client::Client;
use roost_model::{Alarm, PutAlarm};

use crate::args::{SandboxArg, ShowArgs};
use crate::complete;
use crate::failure::hinted;
use crate::output::{self, Columns};
use crate::units::show_until;

/// Wake a sandbox at a time, once or again and again
///
/// Times of day and of cron count in UTC unless --tz says otherwise. An alarm that comes due while no daemon runs goes off
/// once when one does. Crontabs inside need no alarm: a sandbox in which a cron daemon runs is woken for its next job.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  roost alarm box --at 'in 10m'
  roost alarm box --at 2027-01-31T07:30:00Z --reason 'quarterly report'
  roost alarm box --every '*/5 * * * *' --name poll
  roost alarm box --every '30 7 * * mon-fri' --tz Europe/Berlin
  roost alarm ls box
  roost alarm rm box poll"
)]
pub(crate) struct AlarmArgs {
    #[command(subcommand)]
    command: Option<AlarmCommand>,
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", required = true, add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    /// Once: `in 10m`, `07:30`, or RFC 3339
    #[arg(long, value_name = "WHEN", required_unless_present = "every", conflicts_with = "every")]
    at: Option<String>,
    /// Again and again, in the syntax of cron: five fields, or @hourly, @daily, @weekly, @monthly, @yearly
    #[arg(long, value_name = "CRON")]
    every: Option<String>,
    /// Let times count in ZONE, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// What for
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What it is called; the one of that name is replaced
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// What else to do with alarms.
#[derive(Debug, Subcommand)]
enum AlarmCommand {
    /// List what wakes a sandbox
    #[command(after_help = "\
Example:
  roost alarm ls box")]
    Ls {
        #[command(flatten)]
        sandbox: SandboxArg,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Remove alarms
    #[command(after_help = "\
Example:
  roost alarm rm box poll")]
    Rm {
        #[command(flatten)]
        sandbox: SandboxArg,
        /// Names of alarms
        #[arg(required = true, value_name = "ALARM")]
        alarms: Vec<String>,
    },
}

pub(crate) async fn alarm(client: &Client, wanted: AlarmArgs) -> anyhow::Result<()> {
    match (wanted.command, wanted.sandbox) {
        (Some(AlarmCommand::Ls { sandbox, show }), _) => list(client, &sandbox.sandbox, show).await,
        (Some(AlarmCommand::Rm { sandbox, alarms }), _) => {
            for alarm in alarms {
                client.delete_alarm(&sandbox.sandbox, &alarm).await?;
                output::line(alarm)?;
            }
            Ok(())
        }
        (None, Some(sandbox)) => {
            let put = PutAlarm { at: wanted.at, every: wanted.every, tz: wanted.tz, reason: wanted.reason };
            let alarm = client.put_alarm(&sandbox, wanted.name.as_deref(), &put).await?;
            if wanted.show.json {
                return output::json(&alarm);
            }
            let line = format!("{sandbox} is woken at {:.0} ({})", alarm.next_at, alarm.id);
            Ok(output::line(if wanted.show.quiet { alarm.id.as_str() } else { &line })?)
        }
        (None, None) => Err(hinted("which sandbox?", "`roost alarm SANDBOX --at WHEN`")),
    }
}

async fn list(client: &Client, sandbox: &str, show: ShowArgs) -> anyhow::Result<()> {
    let all = client.list_alarms(sandbox).await?;
    let none = format!("no alarms; `roost alarm {sandbox} --at 'in 10m'` sets one");
    output::list(&all, show, |alarm| alarm.id.as_str(), &none, |all| table(all, Timestamp::now()))
}

fn table(all: &[Alarm], now: Timestamp) -> Columns {
    let mut columns = Columns::new(&["ALARM", "NEXT", "AT", "EVERY", "FROM", "REASON"], &[]);
    for alarm in all {
        let every = alarm.every.as_ref().map(|every| match alarm.tz.as_str() {
            "UTC" => every.clone(),
            zone => format!("{every} {zone}"),
        });
        let failure = alarm.failure.as_ref().map(|why| format!("could not wake it: {why}"));
        columns.row([
            alarm.id.to_string(),
            show_until(alarm.next_at, now),
            format!("{:.0}", alarm.next_at),
            every.unwrap_or_else(|| "-".to_owned()),
            alarm.from.as_str().to_owned(),
            failure.or_else(|| alarm.reason.clone()).unwrap_or_default(),
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use roost_model::Origin;

    use super::*;

    #[test]
    fn alarms_are_shown_with_their_next_time() {
        let alarm = Alarm {
            id: "poll".parse().unwrap(),
            next_at: Timestamp::from_second(300).unwrap(),
            every: Some("*/5 * * * *".to_owned()),
            tz: "Europe/Berlin".to_owned(),
            reason: Some("mail".to_owned()),
            created_at: Timestamp::UNIX_EPOCH,
            last_at: None,
            failure: None,
            from: Origin::Outside,
        };
        let lines = table(std::slice::from_ref(&alarm), Timestamp::from_second(60).unwrap()).lines();
        assert_eq!(lines[0], "ALARM  NEXT   AT                    EVERY                      FROM     REASON");
        assert_eq!(lines[1], "poll   in 4m  1970-01-01T00:05:00Z  */5 * * * * Europe/Berlin  outside  mail");
        let failed = Alarm { failure: Some("no room".to_owned()), ..alarm };
        assert!(table(&[failed], Timestamp::UNIX_EPOCH).lines()[1].ends_with("could not wake it: no room"));
    }
}
