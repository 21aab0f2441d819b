//! Logs of a sandbox: what happened to it. What its processes say goes to whoever follows them.

use axum::Json;
use jiff::Timestamp;
use roost_model::Event;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::bodies::moment;
use super::extract::{E2bPath, E2bQuery};
use super::visit::Visit;
use crate::error::E2bError;

const MOST: usize = 1000;

/// Which lines.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LogQuery {
    /// Unix milliseconds.
    start: Option<i64>,
    /// The same, in the later generation.
    cursor: Option<i64>,
    limit: Option<usize>,
    direction: Option<String>,
}

/// One line, as older clients read it.
#[derive(Debug, Serialize)]
struct Line {
    timestamp: String,
    line: String,
}

/// One line with its parts.
#[derive(Debug, Serialize)]
struct Entry {
    timestamp: String,
    level: &'static str,
    message: String,
    fields: Value,
}

impl Entry {
    fn of(event: &Event) -> Self {
        let reason = event.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        Self {
            timestamp: moment(event.at),
            level: "info",
            message: format!("{}{reason}", event.kind.as_str()),
            fields: json!({ "event": event.id.to_string() }),
        }
    }
}

/// Lines in both forms.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Logs {
    logs: Vec<Line>,
    log_entries: Vec<Entry>,
}

/// Lines of the later generation.
#[derive(Debug, Serialize)]
pub(crate) struct LogsV2 {
    logs: Vec<Entry>,
}

/// `GET /sandboxes/{id}/logs`.
pub(crate) async fn logs(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bQuery(query): E2bQuery<LogQuery>,
) -> Result<Json<Logs>, E2bError> {
    let log_entries = entries(&e2b, &id, &query)?;
    let line = |entry: &Entry| Line { timestamp: entry.timestamp.clone(), line: entry.message.clone() };
    Ok(Json(Logs { logs: log_entries.iter().map(line).collect(), log_entries }))
}

/// `GET /v2/sandboxes/{id}/logs`.
pub(crate) async fn logs_v2(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bQuery(query): E2bQuery<LogQuery>,
) -> Result<Json<LogsV2>, E2bError> {
    Ok(Json(LogsV2 { logs: entries(&e2b, &id, &query)? }))
}

fn entries(e2b: &Visit, id: &str, query: &LogQuery) -> Result<Vec<Entry>, E2bError> {
    let handle = e2b.find(id)?;
    let events = e2b.visitor().events_after(0, MOST, Some(handle.id().as_str()))?;
    Ok(chosen(&events, query).into_iter().map(Entry::of).collect())
}

fn chosen<'a>(events: &'a [Event], query: &LogQuery) -> Vec<&'a Event> {
    let from = query.cursor.or(query.start).and_then(|at| Timestamp::from_millisecond(at).ok());
    let limit = query.limit.unwrap_or(MOST).min(MOST);
    if query.direction.as_deref() == Some("backward") {
        let before = |event: &&Event| from.is_none_or(|from| event.at <= from);
        return events.iter().rev().filter(before).take(limit).collect();
    }
    events.iter().filter(|event| from.is_none_or(|from| event.at >= from)).take(limit).collect()
}
