//! `roost set`

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use roost_client::Client;
use roost_model::{LimitsRequest, PatchSandbox, Span};

use crate::args::{EndArgs, IdleArgs, SandboxArg, ShowArgs};
use crate::output;
use crate::units::{parse_pair, parse_size};

/// Change a sandbox: labels, limits, time to live, when it sleeps
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost set box --idle-after never
  roost set box --idle-after 1m --idle-to disk --idle-ignore cpu,network
  roost set box --memory 4g --cpus 4
  roost set box -l team=a --unlabel draft --ttl never
  roost set box --ttl 1h --on-ttl disk    sleep after an hour and stay so until `roost wake box`")]
pub(crate) struct SetArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Put a label on it
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
    label: Vec<(String, String)>,
    /// Take a label off
    #[arg(long, value_name = "KEY")]
    unlabel: Vec<String>,
    /// Give it TIME to live from now; `never` lets it stay
    #[arg(long, value_name = "TIME")]
    ttl: Option<Span>,
    #[command(flatten)]
    end: EndArgs,
    /// Give it N CPUs, for example 0.5
    #[arg(long, value_name = "N", help_heading = "Limits")]
    cpus: Option<f64>,
    /// Give it this much memory, for example 512m
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    memory: Option<u64>,
    /// Give it this much disk, for example 10g
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    disk: Option<u64>,
    /// Give it at most N processes and threads
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pids: Option<u64>,
    /// Let its memory images take SIZE together: the one it sleeps in and those of its checkpoints
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Limits")]
    image_budget: Option<u64>,
    #[command(flatten)]
    idle: IdleArgs,
    #[command(flatten)]
    show: ShowArgs,
}

impl SetArgs {
    fn patch(&self) -> PatchSandbox {
        let removed = self.unlabel.iter().map(|key| (key.clone(), None));
        let labels: BTreeMap<String, Option<String>> =
            removed.chain(self.label.iter().map(|(key, value)| (key.clone(), Some(value.clone())))).collect();
        let limits = LimitsRequest {
            cpus: self.cpus,
            memory: self.memory,
            disk: self.disk,
            pids: self.pids,
            images: self.image_budget,
        };
        PatchSandbox {
            labels: (!labels.is_empty()).then_some(labels),
            limits: (limits != LimitsRequest::default()).then_some(limits),
            idle: self.idle.request(),
            ttl: self.ttl,
            on_ttl: self.end.on_ttl,
            auto_resume: self.end.auto_resume,
            network: None,
        }
    }
}

pub(crate) async fn set(client: &Client, wanted: SetArgs) -> anyhow::Result<()> {
    let patch = wanted.patch();
    if patch == PatchSandbox::default() {
        bail!("nothing to change: `roost set --help` shows what can be");
    }
    let sandbox = client.patch_sandbox(&wanted.sandbox.sandbox, &patch).await?;
    if wanted.show.json {
        return output::json(&sandbox);
    }
    output::warnings(&sandbox);
    if wanted.show.quiet {
        return Ok(output::line(sandbox.id.as_str())?);
    }
    Ok(output::line(format!("{} changed", sandbox.name))?)
}
