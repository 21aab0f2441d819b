//! `…/alarms`: times at which a sandbox is woken.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{Alarm, ErrorBody, Page, PutAlarm};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(create_alarm, list_alarms)).routes(routes!(put_alarm, get_alarm, delete_alarm))
}

/// A path of one alarm of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct AlarmPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The alarm's name.
    alarm: String,
}

/// Have a sandbox woken at a time, once or again and again, by an alarm with a made-up name.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/alarms", tag = "leases", params(SandboxPath), request_body = PutAlarm,
    responses(
        (status = 201, description = "Set", body = Alarm),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn create_alarm(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<PutAlarm>,
) -> Result<(StatusCode, Json<Alarm>), ApiError> {
    let (alarm, _) = api.living(&path.sandbox)?.put_alarm(None, wanted).await?;
    Ok((StatusCode::CREATED, Json(alarm)))
}

/// List what wakes a sandbox, the next job of crontabs inside included while it sleeps.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/alarms", tag = "leases", params(SandboxPath),
    responses(
        (status = 200, description = "All of them", body = Page<Alarm>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_alarms(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Page<Alarm>>, ApiError> {
    Ok(Json(Page { items: api.living(&path.sandbox)?.alarms(), next_cursor: None }))
}

/// Have a sandbox woken at a time, once or again and again; an alarm of the same name is replaced.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/alarms/{alarm}", tag = "leases", params(AlarmPath), request_body = PutAlarm,
    responses(
        (status = 200, description = "Replaced", body = Alarm),
        (status = 201, description = "Set", body = Alarm),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn put_alarm(
    api: Visit,
    ApiPath(path): ApiPath<AlarmPath>,
    ApiJson(wanted): ApiJson<PutAlarm>,
) -> Result<(StatusCode, Json<Alarm>), ApiError> {
    let (alarm, new) = api.living(&path.sandbox)?.put_alarm(Some(&path.alarm), wanted).await?;
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, Json(alarm)))
}

/// Read one alarm.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/alarms/{alarm}", tag = "leases", params(AlarmPath),
    responses(
        (status = 200, description = "The alarm", body = Alarm),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_alarm(api: Visit, ApiPath(path): ApiPath<AlarmPath>) -> Result<Json<Alarm>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.alarm(&path.alarm)?))
}

/// Remove an alarm.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/alarms/{alarm}", tag = "leases", params(AlarmPath),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_alarm(api: Visit, ApiPath(path): ApiPath<AlarmPath>) -> Result<StatusCode, ApiError> {
    api.living(&path.sandbox)?.delete_alarm(&path.alarm).await?;
    Ok(StatusCode::NO_CONTENT)
}
