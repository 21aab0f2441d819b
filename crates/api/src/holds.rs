//! `…/holds`: leases that keep a sandbox awake.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{ErrorBody, Hold, Page, PutHold};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(create_hold, list_holds)).routes(routes!(put_hold, get_hold, release_hold))
}

/// A path of one hold of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct HoldPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The hold's name.
    hold: String,
}

/// Keep a sandbox awake for a while, by a hold with a made-up name; one that sleeps is not woken.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/holds", tag = "leases", params(SandboxPath), request_body = PutHold,
    responses(
        (status = 201, description = "Taken", body = Hold),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn create_hold(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<PutHold>,
) -> Result<(StatusCode, Json<Hold>), ApiError> {
    let (hold, _) = api.living(&path.sandbox)?.put_hold(None, wanted).await?;
    Ok((StatusCode::CREATED, Json(hold)))
}

/// List what keeps a sandbox awake; what has ended is not shown.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/holds", tag = "leases", params(SandboxPath),
    responses(
        (status = 200, description = "All of them", body = Page<Hold>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_holds(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Page<Hold>>, ApiError> {
    Ok(Json(Page { items: api.living(&path.sandbox)?.holds(), next_cursor: None }))
}

/// Keep a sandbox awake for a while, or longer: a hold of the same name is renewed.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/holds/{hold}", tag = "leases", params(HoldPath), request_body = PutHold,
    responses(
        (status = 200, description = "Renewed", body = Hold),
        (status = 201, description = "Taken", body = Hold),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn put_hold(
    api: Visit,
    ApiPath(path): ApiPath<HoldPath>,
    ApiJson(wanted): ApiJson<PutHold>,
) -> Result<(StatusCode, Json<Hold>), ApiError> {
    let (hold, new) = api.living(&path.sandbox)?.put_hold(Some(&path.hold), wanted).await?;
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, Json(hold)))
}

/// Read one hold.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/holds/{hold}", tag = "leases", params(HoldPath),
    responses(
        (status = 200, description = "The hold", body = Hold),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_hold(api: Visit, ApiPath(path): ApiPath<HoldPath>) -> Result<Json<Hold>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.hold(&path.hold)?))
}

/// Release a hold before it ends by itself.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/holds/{hold}", tag = "leases", params(HoldPath),
    responses(
        (status = 204, description = "Released"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn release_hold(api: Visit, ApiPath(path): ApiPath<HoldPath>) -> Result<StatusCode, ApiError> {
    api.living(&path.sandbox)?.release_hold(&path.hold).await?;
    Ok(StatusCode::NO_CONTENT)
}
