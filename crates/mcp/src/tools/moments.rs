//! Checkpoints, restores, forks, and what differs.

use roost_host::to_the_end;
use roost_model::{CheckpointView, CreateCheckpoint, Fork, Receipt, Restore};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::sandboxes::{Youngest, brief};
use super::{Effect, Entry, tool, youngest};
use crate::answer::{Answer, Failure};
use crate::call::Call;

const CHANGES: usize = 100;
const MOST_CHANGES: usize = 2000;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "checkpoint",
            "Take a checkpoint",
            Effect::Changes,
            "Keep this moment of a sandbox, its files and, unless files_only, its memory and running processes. The sandbox goes on. \
             Cheap: take one before anything risky.",
            checkpoint,
        ),
        tool(
            "checkpoint_list",
            "List checkpoints",
            Effect::Reads,
            "List the checkpoints of a sandbox, oldest first.",
            list,
        ),
        tool(
            "checkpoint_remove",
            "Remove a checkpoint",
            Effect::Destroys,
            "Remove a checkpoint for good. Sandboxes that started from it go on.",
            remove,
        ),
        tool(
            "restore",
            "Restore a checkpoint",
            Effect::Destroys,
            "Take a sandbox back to one of its checkpoints, with the memory and processes it kept. What is there now is kept as an \
             automatic checkpoint first, which the result names.",
            restore,
        ),
        tool(
            "fork",
            "Fork a sandbox",
            Effect::Changes,
            "Make copies of a sandbox that go on from its present moment, or from a checkpoint, memory and processes included. The \
             original goes on. Good for trying several ways side by side.",
            fork,
        ),
        tool(
            "diff",
            "Compare two checkpoints",
            Effect::Reads,
            "Show which files were added, changed and removed between two checkpoints, also of different sandboxes such as forks, and \
             which processes began and ended.",
            diff,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Take {
    /// The sandbox's name or id
    sandbox: String,
    /// What it is, for finding it again
    comment: Option<String>,
    /// Keep files only, not memory and processes
    #[serde(default)]
    files_only: bool,
}

async fn checkpoint(call: Call, wanted: Take) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let request = CreateCheckpoint { comment: wanted.comment, files_only: wanted.files_only };
    let (view, receipt) = to_the_end(async move { handle.checkpoint(request).await }).await?;
    let text = format!("checkpoint {} of {}: {}", view.id, view.sandbox_name, told(&receipt));
    Ok(Answer::new(text, json!({"checkpoint": view.id, "receipt": receipt})))
}

async fn list(call: Call, wanted: Youngest) -> Result<Answer, Failure> {
    let all = call.visitor.checkpoints_of(&wanted.sandbox).await?;
    let (shown, mut text) = youngest(&all, wanted.limit);
    let line = |view: &CheckpointView| {
        let memory = if view.memory { "with memory" } else { "files only" };
        let automatic = if view.automatic { ", automatic" } else { "" };
        let comment = view.comment.as_ref().map_or_else(String::new, |comment| format!(": {comment}"));
        format!("{} {:.0} ({memory}{automatic}){comment}\n", view.id, view.created_at)
    };
    text.extend(shown.iter().map(line));
    let fact = |view: &CheckpointView| {
        json!({"id": view.id, "created_at": view.created_at, "comment": view.comment, "memory": view.memory,
               "automatic": view.automatic, "parent": view.parent})
    };
    let facts: Vec<Value> = shown.iter().map(fact).collect();
    let text = if all.is_empty() { "no checkpoints".to_owned() } else { text };
    Ok(Answer::new(text, json!({"checkpoints": facts, "truncated": shown.len() < all.len()})))
}

/// A checkpoint, by its id.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Moment {
    /// The checkpoint's id, `ckp_…`, or its beginning
    checkpoint: String,
}

async fn remove(call: Call, wanted: Moment) -> Result<Answer, Failure> {
    let id = call.visitor.checkpoint(&wanted.checkpoint)?.id;
    let (visitor, doomed) = (call.visitor.clone(), id.clone());
    to_the_end(async move { visitor.delete_checkpoint(doomed.as_str()).await }).await?;
    Ok(Answer::new(format!("removed {id}"), json!({"removed": id})))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Back {
    /// The sandbox's name or id
    sandbox: String,
    /// The checkpoint's id, `ckp_…`, or its beginning
    checkpoint: String,
}

async fn restore(call: Call, wanted: Back) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let checkpoint = call.visitor.checkpoint(&wanted.checkpoint)?.id;
    let receipt = to_the_end(async move { handle.restore(Restore { checkpoint }).await }).await?;
    let before = call.visitor.checkpoints_of(&wanted.sandbox).await?.into_iter().rev().find(|view| view.automatic);
    let before = before.map(|view| view.id);
    let kept = before.as_ref().map_or_else(String::new, |id| format!("; what was there before is kept as {id}"));
    let text = format!("{} is back: {}{kept}", wanted.sandbox, told(&receipt));
    Ok(Answer::new(text, json!({"receipt": receipt, "replaced": before})))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Copies {
    /// The sandbox's name or id
    sandbox: String,
    /// How many, 1 to 20; as many as there are names, or one, if absent
    count: Option<u32>,
    /// Their names; made up for the rest
    names: Option<Vec<String>>,
    /// A checkpoint to start from; the present moment if absent
    from: Option<String>,
}

async fn fork(call: Call, wanted: Copies) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let from = match &wanted.from {
        Some(text) => Some(call.visitor.checkpoint(text)?.id),
        None => None,
    };
    let (visitor, request) = (call.visitor.clone(), Fork { count: wanted.count, names: wanted.names, from });
    let forks = to_the_end(async move { visitor.fork(&handle, request).await }).await?;
    let mut text = String::new();
    let mut facts = Vec::new();
    for fork in &forks {
        match (&fork.sandbox, &fork.error) {
            (Some(view), _) => {
                text.extend([format!("made {}\n", view.name)]);
                facts.push(json!({"sandbox": brief(view)}));
            }
            (None, error) => {
                let message = error.as_ref().map_or("it came to nothing", |error| error.message.as_str());
                text.extend([format!("one failed: {message}\n")]);
                facts.push(json!({"error": error}));
            }
        }
    }
    let made = forks.iter().filter(|fork| fork.sandbox.is_some()).count();
    match forks.iter().find_map(|fork| fork.error.clone()) {
        // None at all is a failure, and not a result with excuses.
        Some(error) if made == 0 => Err(error.into()),
        _ => Ok(Answer::new(text, json!({"forks": facts}))),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Between {
    /// The checkpoint taken as the earlier, `ckp_…`
    from: String,
    /// The checkpoint taken as the later, `ckp_…`
    to: String,
    /// Only paths that start with this
    path: Option<String>,
    /// How many files at most; 100 if absent
    limit: Option<usize>,
}

async fn diff(call: Call, wanted: Between) -> Result<Answer, Failure> {
    let diff = call.visitor.diff_checkpoints(&wanted.from, &wanted.to).await?;
    let limit = wanted.limit.unwrap_or(CHANGES).clamp(1, MOST_CHANGES);
    let below = |path: &str| wanted.path.as_ref().is_none_or(|start| path.starts_with(start.as_str()));
    let all: Vec<_> = diff.files.iter().filter(|change| below(&change.path)).collect();
    let shown = &all[..all.len().min(limit)];
    let mut text = String::new();
    for change in shown {
        let word = change.kind.as_str();
        text.extend([format!("{word} {} ({} bytes)\n", change.path, change.size)]);
    }
    if all.is_empty() {
        text.push_str("no file differs\n");
    }
    let truncated = diff.truncated || all.len() > shown.len();
    if truncated {
        text.extend([format!("{} of {} files are shown: give a path or a limit\n", shown.len(), all.len())]);
    }
    for (word, processes) in [("began", &diff.processes_started), ("ended", &diff.processes_ended)] {
        if !processes.is_empty() {
            text.extend([format!("{} processes {word}\n", processes.len())]);
        }
    }
    let facts = json!({"files": shown, "truncated": truncated, "processes_started": diff.processes_started.len(),
                       "processes_ended": diff.processes_ended.len()});
    Ok(Answer::new(text, facts))
}

/// A receipt in a line.
pub(super) fn told(receipt: &Receipt) -> String {
    let mut text =
        format!("kept {}", if receipt.kept.is_empty() { "nothing".to_owned() } else { receipt.kept.join(", ") });
    for lost in receipt.not_kept.iter().take(5) {
        text.extend([format!("; not kept: {} ({})", lost.what, lost.why)]);
    }
    text.extend([format!(", {:.0} ms", receipt.total_ms)]);
    text
}
