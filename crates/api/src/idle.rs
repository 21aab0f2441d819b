//! `…/why` and `…/usage`: what keeps a sandbox awake, what it has cost, and when.

use axum::Json;
use roost_model::{ErrorBody, Span, UsageHistory, UsageReport, UsageView, WhyView};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiPath, ApiQuery, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(sandbox_why))
        .routes(routes!(sandbox_usage))
        .routes(routes!(usage_history))
        .routes(routes!(usage))
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

/// How far back a history goes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// For how long from now back, at most `7d`; `2h` if absent. The longer, the longer are the steps.
    #[serde(default = "two_hours")]
    #[param(value_type = Option<String>)]
    over: Span,
}

fn two_hours() -> Span {
    Span::seconds(2 * 3600)
}

/// Read what a sandbox has used over time, since the daemon started; does not wake it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/usage/history", tag = "sandboxes", params(SandboxPath, HistoryQuery),
    responses(
        (status = 200, description = "CPU time, memory and time awake, step by step", body = UsageHistory),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn usage_history(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<HistoryQuery>,
) -> Result<Json<UsageHistory>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.usage_history(query.over).await?))
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
