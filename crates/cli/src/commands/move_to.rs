//! `roost move`

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::Client;
use roost_model::{Level, SandboxView, State};

use crate::args::SandboxArg;
use crate::complete;
use crate::failure::hinted;
use crate::output;
use crate::receipt::{self, ReceiptArgs, show_ms};

/// Let a sandbox go on with another engine
///
/// Its disk, name, addresses, ports, services, holds, alarms and checkpoints stay. Its processes end and its services start again.
#[derive(Debug, Args)]
#[command(after_help = "\
Going back to a checkpoint that has memory takes the sandbox back to the engine that made it.

Examples:
  roost move box --engine gvisor
  roost move box --engine native --yes    without being asked")]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// The engine: `native`, `gvisor` or `auto`, the strongest that works here
    #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
    engine: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    show: ReceiptArgs,
}

pub(crate) async fn move_to(client: &Client, wanted: MoveArgs) -> anyhow::Result<()> {
    let before = client.sandbox(&wanted.sandbox.sandbox).await?;
    let stays = before.engine.as_str() == wanted.engine;
    if !stays && !wanted.yes && !agreed(&warning(&before, &wanted.engine))? {
        return Ok(());
    }
    let receipt = client.move_sandbox(before.id.as_str(), &wanted.engine).await?;
    let after = client.sandbox(before.id.as_str()).await?;
    let headline = if after.engine == before.engine {
        format!("{} is on {} already, nothing changed", after.name, after.engine)
    } else {
        format!("{} moved from {} to {} in {}", after.name, before.engine, after.engine, show_ms(receipt.total_ms))
    };
    receipt::show(&receipt, &headline, wanted.show)
}

/// What a move costs, before it is done.
fn warning(sandbox: &SandboxView, engine: &str) -> String {
    let has_memory = match sandbox.state {
        State::Suspended => matches!(sandbox.level, Some(Level::Ram | Level::Disk)),
        _ => true,
    };
    let lost = if has_memory {
        "its processes end, what is in their memory is lost, and its services start again"
    } else {
        "it sleeps without processes, so nothing is lost"
    };
    let name = &sandbox.name;
    format!(
        "Moving {name} from {} to {engine}: its files, name, ports, services and leases stay; {lost}.",
        sandbox.engine
    )
}

fn agreed(warning: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(hinted(warning.to_owned(), "`--yes` if that is wanted"));
    }
    eprint!("{warning}\nGo on? [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    let agreed = matches!(answer.trim(), "y" | "Y" | "yes");
    if !agreed {
        output::line("nothing changed")?;
    }
    Ok(agreed)
}
