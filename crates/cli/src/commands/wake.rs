//! `roost wake`

use clap::Args;
use roost_client::Client;

use crate::args::SandboxArg;
use crate::receipt::{self, ReceiptArgs, show_ms};

/// Wake a sandbox
///
/// Every command that needs a sandbox awake wakes it by itself; this is for waking it ahead of time.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  roost wake box")]
pub(crate) struct WakeArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    #[command(flatten)]
    show: ReceiptArgs,
}

pub(crate) async fn wake(client: &Client, wanted: WakeArgs) -> anyhow::Result<()> {
    let name = &wanted.sandbox.sandbox;
    let receipt = client.wake_sandbox(name).await?;
    receipt::show(&receipt, &format!("{name} awake in {}", show_ms(receipt.total_ms)), wanted.show)
}
