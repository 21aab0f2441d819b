//! `roost create`

use std::time::Instant;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use roost_client::Client;
use roost_model::{Name, ServiceSpec};

use crate::args::{NewSandboxArgs, ShowArgs};
use crate::commands::checkpoint::resolve;
use crate::commands::service::{self, parse_service};
use crate::complete;
use crate::output::{self, Palette};
use crate::units::{parse_env, show_time};

/// Make a sandbox that stays until you remove it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost create box
  roost create web -t base --memory 1g --cpus 0.5 -e TOKEN -l team=a
  roost create scratch --ttl 30m --no-network
  roost create lab --cap net-admin,net-raw      root inside may use tcpdump, nftables and `ip link`
  roost create busy --idle-after never          it does not sleep by itself
  roost create again --from ckp_01…     with the files, memory and processes of a checkpoint
  roost create site --service 'web=python3 -m http.server 8000'
  id=$(roost create -q)")]
pub(crate) struct CreateArgs {
    /// Name it; a friendly name is made up otherwise
    name: Option<String>,
    /// Start from TEMPLATE
    #[arg(short, long, value_name = "TEMPLATE", add = ArgValueCompleter::new(complete::templates))]
    template: Option<String>,
    /// Start from CHECKPOINT, with what ran in it
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "template")]
    from: Option<String>,
    #[command(flatten)]
    pub(crate) new: NewSandboxArgs,
    /// Set a variable for everything that runs in it; KEY alone takes the value it has here
    #[arg(short, long = "env", value_name = "KEY=VALUE", value_parser = parse_env)]
    env: Vec<(String, String)>,
    /// Keep a command up in it; `roost service put` has more to say about one
    #[arg(long = "service", value_name = "NAME=COMMAND", value_parser = parse_service)]
    services: Vec<(Name, ServiceSpec)>,
    /// Let it go away when its work is done
    #[arg(long)]
    ephemeral: bool,
    #[command(flatten)]
    show: ShowArgs,
}

pub(crate) async fn create(client: &Client, wanted: CreateArgs) -> anyhow::Result<()> {
    let mut request = wanted.new.request(wanted.name, wanted.template);
    if let Some(checkpoint) = &wanted.from {
        request.from_checkpoint = Some(resolve(client, checkpoint).await?);
    }
    request.ephemeral = wanted.ephemeral;
    request.env = wanted.env.into_iter().collect();
    request.services = service::collect(wanted.services)?;
    let began = Instant::now();
    let sandbox = client.create_sandbox(&request).await?;
    let took = began.elapsed();
    if wanted.show.json {
        return output::json(&sandbox);
    }
    output::warnings(&sandbox);
    if wanted.show.quiet {
        return Ok(output::line(sandbox.id.as_str())?);
    }
    let palette = Palette::stdout();
    let source = request.from_checkpoint.as_ref().map_or(sandbox.template.as_str(), |checkpoint| checkpoint.as_str());
    let details = format!("{} from {source} in {}", sandbox.id, show_time(took));
    Ok(output::line(format!("{}  {}", palette.bold(sandbox.name.as_str()), palette.dim(&details)))?)
}
