//! `/v1/pools`: sandboxes made ahead of time.

use axum::Json;
use roost_model::{ErrorBody, Page, PoolView, SetPool};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_pools)).routes(routes!(get_pool, set_pool))
}

/// A path of one pool.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct PoolPath {
    /// The template's name.
    template: String,
}

/// Which of a template's pools.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PoolQuery {
    /// What isolates its sandboxes; the daemon's default if absent.
    engine: Option<String>,
}

/// List pools.
#[utoipa::path(
    get, path = "/v1/pools", tag = "pools",
    responses(
        (status = 200, description = "All of them", body = Page<PoolView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_pools(api: Visit) -> Result<Json<Page<PoolView>>, ApiError> {
    Ok(Json(Page { items: api.host("see pools")?.pools(), next_cursor: None }))
}

/// Read the pool of a template; one that was never set may hold nothing.
#[utoipa::path(
    get, path = "/v1/pools/{template}", tag = "pools", params(PoolPath, PoolQuery),
    responses(
        (status = 200, description = "The pool", body = PoolView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_pool(
    api: Visit,
    ApiPath(path): ApiPath<PoolPath>,
    ApiQuery(query): ApiQuery<PoolQuery>,
) -> Result<Json<PoolView>, ApiError> {
    Ok(Json(api.host("see pools")?.pool(&path.template, query.engine.as_deref()).await?))
}

/// Say how many sandboxes of a template may wait; it fills in the background.
#[utoipa::path(
    put, path = "/v1/pools/{template}", tag = "pools", params(PoolPath), request_body = SetPool,
    responses(
        (status = 200, description = "The pool as it is now", body = PoolView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn set_pool(
    api: Visit,
    ApiPath(path): ApiPath<PoolPath>,
    ApiJson(wanted): ApiJson<SetPool>,
) -> Result<Json<PoolView>, ApiError> {
    Ok(Json(api.host("change pools")?.set_pool(&path.template, wanted).await?))
}
