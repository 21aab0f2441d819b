//! Snapshots: moments of a sandbox that outlive it. Each is a checkpoint of Roost's; a name is kept in its comment.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderMap, HeaderValue};
use roost_host::to_the_end;
use roost_model::{CheckpointId, CheckpointView, CreateCheckpoint, CreateSandbox};
use serde::{Deserialize, Serialize};

use super::extract::{E2bJson, E2bPath, E2bQuery};
use super::visit::Visit;
use crate::e2b::wire_id;
use crate::error::E2bError;
use crate::templates::template_name;

/// What the comment of a named snapshot starts with.
const COMMENT: &str = "snapshot ";
/// The version that is meant where none is named.
const TAG: &str = "default";
const PAGE: usize = 100;
const LONGEST_NAME: usize = 128;

/// A snapshot to take.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NewSnapshot {
    name: Option<String>,
    /// Whether memory and processes are kept; they are if absent.
    memory: Option<bool>,
}

/// A snapshot as clients see it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct SnapshotInfo {
    #[serde(rename = "snapshotID")]
    snapshot: String,
    names: Vec<String>,
}

impl SnapshotInfo {
    fn of(view: &CheckpointView) -> Self {
        match name_of(view) {
            Some(name) => Self { snapshot: name.to_owned(), names: vec![name.to_owned()] },
            None => Self { snapshot: format!("{}:{TAG}", view.id), names: Vec::new() },
        }
    }
}

/// The name of a snapshot, with its tag.
fn name_of(view: &CheckpointView) -> Option<&str> {
    view.comment.as_deref()?.strip_prefix(COMMENT)
}

/// A name with its tag, without the namespace that some clients put before it.
fn full_name(text: &str) -> String {
    let bare = text.rsplit('/').next().unwrap_or(text);
    if bare.contains(':') { bare.to_owned() } else { format!("{bare}:{TAG}") }
}

fn checked_name(text: &str) -> Result<String, E2bError> {
    let name = full_name(text);
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte));
    let parts = name.split(':').all(|part| !part.is_empty()) && name.matches(':').count() == 1;
    if fits && parts && name.len() <= LONGEST_NAME {
        return Ok(name);
    }
    Err(E2bError::bad_request(format!("`{text}` is no name for a snapshot: use letters, digits, `-`, `_` and `.`")))
}

/// `POST /sandboxes/{id}/snapshots`.
pub(crate) async fn create(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<NewSnapshot>,
) -> Result<(StatusCode, Json<SnapshotInfo>), E2bError> {
    let handle = e2b.find(&id)?;
    let name = wanted.name.as_deref().filter(|name| !name.is_empty()).map(checked_name).transpose()?;
    let comment = name.map(|name| format!("{COMMENT}{name}"));
    let files_only = wanted.memory == Some(false);
    let taken = to_the_end(async move { handle.checkpoint(CreateCheckpoint { comment, files_only }).await }).await;
    let (view, _) = taken.map_err(|error| E2bError::from(error).once())?;
    Ok((StatusCode::CREATED, Json(SnapshotInfo::of(&view))))
}

/// What a list of snapshots may be asked.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SnapshotQuery {
    #[serde(rename = "sandboxID")]
    sandbox: Option<String>,
    name: Option<String>,
    limit: Option<usize>,
    #[serde(rename = "nextToken")]
    next: Option<String>,
}

/// `GET /snapshots`: the newest first.
pub(crate) async fn list(
    e2b: Visit,
    E2bQuery(query): E2bQuery<SnapshotQuery>,
) -> Result<(HeaderMap, Json<Vec<SnapshotInfo>>), E2bError> {
    let (page, next) = page(all(&e2b).await?, &query)?;
    let mut headers = HeaderMap::new();
    if let Some(next) = next.and_then(|next| HeaderValue::from_str(&next).ok()) {
        headers.insert("x-next-token", next);
    }
    Ok((headers, Json(page.iter().map(SnapshotInfo::of).collect())))
}

fn page(
    mut found: Vec<CheckpointView>,
    query: &SnapshotQuery,
) -> Result<(Vec<CheckpointView>, Option<String>), E2bError> {
    let unfit = |what: &str| E2bError::bad_request(format!("`{what}` does not fit"));
    let limit = query.limit.unwrap_or(PAGE);
    if !(1..=PAGE).contains(&limit) {
        return Err(unfit("limit"));
    }
    let after = query.next.as_deref().filter(|token| !token.is_empty());
    let after = after.map(|token| token.parse::<CheckpointId>().map_err(|_| unfit("nextToken"))).transpose()?;
    let name = query.name.as_deref().map(full_name);
    found.retain(|view| {
        let of_it = |sandbox: &String| wire_id(&view.sandbox) == sandbox || view.sandbox.as_str() == sandbox;
        query.sandbox.as_ref().is_none_or(of_it)
            && name.as_ref().is_none_or(|name| name_of(view) == Some(name))
            && after.as_ref().is_none_or(|after| view.id < *after)
    });
    found.sort_by(|a, b| b.id.cmp(&a.id));
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| last.id.to_string());
    Ok((found, next))
}

/// Every moment that somebody asked for.
async fn all(e2b: &Visit) -> Result<Vec<CheckpointView>, E2bError> {
    let views = e2b.visitor().all_checkpoints().await?;
    Ok(views.into_iter().filter(|view| !view.automatic).collect())
}

/// The snapshot that a text names: by its id or its name, with or without a tag.
pub(crate) async fn find(e2b: &Visit, text: &str) -> Result<Option<CheckpointView>, E2bError> {
    let bare = text.strip_suffix(&format!(":{TAG}")).unwrap_or(text);
    let (id, name) = (bare.parse::<CheckpointId>().ok(), full_name(text));
    let named = all(e2b).await?.into_iter().filter(|view| match &id {
        Some(id) => view.id == *id,
        None => name_of(view) == Some(name.as_str()),
    });
    Ok(named.max_by(|a, b| a.id.cmp(&b.id)))
}

/// Removes the snapshot that a text names; says whether there was one.
pub(crate) async fn delete(e2b: &Visit, text: &str) -> Result<bool, E2bError> {
    let Some(view) = find(e2b, text).await? else { return Ok(false) };
    e2b.visitor().delete_checkpoint(view.id.as_str()).await?;
    Ok(true)
}

/// What a new sandbox starts from: a template, or else a snapshot of that name or id.
pub(crate) async fn start(e2b: &Visit, text: &str) -> Result<CreateSandbox, E2bError> {
    let template = template_name(text).map(|name| name.to_string());
    let known = template.as_ref().is_ok_and(|name| e2b.visitor().template(name).is_ok());
    if !known && let Some(snapshot) = find(e2b, text).await? {
        return Ok(CreateSandbox { from_checkpoint: Some(snapshot.id), ..CreateSandbox::default() });
    }
    Ok(CreateSandbox { template: Some(template?), ..CreateSandbox::default() })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roost_model::{CheckpointBytes, SandboxId};

    use super::*;

    fn snapshot(number: u64, name: Option<&str>) -> CheckpointView {
        CheckpointView {
            id: CheckpointId::from_parts(number, 1),
            sandbox: SandboxId::from_parts(number % 2, 1),
            sandbox_name: "box".parse().unwrap(),
            created_at: Timestamp::UNIX_EPOCH,
            comment: name.map(|name| format!("{COMMENT}{name}")),
            automatic: false,
            from: roost_model::Origin::Outside,
            memory: true,
            parent: None,
            bytes: CheckpointBytes::default(),
            generation: 1,
            template: "base".to_owned(),
            processes: Vec::new(),
            not_kept: Vec::new(),
        }
    }

    #[test]
    fn a_name_stands_for_an_id() {
        let named = SnapshotInfo::of(&snapshot(1, Some("build:v2")));
        assert_eq!((named.snapshot.as_str(), named.names), ("build:v2", vec!["build:v2".to_owned()]));
        let plain = SnapshotInfo::of(&snapshot(1, None));
        assert!(plain.snapshot.starts_with("ckp_") && plain.snapshot.ends_with(":default") && plain.names.is_empty());
        assert_eq!(checked_name("team/build").unwrap(), "build:default");
        for odd in ["a b", ":x", "x:", "a:b:c", "ä"] {
            assert_eq!(checked_name(odd).unwrap_err().status(), 400, "{odd}");
        }
    }

    #[test]
    fn the_newest_come_first_page_by_page() {
        let found = || (1..=5).map(|number| snapshot(number, (number == 4).then_some("build:default"))).collect();
        let numbers = |query: &SnapshotQuery| {
            let (page, next) = page(found(), query).unwrap();
            let all: Vec<CheckpointView> = found();
            let number = |view: &CheckpointView| all.iter().position(|other| other.id == view.id).unwrap() + 1;
            (page.iter().map(number).collect::<Vec<_>>(), next)
        };
        let (first, next) = numbers(&SnapshotQuery { limit: Some(3), ..SnapshotQuery::default() });
        assert_eq!(first, [5, 4, 3]);
        assert_eq!(numbers(&SnapshotQuery { next, ..SnapshotQuery::default() }), (vec![2, 1], None));
        let of_one = SnapshotQuery {
            sandbox: Some(wire_id(&SandboxId::from_parts(0, 1)).to_owned()),
            ..SnapshotQuery::default()
        };
        assert_eq!(numbers(&of_one).0, [4, 2]);
        assert_eq!(numbers(&SnapshotQuery { name: Some("x/build".to_owned()), ..SnapshotQuery::default() }).0, [4]);
        assert!(page(found(), &SnapshotQuery { limit: Some(0), ..SnapshotQuery::default() }).is_err());
    }
}
