//! `roost wake`

use clap::Args;
use roost_client::Client;

use crate::args::SandboxArg;
use crate::output;

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
    /// Print the receipt as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn wake(client: &Client, wanted: WakeArgs) -> anyhow::Result<()> {
    let receipt = client.wake_sandbox(&wanted.sandbox.sandbox).await?;
    if wanted.json {
        return output::json(&receipt);
    }
    output::line(format!("{} awake in {:.1} ms", wanted.sandbox.sandbox, receipt.total_ms))?;
    if !receipt.kept.is_empty() {
        output::line(format!("kept: {}", receipt.kept.join(", ")))?;
    }
    for lost in &receipt.not_kept {
        output::line(format!("not kept: {} ({})", lost.what, lost.why))?;
    }
    Ok(())
}
