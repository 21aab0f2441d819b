//! `…/why` and `…/usage`: what keeps a sandbox awake, and what it has cost.

use axum::Json;
use roost_model::{ErrorBody, UsageReport, UsageView, WhyView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(sandbox_why)).routes(routes!(sandbox_usage)).routes(routes!(usage))
}

/// Read what keeps a sandbox awake or why it sleeps, what comes next, and its last sleeps and wakes; does not wake it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/why", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "The verdict and the ledger", body = WhyView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn sandbox_why(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<WhyView>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.why().await?))
}

/// Read how long a sandbox was awake and asleep, and the disk that is its own; does not wake it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/usage", tag = "sandboxes", params(SandboxPath),
    responses(
        (status = 200, description = "Times, counts and bytes", body = UsageView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn sandbox_usage(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<UsageView>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.usage().await?))
}

/// Read what every living sandbox has cost, and all of them together.
#[utoipa::path(
    get, path = "/v1/usage", tag = "sandboxes",
    responses(
        (status = 200, description = "Each and all", body = UsageReport),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn usage(api: Visit) -> Result<Json<UsageReport>, ApiError> {
    Ok(Json(api.visitor().usage().await?))
}
