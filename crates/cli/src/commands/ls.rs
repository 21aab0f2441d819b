//! `roost ls`

use clap::Args;
use futures_util::StreamExt;
use jiff::Timestamp;
use roost_client::{Client, SandboxFilter};
use roost_model::{SandboxView, State, Stats};

use crate::args::ShowArgs;
use crate::output::{self, Columns};
use crate::units::{parse_pair, show_age, show_size};

/// How many sandboxes are asked for their figures at the same time.
const AT_ONCE: usize = 16;

/// List sandboxes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost ls
  roost ls -l team=a --state active
  roost ls --all                  terminated ones too
  roost rm $(roost ls -q -l team=a)")]
pub(crate) struct LsArgs {
    /// Show terminated ones too
    #[arg(short, long)]
    all: bool,
    /// Show only those with this label
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    label: Vec<(String, String)>,
    /// Show only those in STATE
    #[arg(long, value_name = "STATE", value_parser = parse_state)]
    state: Option<State>,
    /// Show only those with TEXT in their name
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

fn parse_state(text: &str) -> Result<State, String> {
    let all = [State::Creating, State::Active, State::Suspending, State::Suspended, State::Resuming, State::Terminated];
    let known = || all.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ");
    all.into_iter()
        .find(|state| state.as_str() == text)
        .ok_or_else(|| format!("`{text}` is no state; there are {}", known()))
}

/// State and level in one word: `active`, `suspended(ram)`.
pub(crate) fn show_state(sandbox: &SandboxView) -> String {
    match sandbox.level {
        Some(level) => format!("{}({level})", sandbox.state),
        None => sandbox.state.to_string(),
    }
}

/// For how long nothing has kept it awake: `-` while something does.
fn show_idle(sandbox: &SandboxView, now: Timestamp) -> String {
    sandbox.quiet_since.map_or_else(|| "-".to_owned(), |since| show_age(since, now))
}

pub(crate) async fn ls(client: &Client, wanted: LsArgs) -> anyhow::Result<()> {
    let filter = SandboxFilter {
        state: wanted.state,
        labels: wanted.label,
        name: wanted.name,
        terminated: wanted.all,
        ..SandboxFilter::default()
    };
    let sandboxes = client.all_sandboxes(&filter).await?;
    if wanted.show.json {
        return output::json(&sandboxes);
    }
    if wanted.show.quiet {
        for sandbox in &sandboxes {
            output::line(sandbox.id.as_str())?;
        }
        return Ok(());
    }
    if sandboxes.is_empty() {
        eprintln!("no sandboxes; `roost create` makes one");
        return Ok(());
    }
    let stats = stats_of(client, &sandboxes).await;
    let now = Timestamp::now();
    let mut columns = Columns::new(
        &["NAME", "STATE", "ENGINE", "TEMPLATE", "AGE", "IDLE", "MEMORY", "DISK", "PORTS"],
        &["AGE", "IDLE", "MEMORY", "DISK"],
    );
    for (sandbox, stats) in sandboxes.iter().zip(stats) {
        let figure =
            |pick: fn(&Stats) -> u64| stats.as_ref().map_or_else(|| "-".to_owned(), |all| show_size(pick(all)));
        let ports: Vec<String> = sandbox.ports.iter().map(|port| port.port.to_string()).collect();
        columns.row([
            sandbox.name.to_string(),
            show_state(sandbox),
            sandbox.engine.to_string(),
            sandbox.template.clone(),
            show_age(sandbox.created_at, now),
            show_idle(sandbox, now),
            figure(|all| all.memory),
            figure(|all| all.disk_exclusive),
            ports.join(","),
        ]);
    }
    Ok(columns.print()?)
}

/// What each sandbox uses, where it can be told.
pub(crate) async fn stats_of(client: &Client, sandboxes: &[SandboxView]) -> Vec<Option<Stats>> {
    let one = async |sandbox: &SandboxView| match sandbox.state {
        State::Terminated | State::Creating => None,
        _ => client.stats(sandbox.id.as_str()).await.ok(),
    };
    futures_util::stream::iter(sandboxes).map(one).buffered(AT_ONCE).collect().await
}
