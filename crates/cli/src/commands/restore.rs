//! `roost restore`

use clap::Args;
use roost_client::Client;
use roost_model::Restore;

use crate::args::SandboxArg;
use crate::commands::checkpoint::resolve;
use crate::output;
use crate::receipt::{self, ReceiptArgs, show_ms};

/// Take a sandbox back to a checkpoint
///
/// What that replaces is kept as an automatic checkpoint first, so that it can be undone the same way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost restore box ckp_01…
  roost checkpoints box           what there is to go back to")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Id of the checkpoint, or unique start of it
    checkpoint: String,
    #[command(flatten)]
    show: ReceiptArgs,
}

pub(crate) async fn restore(client: &Client, wanted: RestoreArgs) -> anyhow::Result<()> {
    let name = &wanted.sandbox.sandbox;
    let checkpoint = resolve(client, &wanted.checkpoint).await?;
    let headline = format!("{name} back at {checkpoint}");
    let receipt = client.restore_sandbox(name, &Restore { checkpoint }).await?;
    receipt::show(&receipt, &format!("{headline} in {}", show_ms(receipt.total_ms)), wanted.show)?;
    if !wanted.show.json && !wanted.show.quiet {
        output::line(format!("What it replaced is kept; `roost checkpoints {name}` shows it."))?;
    }
    Ok(())
}
