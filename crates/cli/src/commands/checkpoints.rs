//! `roost checkpoints`

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use roost_client::Client;
use roost_model::CheckpointView;

use crate::args::ShowArgs;
use crate::commands::checkpoint::{self, RmArgs};
use crate::complete;
use crate::failure::hinted;
use crate::output::{self, Columns};
use crate::tree::tree;
use crate::units::{show_age, show_size};

/// Show the checkpoints of a sandbox, also of one that is gone, as a tree
///
/// OWN is what only that checkpoint uses of the disk and removing it gives back; SHARED is what others use too.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  roost checkpoints box
  roost checkpoints box --json | jq '.[] | select(.automatic)'
  roost checkpoints rm ckp_01…"
)]
pub(crate) struct CheckpointsArgs {
    #[command(subcommand)]
    command: Option<CheckpointsCommand>,
    /// Name, id or unique start of an id
    #[arg(value_name = "SANDBOX", required = true, add = ArgValueCompleter::new(complete::sandboxes))]
    sandbox: Option<String>,
    #[command(flatten)]
    show: ShowArgs,
}

/// What else to do with checkpoints.
#[derive(Debug, Subcommand)]
enum CheckpointsCommand {
    Rm(RmArgs),
}

pub(crate) async fn checkpoints(client: &Client, wanted: CheckpointsArgs) -> anyhow::Result<()> {
    match (wanted.command, wanted.sandbox) {
        (Some(CheckpointsCommand::Rm(which)), _) => checkpoint::rm(client, which).await,
        (None, Some(sandbox)) => list(client, &sandbox, wanted.show).await,
        (None, None) => Err(hinted("which sandbox?", "`roost checkpoints SANDBOX`")),
    }
}

async fn list(client: &Client, sandbox: &str, show: ShowArgs) -> anyhow::Result<()> {
    let all = client.list_checkpoints(sandbox).await?;
    let none = format!("no checkpoints; `roost checkpoint {sandbox}` makes one");
    output::list(&all, show, |checkpoint| checkpoint.id.as_str(), &none, |all| table(all, Timestamp::now()))
}

fn table(all: &[CheckpointView], now: Timestamp) -> Columns {
    let mut columns =
        Columns::new(&["CHECKPOINT", "AGE", "MEMORY", "OWN", "SHARED", "COMMENT"], &["AGE", "MEMORY", "OWN", "SHARED"]);
    let ids: Vec<_> = all.iter().map(|checkpoint| (&checkpoint.id, checkpoint.parent.as_ref())).collect();
    for (place, before) in tree(&ids) {
        let checkpoint = &all[place];
        let bytes = &checkpoint.bytes;
        let comment = checkpoint.comment.as_deref().unwrap_or_default();
        columns.row([
            format!("{before}{}", checkpoint.id),
            show_age(checkpoint.created_at, now),
            if checkpoint.memory { show_size(bytes.memory) } else { "-".to_owned() },
            show_size(bytes.disk_exclusive),
            show_size(bytes.disk_referenced.saturating_sub(bytes.disk_exclusive)),
            match (checkpoint.automatic, comment) {
                (false, comment) => comment.to_owned(),
                (true, "") => "(automatic)".to_owned(),
                (true, comment) => format!("(automatic) {comment}"),
            },
        ]);
    }
    columns
}

#[cfg(test)]
mod tests {
    use roost_model::{CheckpointBytes, CheckpointId, SandboxId};

    use super::*;

    fn checkpoint(number: u64, parent: Option<u64>, automatic: bool) -> CheckpointView {
        CheckpointView {
            id: CheckpointId::from_parts(number, 0),
            sandbox: SandboxId::from_parts(1, 1),
            sandbox_name: "box".parse().unwrap(),
            created_at: Timestamp::UNIX_EPOCH,
            comment: (!automatic).then(|| format!("number {number}")),
            automatic,
            from: roost_model::Origin::Outside,
            memory: !automatic,
            parent: parent.map(|number| CheckpointId::from_parts(number, 0)),
            bytes: CheckpointBytes { memory: 65 << 20, disk_exclusive: 4096, disk_referenced: 12 << 10 },
            generation: 1,
            template: "base".to_owned(),
            processes: Vec::new(),
            not_kept: Vec::new(),
        }
    }

    #[test]
    fn a_tree_with_sizes_is_shown() {
        let all = [checkpoint(1, None, false), checkpoint(2, Some(1), true), checkpoint(3, Some(1), false)];
        let lines = table(&all, Timestamp::from_second(60).unwrap()).lines();
        let id = |number| CheckpointId::from_parts(number, 0);
        assert_eq!(lines[1], format!("{}      1m  65 MiB  4 KiB   8 KiB  number 1", id(1)));
        assert_eq!(lines[2], format!("├─ {}   1m       -  4 KiB   8 KiB  (automatic)", id(2)));
        assert_eq!(lines[3], format!("└─ {}   1m  65 MiB  4 KiB   8 KiB  number 3", id(3)));
    }
}
