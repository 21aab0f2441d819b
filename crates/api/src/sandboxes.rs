//! `/v1/sandboxes`: make, list, read, change, suspend, wake, end.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use roost_host::ListFilter;
use roost_model::{
    CreateSandbox, ErrorBody, MoveSandbox, Page, PatchSandbox, PortView, Receipt, SandboxView, State, Stats, Suspend,
};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as ValueError, StrDeserializer};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery, Key, SandboxPath};
use crate::visit::Visit;

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 1000;
/// How long the listening ports may hold up the view of a sandbox.
const PORTS_TIME: Duration = Duration::from_secs(1);

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_sandbox, list_sandboxes))
        .routes(routes!(get_sandbox, patch_sandbox, delete_sandbox))
        .routes(routes!(suspend_sandbox))
        .routes(routes!(wake_sandbox))
        .routes(routes!(move_sandbox))
        .routes(routes!(sandbox_stats))
        .routes(routes!(sandbox_ports))
}

/// Make a sandbox and wait until it is active.
#[utoipa::path(
    post, path = "/v1/sandboxes", tag = "sandboxes",
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key makes the same sandbox, once")),
    request_body = CreateSandbox,
    responses(
        (status = 201, description = "Made", body = SandboxView),
        (status = 200, description = "An earlier request with this key had made it", body = SandboxView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn create_sandbox(
    api: Visit,
    Key(key): Key,
    ApiJson(wanted): ApiJson<CreateSandbox>,
) -> Result<(StatusCode, Json<SandboxView>), ApiError> {
    let visitor = api.visitor().clone();
    let work = to_the_end(async move { visitor.create(wanted, key.as_ref()).await });
    let (view, replayed) = api.measured("create", work).await?;
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(view)))
}

/// What `GET /v1/sandboxes` may be asked; only for the document, because labels repeat.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "described here, read from pairs below")]
struct ListQuery {
    /// Only those in this state; `terminated` looks among those that are gone.
    state: Option<State>,
    /// Only those with this label, `key=value`; may be given several times or with commas.
    label: Option<Vec<String>>,
    /// Only those whose name holds this text.
    name: Option<String>,
    /// Those that are gone too.
    terminated: Option<bool>,
    /// How many at most; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Where the page before said this one starts.
    cursor: Option<String>,
}

fn list_filter(pairs: Vec<(String, String)>) -> Result<ListFilter, ApiError> {
    let mut filter = ListFilter { limit: PAGE, ..ListFilter::default() };
    for (key, value) in pairs {
        let unfit = |problem: &str| ApiError::bad_request(format!("`{key}={value}` does not fit: {problem}"));
        match key.as_str() {
            "state" => {
                let word: StrDeserializer<'_, ValueError> = value.as_str().into_deserializer();
                filter.state = Some(State::deserialize(word).map_err(|error| unfit(&error.to_string()))?);
            }
            "label" => add_labels(&mut filter.labels, &value).map_err(unfit)?,
            "name" => filter.name = Some(value),
            "terminated" => filter.terminated = value.parse().map_err(|_| unfit("it is `true` or `false`"))?,
            "limit" => match value.parse() {
                Ok(limit) if (1..=LARGEST_PAGE).contains(&limit) => filter.limit = limit,
                _ => return Err(unfit("it is a number from 1 to 1000")),
            },
            "cursor" => filter.cursor = Some(value.parse().map_err(|_| unfit("it is no cursor of a page"))?),
            _ => return Err(unfit("the list knows state, label, name, terminated, limit and cursor")),
        }
    }
    Ok(filter)
}

/// Labels with commas between them; a part without `=` belongs to the value before its comma.
fn add_labels(labels: &mut BTreeMap<String, String>, text: &str) -> Result<(), &'static str> {
    let mut last: Option<(String, String)> = None;
    for part in text.split(',') {
        match (part.split_once('='), &mut last) {
            (Some((key, value)), last) => labels.extend(last.replace((key.to_owned(), value.to_owned()))),
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(part);
            }
            (None, None) => return Err("write `key=value`"),
        }
    }
    labels.extend(last);
    Ok(())
}

/// List sandboxes, oldest first.
#[utoipa::path(
    get, path = "/v1/sandboxes", tag = "sandboxes", params(ListQuery),
    responses(
        (status = 200, description = "A page of them", body = Page<SandboxView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_sandboxes(
    api: Visit,
    ApiQuery(pairs): ApiQuery<Vec<(String, String)>>,
) -> Result<Json<Page<SandboxView>>, ApiError> {
    Ok(Json(api.visitor().list(&list_filter(pairs)?).await?))
}

/// Read one sandbox; one that is gone is answered with its tombstone.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "The sandbox", body = SandboxView),
        (status = 410, description = "It is gone; its tombstone is in `sandbox`", body = ErrorBody),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_sandbox(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<SandboxView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let mut view = handle.view();
    // Best effort, and never a reason to wake it or to keep it awake.
    if view.state == State::Active
        && let Ok(Ok(ports)) = tokio::time::timeout(PORTS_TIME, handle.ports_if_awake()).await
    {
        view.ports = ports;
    }
    Ok(Json(view))
}

/// Change labels, limits, time to live, when it sleeps by itself, or what it may reach.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath), request_body = PatchSandbox,
    responses(
        (status = 200, description = "The sandbox as it is now", body = SandboxView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn patch_sandbox(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(patch): ApiJson<PatchSandbox>,
) -> Result<Json<SandboxView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    Ok(Json(to_the_end(async move { handle.patch(patch).await }).await?))
}

/// End a sandbox for good; its tombstone stays.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 204, description = "Gone"),
        (status = 410, description = "It was gone already; its tombstone is in `sandbox`", body = ErrorBody),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_sandbox(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<StatusCode, ApiError> {
    let handle = api.living(&path.sandbox)?;
    api.measured("delete", to_the_end(async move { handle.delete().await })).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Put a sandbox to sleep, or to a deeper sleep; anything that needs it awake wakes it, unless it shall stay asleep.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/suspend", tag = "sandboxes", params(SandboxPath), request_body = Suspend,
    responses(
        (status = 200, description = "What was kept and what it took", body = Receipt),
        (status = "default", description = "Refused; the sandbox is as it was", body = ErrorBody),
    )
)]
async fn suspend_sandbox(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<Suspend>,
) -> Result<Json<Receipt>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    Ok(Json(api.measured("suspend", to_the_end(async move { handle.suspend(wanted).await })).await?))
}

/// Wake a sandbox, or start it again from its files if its processes had ended.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/wake", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "What was kept and what it took", body = Receipt),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn wake_sandbox(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Receipt>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    Ok(Json(api.measured("wake", to_the_end(async move { handle.wake().await })).await?))
}

/// Let a sandbox go on, from its files, with another engine; one that has it already stays as it is.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/move", tag = "sandboxes", params(SandboxPath), request_body = MoveSandbox,
    responses(
        (status = 200, description = "What was kept and what it took", body = Receipt),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn move_sandbox(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<MoveSandbox>,
) -> Result<Json<Receipt>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let host = api.host("move sandboxes to another engine")?.clone();
    let work = to_the_end(async move { host.move_sandbox(&handle, &wanted).await });
    Ok(Json(api.measured("move", work).await?))
}

/// Read what a sandbox uses now; does not wake it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/stats", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "CPU, memory, processes and disk", body = Stats),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn sandbox_stats(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Stats>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.stats().await?))
}

/// List the TCP ports that listen inside.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "The ports", body = Page<PortView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn sandbox_ports(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Page<PortView>>, ApiError> {
    let items = api.living(&path.sandbox)?.ports().await?;
    Ok(Json(Page { items, next_cursor: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(pairs: &[(&str, &str)]) -> Result<ListFilter, ApiError> {
        list_filter(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn labels_repeat_and_have_commas() {
        let labels = filter(&[("label", "team=a,tier=1"), ("label", "list=x,y")]).unwrap().labels;
        let expected = [("list", "x,y"), ("team", "a"), ("tier", "1")];
        assert!(labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(expected), "{labels:?}");
    }

    #[test]
    fn a_page_has_its_size_and_state() {
        let page = filter(&[("state", "terminated"), ("limit", "7"), ("terminated", "true")]).unwrap();
        assert_eq!((page.state, page.limit, page.terminated), (Some(State::Terminated), 7, true));
        assert_eq!(filter(&[]).unwrap().limit, PAGE);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (key, value) in [
            ("state", "asleep"),
            ("label", "team"),
            ("limit", "0"),
            ("limit", "1001"),
            ("cursor", "x"),
            ("terminated", "yes"),
            ("colour", "red"),
        ] {
            let refused = filter(&[(key, value)]).unwrap_err();
            assert!(refused.detail().message.contains(&format!("`{key}={value}`")), "{}", refused.detail().message);
        }
    }
}
