//! `roost rm`

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use futures_util::StreamExt;
use roost_client::{Client, ClientError, SandboxFilter};
use roost_model::ErrorCode;

use crate::complete;
use crate::failure::{hinted, report};
use crate::output;

/// How many are removed at the same time.
const AT_ONCE: usize = 8;

/// Remove sandboxes with everything in them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost rm box
  roost rm web-1 web-2
  roost rm -f maybe               no error if it is not there
  roost rm --all -f               every sandbox")]
pub(crate) struct RmArgs {
    /// Names, ids or unique starts of ids
    #[arg(value_name = "SANDBOX", required_unless_present = "all", conflicts_with = "all",
        add = ArgValueCompleter::new(complete::sandboxes))]
    sandboxes: Vec<String>,
    /// Remove every sandbox; needs -f
    #[arg(long)]
    all: bool,
    /// Do not mind those that are not there
    #[arg(short, long)]
    force: bool,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) async fn rm(client: &Client, wanted: RmArgs) -> anyhow::Result<()> {
    let mut names = wanted.sandboxes;
    if wanted.all {
        let all = client.all_sandboxes(&SandboxFilter::default()).await?;
        if !wanted.force && !all.is_empty() {
            let hint = "`roost rm --all -f` if you are sure";
            return Err(hinted(format!("this would remove {} sandboxes and all their files", all.len()), hint));
        }
        names = all.into_iter().map(|sandbox| sandbox.id.to_string()).collect();
    }
    let remove = async |name: String| (client.delete_sandbox(&name).await, name);
    let mut removals = futures_util::stream::iter(names).map(remove).buffered(AT_ONCE);
    let mut failed = None;
    while let Some((result, name)) = removals.next().await {
        match result {
            Ok(()) if wanted.quiet => {}
            Ok(()) => output::line(name)?,
            Err(error) if wanted.force && is_gone(&error) => {}
            // One that fails must not keep the others.
            Err(error) => {
                if let Some(earlier) = failed.replace(anyhow::Error::from(error)) {
                    report(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn is_gone(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::SandboxNotFound | ErrorCode::SandboxTerminated))
}
