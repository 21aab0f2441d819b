//! `roost info`

use clap::Args;
use jiff::Timestamp;
use roost_client::{Client, ClientError};
use roost_model::{Capability, ExecState, ExecView, OnTtl, SandboxView, State, Stats};
use serde_json::json;

use crate::args::SandboxArg;
use crate::commands::ls::show_state;
use crate::output::{self, Columns, Palette, printable};
use crate::units::{show_age, show_size};

/// Show everything about a sandbox, also about one that is gone
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost info box
  roost info box --json | jq .limits")]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    sandbox: SandboxArg,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn info(client: &Client, wanted: InfoArgs) -> anyhow::Result<()> {
    let name = &wanted.sandbox.sandbox;
    let mut sandbox = match client.sandbox(name).await {
        Ok(sandbox) => sandbox,
        Err(ClientError::Api { sandbox: Some(gone), .. }) => *gone,
        Err(error) => return Err(error.into()),
    };
    let (mut stats, mut execs) = (None, Vec::new());
    if sandbox.state == State::Active {
        let id = sandbox.id.as_str();
        let (used, listed, ports) = tokio::join!(client.stats(id), client.list_execs(id), client.ports(id));
        stats = used.ok();
        execs = listed.unwrap_or_default();
        if let Ok(ports) = ports {
            sandbox.ports = ports;
        }
    }
    if wanted.json {
        let mut all = serde_json::to_value(&sandbox)?;
        all["stats"] = json!(stats);
        all["execs"] = json!(execs);
        return output::json(&all);
    }
    print_sandbox(&sandbox, stats.as_ref())?;
    if !execs.is_empty() {
        output::line("")?;
        print_execs(&execs)?;
    }
    Ok(())
}

fn print_sandbox(sandbox: &SandboxView, stats: Option<&Stats>) -> anyhow::Result<()> {
    let palette = Palette::stdout();
    let now = Timestamp::now();
    let field = |name: &str, value: String| {
        let name = format!("{name:<10}");
        output::line(format!("{} {}", palette.dim(&name), printable(&value)))
    };
    output::line(palette.bold(sandbox.name.as_str()))?;
    field("id", sandbox.id.to_string())?;
    let since = show_age(sandbox.state_since, now);
    field("state", format!("{} for {since}", show_state(sandbox)))?;
    if let Some(grave) = &sandbox.tombstone {
        field("ended", format!("{}: {} ({} ago)", grave.cause, grave.message, show_age(grave.at, now)))?;
    }
    if let Some(reason) = &sandbox.reason {
        field("reason", reason.clone())?;
    }
    field("engine", sandbox.engine.to_string())?;
    let kind = if sandbox.ephemeral { ", ephemeral" } else { "" };
    field("template", format!("{}{kind}", sandbox.template))?;
    if let Some(parent) = &sandbox.parent {
        let moment = parent.checkpoint.as_ref().map_or_else(String::new, |checkpoint| format!(" at {checkpoint}"));
        field("forked", format!("from {}{moment}", parent.sandbox))?;
    }
    if sandbox.generation > 1 {
        field("generation", sandbox.generation.to_string())?;
    }
    field("created", format!("{} ({} ago)", sandbox.created_at, show_age(sandbox.created_at, now)))?;
    if let Some(end) = sandbox.expires_at {
        let then =
            if sandbox.on_ttl == OnTtl::Delete { String::new() } else { format!(", then to {}", sandbox.on_ttl) };
        field("expires", format!("{end}{then}"))?;
    }
    if sandbox.stays {
        let too = if sandbox.auto_resume { ", or something needs it" } else { "" };
        field("stays", format!("asleep until `roost wake {}`{too}", sandbox.name))?;
    }
    let limits = &sandbox.limits;
    let of = |used: Option<u64>, most: u64| match used {
        Some(used) => format!("{} of {}", show_size(used), show_size(most)),
        None => format!("at most {}", show_size(most)),
    };
    field("cpus", limits.cpus.to_string())?;
    field("memory", of(stats.map(|all| all.memory), limits.memory))?;
    field("disk", of(stats.map(|all| all.disk_exclusive), limits.disk))?;
    let pids = stats.map_or_else(String::new, |all| format!("{} of ", all.pids));
    field("pids", format!("{pids}{}", limits.pids))?;
    field("network", if sandbox.network.enabled { "on" } else { "off" }.to_owned())?;
    if !sandbox.capabilities.is_empty() {
        field("caps", Capability::show_set(&sandbox.capabilities))?;
    }
    field("sleep", roost_model::words::policy(&sandbox.idle))?;
    for (key, value) in &sandbox.labels {
        field("label", format!("{key}={value}"))?;
    }
    for (key, value) in &sandbox.env {
        field("env", format!("{key}={value}"))?;
    }
    for port in &sandbox.ports {
        let process = port.process.as_ref().map_or_else(String::new, |name| format!(" {name}"));
        let listens = port.address.as_ref().map_or_else(String::new, |address| format!(" on {address}{process}"));
        let url = port.url.as_ref().map_or_else(String::new, |url| format!(", {} at {url}", port.access));
        field("port", format!("{}{listens}{url}", port.port))?;
    }
    Ok(())
}

/// The table of a sandbox's processes.
pub(crate) fn print_execs(execs: &[ExecView]) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let mut columns = Columns::new(&["EXEC", "PID", "USER", "AGE", "STATUS", "COMMAND"], &["PID", "AGE"]);
    for exec in execs {
        let status = match &exec.status {
            ExecState::Running => "running".to_owned(),
            ExecState::Exited { timed_out: true, .. } => "timed out".to_owned(),
            ExecState::Exited { exit_code, .. } => format!("exited {exit_code}"),
        };
        let command: String = exec.argv.join(" ").chars().take(60).collect();
        columns.row([
            exec.id.to_string(),
            exec.pid.to_string(),
            exec.user.clone(),
            show_age(exec.started_at, now),
            status,
            command,
        ]);
    }
    Ok(columns.print()?)
}
