//! `…/fork`: new sandboxes from a moment of another.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{ErrorBody, Fork, ForkResult};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(fork_sandbox))
}

/// Make new sandboxes that start from a moment of this one, with its files, memory and processes.
///
/// The answer has one entry for each, in the order of the names: the sandbox with its receipt, or the error that kept
/// it from being made. If none could be made, the request is refused with the first one's error.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/fork", tag = "checkpoints", params(SandboxPath), request_body = Fork,
    responses(
        (status = 201, description = "At least one was made", body = Vec<ForkResult>),
        (status = "default", description = "Refused; the sandbox goes on", body = ErrorBody),
    )
)]
async fn fork_sandbox(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<Fork>,
) -> Result<(StatusCode, Json<Vec<ForkResult>>), ApiError> {
    let handle = api.living(&path.sandbox)?;
    let visitor = api.visitor().clone();
    let work = to_the_end(async move { visitor.fork(&handle, wanted).await });
    let forks = some_made(api.measured("fork", work).await?)?;
    Ok((StatusCode::CREATED, Json(forks)))
}

/// The results, unless every one of them is an error.
fn some_made(forks: Vec<ForkResult>) -> Result<Vec<ForkResult>, ApiError> {
    if forks.iter().any(|fork| fork.error.is_none()) {
        return Ok(forks);
    }
    match forks.iter().find_map(|fork| fork.error.clone()) {
        Some(error) => Err(error.into()),
        None => Ok(forks),
    }
}

#[cfg(test)]
mod tests {
    use roost_model::{ErrorCode, ErrorDetail};

    use super::*;

    fn failed(code: ErrorCode) -> ForkResult {
        let error = ErrorDetail { code, message: code.to_string(), hint: None };
        ForkResult { sandbox: None, receipt: None, error: Some(error) }
    }

    #[test]
    fn only_total_failure_is_a_refusal() {
        let made = ForkResult { sandbox: None, receipt: None, error: None };
        let some = vec![failed(ErrorCode::NameTaken), made];
        assert_eq!(some_made(some.clone()).unwrap(), some);
        let refusal = some_made(vec![failed(ErrorCode::HostFull), failed(ErrorCode::NameTaken)]).unwrap_err();
        assert_eq!((refusal.status(), refusal.detail().code), (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::HostFull));
    }
}
