//! The daemon itself: health, what it is, doctor, tokens, metrics.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use roost_host::HostError;
use roost_model::{DoctorReport, Doctoring, ErrorBody, MintToken, NewToken, Page, SshView, TokenView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery};
use crate::visit::Visit;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(info))
        .routes(routes!(doctor))
        .routes(routes!(mint_token, list_tokens))
        .routes(routes!(delete_token))
        .routes(routes!(metrics))
}

/// Routes that need no token.
pub(crate) fn open_routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(document))
}

/// That the daemon answers.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// Always `ok`.
    status: &'static str,
    /// The daemon's version.
    version: &'static str,
}

/// Ask whether the daemon answers; needs no token.
#[utoipa::path(
    get, path = "/healthz", tag = "daemon", security(()),
    responses((status = 200, description = "It does", body = Health))
)]
async fn health() -> Json<Health> {
    Json(Health { status: "ok", version: VERSION })
}

/// Read this document; needs no token.
#[utoipa::path(
    get, path = "/openapi.json", tag = "daemon", security(()),
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value))
)]
async fn document() -> Response {
    let text = crate::router::document().to_owned();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// What the daemon is.
#[derive(Debug, Serialize, ToSchema)]
struct DaemonInfo {
    /// Its version.
    version: &'static str,
    /// Its data folder.
    data_dir: String,
    /// The tag that tells it from other daemons on the host.
    instance: String,
    /// How many sandboxes live.
    sandboxes: u64,
    /// Where it is reached over SSH, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    ssh: Option<SshView>,
}

/// Read what the daemon is.
#[utoipa::path(
    get, path = "/v1/info", tag = "daemon",
    responses(
        (status = 200, description = "Version, folder and tag", body = DaemonInfo),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn info(api: Visit) -> Result<Json<DaemonInfo>, ApiError> {
    let host = api.host("see the daemon")?;
    let config = host.config();
    Ok(Json(DaemonInfo {
        version: VERSION,
        data_dir: config.data_dir.display().to_string(),
        instance: config.instance.clone(),
        sandboxes: host.count() as u64,
        ssh: config.ssh.clone(),
    }))
}

/// How thorough the doctor is.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DoctorQuery {
    /// Run a sandbox on every engine that seems fit.
    #[serde(default)]
    prove: bool,
    /// The same, and measure how long starts and wakes take, for some seconds; the figures are kept.
    #[serde(default)]
    measure: bool,
}

impl DoctorQuery {
    fn how(&self) -> Doctoring {
        match self {
            Self { measure: true, .. } => Doctoring::Measure,
            Self { prove: true, .. } => Doctoring::Prove,
            Self { .. } => Doctoring::Look,
        }
    }
}

/// Look at what this host can do, and prove it if asked.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "daemon", params(DoctorQuery),
    responses(
        (status = 200, description = "What was found", body = DoctorReport),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn doctor(api: Visit, ApiQuery(query): ApiQuery<DoctorQuery>) -> Result<Json<DoctorReport>, ApiError> {
    let host = api.host("see the host")?.clone();
    Ok(Json(to_the_end(async move { Ok(host.doctor(query.how()).await) }).await?))
}

/// Make an access token; its secret is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens", request_body = MintToken,
    responses(
        (status = 201, description = "Made", body = NewToken),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn mint_token(api: Visit, ApiJson(wanted): ApiJson<MintToken>) -> Result<(StatusCode, Json<NewToken>), ApiError> {
    Ok((StatusCode::CREATED, Json(api.host("make tokens")?.mint_token(wanted).await?)))
}

/// List access tokens, without their secrets.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens",
    responses(
        (status = 200, description = "All of them", body = Page<TokenView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_tokens(api: Visit) -> Result<Json<Page<TokenView>>, ApiError> {
    Ok(Json(Page { items: api.host("see tokens")?.tokens().await?, next_cursor: None }))
}

/// A path of one token.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TokenPath {
    /// Its id.
    token: String,
}

/// Make an access token worthless.
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "tokens", params(TokenPath),
    responses(
        (status = 204, description = "Done"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_token(api: Visit, ApiPath(path): ApiPath<TokenPath>) -> Result<StatusCode, ApiError> {
    api.host("remove tokens")?.delete_token(&path.token).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read metrics in the text format of Prometheus.
#[utoipa::path(
    get, path = "/metrics", tag = "daemon",
    responses(
        (status = 200, description = "Metrics", body = String, content_type = "application/openmetrics-text"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn metrics(api: Visit) -> Result<Response, ApiError> {
    let text = api.metrics().render(api.host("see metrics")?);
    let text = text.map_err(|error| HostError::Internal(format!("failed to write metrics: {error}")))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}
