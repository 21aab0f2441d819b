//! `roost checkpoint`

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use roost_client::{Client, ClientError};
use roost_model::{CheckpointId, CreateCheckpoint};

use crate::args::ShowArgs;
use crate::commands::diff::{self, DiffArgs};
use crate::complete;
use crate::failure::{hinted, report};
use crate::output::{self, Palette};
use crate::receipt::{self, show_ms};

/// Keep the moment a sandbox is in: its files, memory and processes
///
/// The sandbox goes on; the receipt says how long it stood still for it. A checkpoint outlives its sandbox, and may be
/// removed at any time without harm to what started from it.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  roost checkpoint box --comment 'before the upgrade'
  roost checkpoint box --files-only
  roost restore box $(roost checkpoint box -q)
  roost checkpoint diff ckp_01… ckp_02…
  roost checkpoint rm ckp_01…"
)]
pub(crate) struct CheckpointArgs {
    #[command(subcommand)]
    pub(crate) command: Option<CheckpointCommand>,
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", required = true, add = ArgValueCompleter::new(complete::sandboxes))]
    pub(crate) sandbox: Option<String>,
    /// Say what it is
    #[arg(short, long, value_name = "TEXT")]
    comment: Option<String>,
    /// Leave memory and processes out
    #[arg(long)]
    pub(crate) files_only: bool,
    #[command(flatten)]
    show: ShowArgs,
}

/// What else to do with checkpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    Rm(RmArgs),
    Diff(DiffArgs),
}

/// Remove checkpoints; nothing that started from them is harmed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost checkpoint rm ckp_01… ckp_02…
  roost checkpoint rm $(roost checkpoints box -q)")]
pub(crate) struct RmArgs {
    /// Ids of checkpoints, or unique starts of them
    #[arg(required = true, value_name = "CHECKPOINT")]
    pub(crate) checkpoints: Vec<String>,
}

pub(crate) async fn checkpoint(client: &Client, wanted: CheckpointArgs) -> anyhow::Result<()> {
    match (wanted.command, wanted.sandbox) {
        (Some(CheckpointCommand::Rm(which)), _) => rm(client, which).await,
        (Some(CheckpointCommand::Diff(which)), _) => diff::diff(client, which).await,
        (None, Some(sandbox)) => {
            let request = CreateCheckpoint { comment: wanted.comment, files_only: wanted.files_only };
            make(client, &sandbox, &request, wanted.show).await
        }
        (None, None) => Err(hinted("which sandbox?", "`roost checkpoint SANDBOX`")),
    }
}

async fn make(client: &Client, sandbox: &str, wanted: &CreateCheckpoint, show: ShowArgs) -> anyhow::Result<()> {
    let made = client.create_checkpoint(sandbox, wanted).await?;
    if show.json {
        return output::json(&made);
    }
    if show.quiet {
        return Ok(output::line(made.checkpoint.id.as_str())?);
    }
    let palette = Palette::stdout();
    let details = format!("of {} in {}", made.checkpoint.sandbox_name, show_ms(made.receipt.total_ms));
    output::line(format!("{}  {}", palette.bold(made.checkpoint.id.as_str()), palette.dim(&details)))?;
    receipt::print(&made.receipt)
}

pub(crate) async fn rm(client: &Client, wanted: RmArgs) -> anyhow::Result<()> {
    let mut failed = None;
    for text in wanted.checkpoints {
        match remove(client, &text).await {
            Ok(id) => output::line(id.as_str())?,
            // One that fails must not keep the others.
            Err(error) => {
                if let Some(earlier) = failed.replace(anyhow::Error::from(error)) {
                    report(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn remove(client: &Client, text: &str) -> Result<CheckpointId, ClientError> {
    let found = client.checkpoint(text).await?;
    client.delete_checkpoint(found.sandbox.as_str(), found.id.as_str()).await?;
    Ok(found.id)
}

/// The id that was typed, or the one that starts with what was typed.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<CheckpointId, ClientError> {
    match text.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(client.checkpoint(text).await?.id),
    }
}
