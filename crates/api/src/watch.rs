//! `…/files/watch`: changes of files as they happen.

use std::convert::Infallible;

use axum::response::IntoResponse;
use axum::response::sse::{Event, Sse};
use futures_util::StreamExt;
use roost_model::{ErrorBody, WatchEvent};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::events::{error_event, keep_alive};
use crate::extract::{ApiPath, ApiQuery, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(watch_files))
}

/// What to watch.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    /// The path.
    path: String,
    /// Folders below too.
    #[serde(default)]
    recursive: bool,
}

/// Follow changes below a path as server-sent events; when the head arrives, the watch stands.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/watch", tag = "files", params(SandboxPath, WatchQuery),
    responses(
        (status = 200, description = "One event for each change", body = WatchEvent, content_type = "text/event-stream"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn watch_files(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<WatchQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let changes = api.living(&path.sandbox)?.watch(&query.path, query.recursive).await?;
    let events = changes.map(|change| match change {
        Ok(change) => Event::default().event(&change.kind).json_data(&change).unwrap_or_default(),
        Err(error) => error_event(error),
    });
    let events = events.map(Ok::<_, Infallible>).take_until(api.closing().clone().cancelled_owned());
    Ok(Sse::new(events).keep_alive(keep_alive()))
}
