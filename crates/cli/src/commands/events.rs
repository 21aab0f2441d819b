//! `roost events`

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::{Client, EventsFilter};
use roost_model::{Event, Name};

use crate::complete;
use crate::output::{self, Palette, printable};

const RETRY: Duration = Duration::from_millis(500);
const MOST_RETRIES: u32 = 120;
/// Stands in the place of a sandbox's name in events about the host.
const HOST: &str = "(host)";

/// Follow what happens to sandboxes and to the host
///
/// Goes on after a restart of the daemon, from the event it saw last.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost events
  roost events --after 120 --sandbox box
  roost events --no-follow --json | jq .kind")]
pub(crate) struct EventsArgs {
    /// Show only events after this id
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Show only those of one sandbox
    #[arg(long, value_name = "SANDBOX", add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    /// Show those there are and leave
    #[arg(long)]
    no_follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn events(client: &Client, wanted: EventsArgs) -> anyhow::Result<()> {
    let mut filter = EventsFilter { after: wanted.after, sandbox: wanted.sandbox };
    if wanted.no_follow {
        for event in client.list_events(&filter).await? {
            show(&event, wanted.json)?;
        }
        return Ok(());
    }
    let mut stream = client.follow_events(&filter).await?;
    let mut retries = 0;
    loop {
        match stream.next().await {
            Ok(Some(event)) => {
                show(&event, wanted.json)?;
                filter.after = Some(event.id);
                retries = 0;
                continue;
            }
            Ok(None) => {}
            Err(error) if error.is_retryable() => {}
            Err(error) => return Err(error.into()),
        }
        stream = loop {
            tokio::time::sleep(RETRY).await;
            match client.follow_events(&filter).await {
                Ok(stream) => break stream,
                Err(error) if error.is_retryable() && retries < MOST_RETRIES => retries += 1,
                Err(error) => return Err(error.into()),
            }
        };
    }
}

fn show(event: &Event, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json_line(event);
    }
    let palette = Palette::stdout();
    let reason = event.reason.as_deref().map_or_else(String::new, |reason| format!("  {}", printable(reason)));
    let (id, at, kind) = (event.id, event.at, event.kind.as_str());
    let head = palette.dim(&format!("{id:>6}  {at:.0}"));
    Ok(output::line(format!(
        "{head}  {kind:<16}  {}{reason}",
        palette.bold(event.name.as_ref().map_or(HOST, Name::as_str))
    ))?)
}
