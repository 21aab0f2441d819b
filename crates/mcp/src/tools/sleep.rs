//! Sleeping and waking, why, and keeping awake.

use roost_host::to_the_end;
use roost_model::{Level, PutHold, Span, Suspend};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::moments::told;
use super::sandboxes::One;
use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;

const HALF_AN_HOUR: u64 = 1800;
/// Lines of the ledger that are shown.
const LEDGER: usize = 10;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "suspend",
            "Put a sandbox to sleep",
            Effect::Settles,
            "Put a sandbox to sleep now: ram freezes it, disk saves its memory and frees RAM, files ends its processes and keeps files \
             alone. It sleeps by itself when nobody uses it, so this is rarely needed. Whatever uses it wakes it.",
            suspend,
        ),
        tool(
            "wake",
            "Wake a sandbox",
            Effect::Settles,
            "Wake a sandbox ahead of time; every tool that needs it awake does so itself.",
            wake,
        ),
        tool(
            "why",
            "Say why a sandbox is awake or asleep",
            Effect::Reads,
            "Say what keeps a sandbox awake or why it sleeps, what comes next, and its last sleeps and wakes. Does not wake it.",
            why,
        ),
        tool(
            "hold",
            "Keep a sandbox awake",
            Effect::Settles,
            "Keep a sandbox awake for a time, for background work that uses neither CPU nor network. The same name renews it; \
             seconds=0 lets go.",
            hold,
        ),
    ]
}

/// How deep.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Depth {
    #[default]
    Ram,
    Disk,
    Files,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sleep {
    /// The sandbox's name or id
    sandbox: String,
    /// How deep: `ram`, `disk` or `files`; ram if absent
    #[serde(default)]
    level: Depth,
    /// Stay asleep until the tool wake is used; other uses are refused then
    #[serde(default)]
    stay: bool,
}

async fn suspend(call: Call, wanted: Sleep) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let to = match wanted.level {
        Depth::Ram => Level::Ram,
        Depth::Disk => Level::Disk,
        Depth::Files => Level::Files,
    };
    let receipt = to_the_end(async move { handle.suspend(Suspend { to, stay: wanted.stay }).await }).await?;
    let text = format!("{} sleeps to {to}: {}", wanted.sandbox, told(&receipt));
    Ok(Answer::new(text, json!({"receipt": receipt})))
}

async fn wake(call: Call, wanted: One) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let receipt = to_the_end(async move { handle.wake().await }).await?;
    Ok(Answer::new(format!("{} is awake: {}", wanted.sandbox, told(&receipt)), json!({"receipt": receipt})))
}

async fn why(call: Call, wanted: One) -> Result<Answer, Failure> {
    let why = call.living(&wanted.sandbox)?.why().await?;
    let level = why.level.map_or_else(String::new, |level| format!(" to {level}"));
    let mut text = format!("{} is {}{level} since {:.0}", why.name, why.state, why.state_since);
    if let Some(reason) = &why.reason {
        text.extend([format!(": {reason}")]);
    }
    for keeper in &why.keeps_awake {
        text.extend([format!("\nkept awake by {}", keeper.what)]);
    }
    for (words, moment) in [("sleeps", why.sleeps_at), ("goes deeper", why.deepens_at), ("wakes", why.wakes_at)] {
        if let Some(moment) = moment {
            text.extend([format!("\n{words} at {moment:.0}")]);
        }
    }
    let ledger = &why.ledger[why.ledger.len().saturating_sub(LEDGER)..];
    let facts = json!({"name": why.name, "state": why.state, "level": why.level, "reason": why.reason,
                       "keeps_awake": why.keeps_awake, "sleeps_at": why.sleeps_at, "ledger": ledger});
    Ok(Answer::new(text, facts))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keep {
    /// The sandbox's name or id
    sandbox: String,
    /// For how long from now; 1800 if absent, 0 lets go
    seconds: Option<u64>,
    /// What for
    reason: Option<String>,
    /// What it is called; `agent` if absent
    name: Option<String>,
}

async fn hold(call: Call, wanted: Keep) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let name = wanted.name.unwrap_or_else(|| "agent".to_owned());
    let seconds = wanted.seconds.unwrap_or(HALF_AN_HOUR);
    if seconds == 0 {
        handle.release_hold(&name).await?;
        return Ok(Answer::new(format!("{} may sleep", wanted.sandbox), json!({"released": name})));
    }
    let (hold, _) =
        handle.put_hold(Some(&name), PutHold { length: Span::seconds(seconds), reason: wanted.reason }).await?;
    let text = format!("{} stays awake until {:.0}", wanted.sandbox, hold.expires_at);
    Ok(Answer::new(text, json!({"hold": hold})))
}
