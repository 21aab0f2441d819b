//! `roost diff`

use clap::Args;
use roost_client::Client;
use roost_model::{ChangeKind, CheckpointDiff};

use crate::output::{self, Palette, printable};
use crate::units::show_size;

/// Show what changed from one checkpoint to another: files and processes
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost diff ckp_01… ckp_02…
  roost diff ckp_01… ckp_02… --json | jq -r '.files[].path'")]
pub(crate) struct DiffArgs {
    /// Id of the earlier checkpoint, or unique start of it
    from: String,
    /// Id of the later one; it may be of another sandbox, such as a fork
    to: String,
    /// Print everything, as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn diff(client: &Client, wanted: DiffArgs) -> anyhow::Result<()> {
    let from = client.checkpoint(&wanted.from).await?;
    let diff = client.diff_checkpoints(from.sandbox.as_str(), from.id.as_str(), &wanted.to).await?;
    if wanted.json {
        return output::json(&diff);
    }
    let lines = lines(&diff, Palette::stdout());
    if lines.is_empty() {
        eprintln!("nothing changed");
    }
    for text in lines {
        output::line(text)?;
    }
    if diff.truncated {
        eprintln!("more paths differ; the first {} are shown", diff.files.len());
    }
    Ok(())
}

fn lines(diff: &CheckpointDiff, palette: Palette) -> Vec<String> {
    let word = |kind: ChangeKind| {
        let word = format!("{:<8}", kind.as_str());
        match kind {
            ChangeKind::Added => palette.green(&word),
            ChangeKind::Changed => palette.yellow(&word),
            ChangeKind::Removed => palette.red(&word),
        }
    };
    let files = diff.files.iter().map(|file| {
        let size = match file.kind {
            ChangeKind::Removed => String::new(),
            ChangeKind::Added | ChangeKind::Changed => palette.dim(&format!("  {}", show_size(file.size))),
        };
        format!("{} {}{size}", word(file.kind), printable(&file.path))
    });
    let started = diff.processes_started.iter().map(|process| (palette.green("started "), process));
    let ended = diff.processes_ended.iter().map(|process| (palette.red("ended   "), process));
    let processes = started.chain(ended);
    files
        .chain(processes.map(|(word, process)| format!("{word} {} (pid {})", printable(&process.name), process.pid)))
        .collect()
}

#[cfg(test)]
mod tests {
    use roost_model::{CheckpointId, FileChange, SavedProcess};

    use super::*;

    #[test]
    fn files_and_processes_are_listed() {
        let file = |path: &str, kind, size| FileChange { path: path.to_owned(), kind, size };
        let process = |pid, name: &str| SavedProcess { pid, name: name.to_owned() };
        let diff = CheckpointDiff {
            from: CheckpointId::from_parts(1, 1),
            to: CheckpointId::from_parts(2, 2),
            files: vec![
                file("/a\x1b[2J", ChangeKind::Added, 1024),
                file("/b", ChangeKind::Changed, 0),
                file("/c", ChangeKind::Removed, 0),
            ],
            processes_started: vec![process(7, "node")],
            processes_ended: vec![process(6, "make")],
            truncated: false,
        };
        assert_eq!(
            lines(&diff, Palette::of(false)),
            [
                "added    /a\u{fffd}[2J  1 KiB",
                "changed  /b  0 B",
                "removed  /c",
                "started  node (pid 7)",
                "ended    make (pid 6)"
            ]
        );
    }
}
