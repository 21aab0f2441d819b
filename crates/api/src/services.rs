//! `…/services`: named processes that the guest keeps up.

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use roost_host::{LogAttachment, OutputStart};
use roost_model::{ErrorBody, Page, ServiceSpec, ServiceView};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::body::RawBytes;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery, SandboxPath};
use crate::output::{Source, body_of};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_services))
        .routes(routes!(put_service, get_service, delete_service))
        .routes(routes!(start_service))
        .routes(routes!(stop_service))
        .routes(routes!(restart_service))
        .routes(routes!(service_logs))
}

/// A path below one service of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ServicePath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The service's name.
    service: String,
}

/// List the services of a sandbox by name; does not wake it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/services", tag = "services", params(SandboxPath),
    responses(
        (status = 200, description = "All of them", body = Page<ServiceView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_services(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Page<ServiceView>>, ApiError> {
    let items = api.living(&path.sandbox)?.services().await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// Make a service, or put it in the place of one of its name.
///
/// What runs is replaced if its command, environment, folder, user or port changes. One that was stopped stays stopped.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/services/{service}", tag = "services", params(ServicePath),
    request_body = ServiceSpec,
    responses(
        (status = 201, description = "Made", body = ServiceView),
        (status = 200, description = "Replaced", body = ServiceView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn put_service(
    api: Visit,
    ApiPath(path): ApiPath<ServicePath>,
    ApiJson(spec): ApiJson<ServiceSpec>,
) -> Result<(StatusCode, Json<ServiceView>), ApiError> {
    let handle = api.living(&path.sandbox)?;
    let (view, new) = to_the_end(async move { handle.put_service(&path.service, spec).await }).await?;
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, Json(view)))
}

/// Read one service; does not wake its sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/services/{service}", tag = "services", params(ServicePath),
    responses(
        (status = 200, description = "The service", body = ServiceView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_service(api: Visit, ApiPath(path): ApiPath<ServicePath>) -> Result<Json<ServiceView>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.service(&path.service).await?))
}

/// Stop a service, forget it and remove its log.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/services/{service}", tag = "services", params(ServicePath),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_service(api: Visit, ApiPath(path): ApiPath<ServicePath>) -> Result<StatusCode, ApiError> {
    let handle = api.living(&path.sandbox)?;
    to_the_end(async move { handle.remove_service(&path.service).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Start a service and wait until it is up; cuts a pause after a crash short.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/services/{service}/start", tag = "services", params(ServicePath),
    responses(
        (status = 200, description = "Up, or still starting after 30 s", body = ServiceView),
        (status = "default", description = "Refused, or it ended; the message has the end of its log", body = ErrorBody),
    )
)]
async fn start_service(api: Visit, ApiPath(path): ApiPath<ServicePath>) -> Result<Json<ServiceView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let work = to_the_end(async move { handle.start_service(&path.service).await });
    Ok(Json(api.measured("service_start", work).await?))
}

/// Stop a service; it stays down until it is started again, through every sleep of its sandbox.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/services/{service}/stop", tag = "services", params(ServicePath),
    responses(
        (status = 200, description = "Stopped", body = ServiceView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn stop_service(api: Visit, ApiPath(path): ApiPath<ServicePath>) -> Result<Json<ServiceView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let work = to_the_end(async move { handle.stop_service(&path.service).await });
    Ok(Json(api.measured("service_stop", work).await?))
}

/// Stop a service, start it again and wait until it is up.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/services/{service}/restart", tag = "services", params(ServicePath),
    responses(
        (status = 200, description = "Up, or still starting after 30 s", body = ServiceView),
        (status = "default", description = "Refused, or it ended; the message has the end of its log", body = ErrorBody),
    )
)]
async fn restart_service(api: Visit, ApiPath(path): ApiPath<ServicePath>) -> Result<Json<ServiceView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let work = to_the_end(async move { handle.restart_service(&path.service).await });
    Ok(Json(api.measured("service_restart", work).await?))
}

/// Which part of a log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// Absolute offset of the first byte wanted.
    #[serde(default)]
    offset: u64,
    /// Go on, through restarts, until the service is removed.
    #[serde(default)]
    follow: bool,
}

/// Read a service's log, both of its streams in one, from an absolute offset.
///
/// Bytes that are no longer kept are named in `Roost-Gap`, never left out silently. A gap that opens while a body is
/// under way breaks the body off; ask again from where it ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/services/{service}/logs", tag = "services", params(ServicePath, LogQuery),
    responses(
        (
            status = 200, description = "The bytes", body = RawBytes, content_type = "application/octet-stream",
            headers(
                ("Roost-Offset" = u64, description = "Absolute offset of the first byte of the body"),
                ("Roost-Gap" = String, description = "`from-to`: bytes that were asked for and are gone"),
            ),
        ),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn service_logs(
    api: Visit,
    ApiPath(path): ApiPath<ServicePath>,
    ApiQuery(query): ApiQuery<LogQuery>,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let start = OutputStart { stdout: Some(query.offset), stderr: None, follow: query.follow, lossless: false };
    let LogAttachment { kept_from, stream, guest, busy } = handle.service_log(&path.service, start).await?;
    body_of(&api, Source { stream, guest, kept_from, _busy: busy }, query.offset, query.follow).await
}
