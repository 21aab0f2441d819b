//! Making, finding and removing sandboxes.

use std::collections::{BTreeMap, BTreeSet};

use roost_host::{ListFilter, to_the_end};
use roost_model::{Capability, CreateSandbox, LimitsRequest, NetworkPolicy, SandboxView, Span, State};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "sandbox_create",
            "Make a sandbox",
            Effect::Changes,
            "Make a Linux computer and wait until it runs. Everything may be left out: it gets a made-up name and the default \
             template. It stays until it is removed, and sleeps when nobody uses it. `templates` lists what to start from.",
            create,
        ),
        tool(
            "sandbox_list",
            "List sandboxes",
            Effect::Reads,
            "List sandboxes, oldest first, with their state: active, or suspended (asleep, wakes by itself when used).",
            list,
        ),
        tool(
            "sandbox_info",
            "Read one sandbox",
            Effect::Reads,
            "Read everything about one sandbox: state, limits, labels, parent, and what it uses now. Does not wake it.",
            info,
        ),
        tool(
            "sandbox_remove",
            "Remove a sandbox",
            Effect::Destroys,
            "End a sandbox for good, with its files and processes. Its checkpoints stay until they are removed.",
            remove,
        ),
        tool(
            "templates",
            "List templates",
            Effect::Reads,
            "List the templates that sandbox_create can start from.",
            templates,
        ),
    ]
}

/// A sandbox, by whatever names it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct One {
    /// The sandbox's name or id
    pub(super) sandbox: String,
}

/// What belongs to a sandbox, the youngest of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Youngest {
    /// The sandbox's name or id
    pub(super) sandbox: String,
    /// How many at most, the youngest; 50 if absent
    pub(super) limit: Option<usize>,
}

/// Nothing to say.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// Its name: a-z, 0-9 and inner dashes; made up if absent
    name: Option<String>,
    /// The template it starts from, such as `base`; the default one if absent
    template: Option<String>,
    /// A checkpoint to start from instead of a template
    from_checkpoint: Option<String>,
    /// Environment variables of everything that runs in it
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Labels, for finding it again
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// CPUs it may use
    cpus: Option<f64>,
    /// Memory it may use, in MiB
    memory_mb: Option<u64>,
    /// Whether it reaches the internet; it does if absent
    internet: Option<bool>,
    /// Capabilities that root inside gets beyond the usual ones: `net-admin`, `net-raw`; those of the template or the daemon's
    /// configuration if absent
    capabilities: Option<Vec<String>>,
    /// Seconds after which it is removed by itself; never if absent
    ttl_seconds: Option<u64>,
}

async fn create(call: Call, wanted: Create) -> Result<Answer, Failure> {
    let from_checkpoint = match &wanted.from_checkpoint {
        Some(text) => Some(call.visitor.checkpoint(text)?.id),
        None => None,
    };
    let words = wanted.capabilities.map(|words| words.iter().map(|word| word.parse()).collect());
    let capabilities: Option<BTreeSet<Capability>> =
        words.transpose().map_err(|error: String| Failure::bad_request(error))?;
    let limits = LimitsRequest {
        cpus: wanted.cpus,
        memory: wanted.memory_mb.map(|mib| mib.saturating_mul(1 << 20)),
        ..LimitsRequest::default()
    };
    let request = CreateSandbox {
        name: wanted.name,
        template: wanted.template,
        from_checkpoint,
        env: wanted.env,
        labels: wanted.labels,
        limits: (limits != LimitsRequest::default()).then_some(limits),
        network: wanted.internet.map(|enabled| NetworkPolicy { enabled }),
        capabilities,
        ttl: wanted.ttl_seconds.map(Span::seconds),
        ..CreateSandbox::default()
    };
    let visitor = call.visitor.clone();
    let (view, _) = to_the_end(async move { visitor.create(request, None).await }).await?;
    Ok(Answer::new(format!("made {}", line(&view)), brief(&view)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only those whose name holds this text
    name_contains: Option<String>,
    /// Only those with all these labels
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// How many at most; 50 if absent
    limit: Option<usize>,
    /// Where the list before said that this one goes on
    cursor: Option<String>,
}

async fn list(call: Call, wanted: List) -> Result<Answer, Failure> {
    let cursor =
        wanted.cursor.map(|text| text.parse().map_err(|_| Failure::bad_request("that is no cursor of a list")));
    let filter = ListFilter {
        name: wanted.name_contains,
        labels: wanted.labels,
        limit: wanted.limit.unwrap_or(50).min(200),
        cursor: cursor.transpose()?,
        ..ListFilter::default()
    };
    let page = call.visitor.list(&filter).await?;
    let mut text: String = page.items.iter().map(|view| format!("{}\n", line(view))).collect();
    if page.items.is_empty() {
        text.push_str("there is no such sandbox; sandbox_create makes one");
    }
    if let Some(cursor) = &page.next_cursor {
        text.extend([format!("there are more: cursor={cursor}")]);
    }
    let all: Vec<_> = page.items.iter().map(brief).collect();
    Ok(Answer::new(text, json!({"sandboxes": all, "next_cursor": page.next_cursor})))
}

async fn info(call: Call, wanted: One) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let mut view = handle.view();
    if view.state == State::Active
        && let Ok(ports) = handle.ports_if_awake().await
    {
        view.ports = ports;
    }
    let facts = json!({"sandbox": view, "stats": handle.stats().await?});
    Ok(Answer::new(serde_json::to_string_pretty(&facts).unwrap_or_default(), facts))
}

async fn remove(call: Call, wanted: One) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let name = handle.view().name;
    to_the_end(async move { handle.delete().await }).await?;
    Ok(Answer::new(format!("removed {name}"), json!({"removed": name})))
}

async fn templates(call: Call, _: Nothing) -> Result<Answer, Failure> {
    let all = call.visitor.templates()?;
    let line = |template: &roost_model::TemplateView| {
        let warm = if template.memory { " (with processes that run already)" } else { "" };
        format!("{}{warm}\n", template.name)
    };
    let names: Vec<&str> = all.iter().map(|template| template.name.as_str()).collect();
    Ok(Answer::new(all.iter().map(line).collect::<String>(), json!({"templates": names})))
}

/// A sandbox in a line.
pub(super) fn line(view: &SandboxView) -> String {
    let level = view.level.map_or_else(String::new, |level| format!(" to {level}"));
    format!("{} ({}{level}, template {}, id {})", view.name, view.state, view.template, view.id)
}

/// A sandbox in the few words that programs ask for most.
pub(super) fn brief(view: &SandboxView) -> serde_json::Value {
    json!({
        "name": view.name, "id": view.id, "state": view.state, "level": view.level, "template": view.template,
        "labels": view.labels, "created_at": view.created_at, "parent": view.parent,
    })
}
