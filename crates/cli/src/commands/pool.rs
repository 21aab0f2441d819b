//! `roost pool`

use clap::Subcommand;
use clap_complete::engine::ArgValueCompleter;
use roost_client::Client;
use roost_model::{PoolView, SetPool};

use crate::args::ShowArgs;
use crate::complete;
use crate::output::{self, Columns};

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List pools; -q prints their templates
    #[command(after_help = "\
Example:
  roost pool ls")]
    Ls {
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Say how many sandboxes of a template may wait
    ///
    /// Between the two bounds as many wait as were asked for in the last minute.
    #[command(after_help = "\
Examples:
  roost pool set base --min 2 --max 10
  roost pool set base --max 4 --engine gvisor
  roost pool set base --max 0             no pool")]
    Set {
        /// The template
        #[arg(value_name = "TEMPLATE", add = ArgValueCompleter::new(complete::templates))]
        template: String,
        /// Let at least N wait
        #[arg(long, value_name = "N", default_value_t = 0)]
        min: u32,
        /// Let at most N wait
        #[arg(long, value_name = "N")]
        max: u32,
        /// Isolate them with ENGINE; that of the template otherwise, or the daemon's default
        #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
        engine: Option<String>,
        /// Print everything, as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) async fn pool(client: &Client, wanted: PoolCommand) -> anyhow::Result<()> {
    match wanted {
        PoolCommand::Ls { show } => {
            let pools = client.list_pools().await?;
            if show.json {
                return output::json(&pools);
            }
            if show.quiet {
                for pool in &pools {
                    output::line(&pool.template)?;
                }
                return Ok(());
            }
            print(&pools)
        }
        PoolCommand::Set { template, min, max, engine, json } => {
            let pool = client.set_pool(&template, &SetPool { min, max, engine }).await?;
            if json { output::json(&pool) } else { print(&[pool]) }
        }
    }
}

fn print(pools: &[PoolView]) -> anyhow::Result<()> {
    let titles = ["TEMPLATE", "ENGINE", "MIN", "MAX", "TARGET", "READY", "COMING", "TAKEN", "MISSED"];
    let mut columns = Columns::new(&titles, &titles[2..]);
    for pool in pools {
        let numbers = [pool.min, pool.max, pool.target, pool.ready, pool.coming].map(u64::from);
        let numbers = numbers.into_iter().chain([pool.taken, pool.missed]).map(|number| number.to_string());
        columns.row([pool.template.clone(), pool.engine.to_string()].into_iter().chain(numbers));
    }
    Ok(columns.print()?)
}
