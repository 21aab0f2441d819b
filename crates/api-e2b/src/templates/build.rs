//! Building a template: asked for, begun, watched.

use axum::Json;
use axum::http::StatusCode;
use roost_host::BuildView;
use serde::{Deserialize, Serialize};

use super::BUILD;
use super::bodies::{BuildStatus, LogEntry, RequestBuild, RequestedBuild};
use super::names::{from_uuid, tags, template_name};
use super::steps::StartBuild;
use crate::control::extract::{E2bJson, E2bPath, E2bQuery};
use crate::control::visit::Visit;
use crate::error::E2bError;

/// Lines of a log in one answer.
const MOST_LINES: usize = 100;

/// `POST /v3/templates`.
pub(crate) async fn request(
    e2b: Visit,
    E2bJson(wanted): E2bJson<RequestBuild>,
) -> Result<(StatusCode, Json<RequestedBuild>), E2bError> {
    let named = template_name(&wanted.name)?;
    let mut all = tags(wanted.tags.as_deref().unwrap_or_default())?;
    all.extend(named.tag);
    if all.is_empty() {
        all.push(roost_model::Tag::default());
    }
    let limits = wanted.limits();
    let view = e2b.host(BUILD)?.request_build(named.name, all, limits).await?;
    Ok((StatusCode::ACCEPTED, Json(view.into())))
}

/// The build that a path means, which must be of the template that it names.
fn find(e2b: &Visit, template: &str, build: &str) -> Result<BuildView, E2bError> {
    let view = e2b.host(BUILD)?.build(&from_uuid(build)?)?;
    if view.name == template_name(template)?.name {
        return Ok(view);
    }
    Err(E2bError::not_found(format!("template `{template}` has no build `{build}`")))
}

/// `POST /v2/templates/{template}/builds/{build}`.
pub(crate) async fn start(
    e2b: Visit,
    E2bPath((template, build)): E2bPath<(String, String)>,
    E2bJson(wanted): E2bJson<StartBuild>,
) -> Result<StatusCode, E2bError> {
    let view = find(&e2b, &template, &build)?;
    e2b.host(BUILD)?.start_build(&view.id, wanted.plan()?).await?;
    Ok(StatusCode::ACCEPTED)
}

/// From where on, and how much.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogRange {
    #[serde(default)]
    logs_offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

impl LogRange {
    fn most(&self) -> usize {
        self.limit.unwrap_or(MOST_LINES).min(MOST_LINES)
    }
}

/// `GET /templates/{template}/builds/{build}/status`.
pub(crate) async fn status(
    e2b: Visit,
    E2bPath((template, build)): E2bPath<(String, String)>,
    E2bQuery(range): E2bQuery<LogRange>,
) -> Result<Json<BuildStatus>, E2bError> {
    // The state before the log: whoever sees that it is over has all lines ahead.
    let view = find(&e2b, &template, &build)?;
    let lines = e2b.host(BUILD)?.build_log(&view.id, range.logs_offset.unwrap_or(0), range.most())?;
    Ok(Json(BuildStatus::of(view, lines)))
}

/// A log alone.
#[derive(Debug, Serialize)]
pub(crate) struct Log {
    logs: Vec<LogEntry>,
}

/// `GET /templates/{template}/builds/{build}/logs`.
pub(crate) async fn logs(
    e2b: Visit,
    E2bPath((template, build)): E2bPath<(String, String)>,
    E2bQuery(range): E2bQuery<LogRange>,
) -> Result<Json<Log>, E2bError> {
    let view = find(&e2b, &template, &build)?;
    let lines = e2b.host(BUILD)?.build_log(&view.id, range.logs_offset.unwrap_or(0), range.most())?;
    Ok(Json(Log { logs: lines.into_iter().map(LogEntry::from).collect() }))
}
