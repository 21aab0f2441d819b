//! `/v1/sandboxes/{sandbox}/processes`: everything that runs inside, whoever started it.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{ErrorBody, ProcessList, SignalExec};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_processes)).routes(routes!(signal_process))
}

/// List everything that runs inside; neither wakes the sandbox nor keeps it awake.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/processes", tag = "processes", params(SandboxPath),
    responses(
        (status = 200, description = "All processes; none, with its state, of a sandbox that sleeps", body = ProcessList),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_processes(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<ProcessList>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.processes().await?))
}

/// A path below one process.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ProcessPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The pid inside.
    pid: u32,
}

/// Send a signal to one process; wakes a sandbox that sleeps with its processes.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/processes/{pid}/signal", tag = "processes", params(ProcessPath),
    request_body = SignalExec,
    responses(
        (status = 204, description = "Sent"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn signal_process(
    api: Visit,
    ApiPath(path): ApiPath<ProcessPath>,
    ApiJson(signal): ApiJson<SignalExec>,
) -> Result<StatusCode, ApiError> {
    api.living(&path.sandbox)?.signal_process(path.pid, &signal).await?;
    Ok(StatusCode::NO_CONTENT)
}
