//! `roost suspend`

use clap::Args;
use roost_client::Client;
use roost_model::Level;

use crate::args::SandboxArg;
use crate::receipt::{self, ReceiptArgs, show_ms};

/// Put a sandbox to sleep, or to a deeper sleep
///
/// Every command that needs it awake wakes it, unless it shall stay asleep. At `ram` it is frozen and wakes in milliseconds; at `disk` its memory and
/// processes are in an image and nothing is left in RAM, also over a reboot of the host; at `files` its processes end and
/// its disk stays.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost suspend box
  roost suspend box --to disk
  roost suspend box --to disk --stay
  roost suspend box --to disk --json | jq .not_kept")]
pub(crate) struct SuspendArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// How deep: ram, disk or files
    #[arg(long, value_name = "LEVEL", default_value = "ram")]
    to: Level,
    /// Let it stay asleep until `roost wake`: what needs it awake is refused, and its time to live stands still
    #[arg(long)]
    stay: bool,
    #[command(flatten)]
    show: ReceiptArgs,
}

pub(crate) async fn suspend(client: &Client, wanted: SuspendArgs) -> anyhow::Result<()> {
    let name = &wanted.sandbox.sandbox;
    let receipt = match wanted.stay {
        true => client.suspend_to_stay(name, wanted.to).await?,
        false => client.suspend_sandbox(name, wanted.to).await?,
    };
    let level = receipt.level.unwrap_or(wanted.to);
    receipt::show(&receipt, &format!("{name} suspended to {level} in {}", show_ms(receipt.total_ms)), wanted.show)
}
