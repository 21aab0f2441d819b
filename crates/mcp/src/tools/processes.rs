//! Everything that runs in a sandbox, whoever started it.

use std::time::Duration;

use roost_model::{ProcessView, State};
use serde_json::json;

use super::sandboxes::Youngest;
use super::{Effect, Entry, tool, youngest};
use crate::answer::{Answer, Failure};
use crate::call::Call;

/// Of a command line that is longer, the beginning is shown.
const LONGEST: usize = 200;

pub(super) fn tools() -> Vec<Entry> {
    vec![tool(
        "processes",
        "List processes",
        Effect::Reads,
        "List everything that runs in a sandbox, also what commands and services have started: pid, parent, user, state, CPU time, \
         memory, command line, and the command (exec) or service it belongs to. Does not wake it.",
        processes,
    )]
}

async fn processes(call: Call, wanted: Youngest) -> Result<Answer, Failure> {
    let list = call.living(&wanted.sandbox)?.processes().await?;
    let (shown, mut text) = youngest(&list.items, wanted.limit);
    let truncated = shown.len() < list.items.len();
    text.extend(shown.iter().map(line));
    if list.state != State::Active {
        text =
            format!("{} is {}: what runs in it is known when it is awake; wake wakes it", wanted.sandbox, list.state);
    }
    let facts = json!({"state": list.state, "level": list.level, "processes": shown, "truncated": truncated});
    Ok(Answer::new(text, facts))
}

fn line(process: &ProcessView) -> String {
    let service = process.service.as_ref().map(|name| format!(" (service {name})"));
    let owner = service.or_else(|| process.exec.as_ref().map(|id| format!(" ({id})"))).unwrap_or_default();
    let seconds = Duration::from_micros(process.cpu_us).as_secs_f64();
    let command: String = process.command().chars().take(LONGEST).collect();
    format!(
        "{} parent {} {} {} cpu {seconds:.2} s memory {} KiB: {command}{owner}\n",
        process.pid,
        process.ppid,
        process.user,
        process.state.as_str(),
        process.rss >> 10,
    )
}
