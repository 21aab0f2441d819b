//! `…/checkpoints` and `…/restore`: keep moments of a sandbox, compare them, go back to them.

use axum::Json;
use axum::http::StatusCode;
use roost_model::{
    CheckpointDiff, CheckpointView, CreateCheckpoint, ErrorBody, ErrorCode, Page, Receipt, Restore, SandboxId,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, SandboxPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_checkpoint, list_checkpoints))
        .routes(routes!(get_checkpoint_of, delete_checkpoint))
        .routes(routes!(diff_checkpoints))
        .routes(routes!(restore_sandbox))
        .routes(routes!(get_checkpoint))
}

/// A checkpoint that has just been made.
#[derive(Debug, Serialize, ToSchema)]
struct NewCheckpoint {
    /// The checkpoint.
    checkpoint: CheckpointView,
    /// What it kept and what it took.
    receipt: Receipt,
}

/// Keep the moment a sandbox is in; it goes on, and the receipt says how long it stood still.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/checkpoints", tag = "checkpoints", params(SandboxPath),
    request_body = CreateCheckpoint,
    responses(
        (status = 201, description = "Made", body = NewCheckpoint),
        (status = "default", description = "Refused; the sandbox goes on", body = ErrorBody),
    )
)]
async fn create_checkpoint(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<CreateCheckpoint>,
) -> Result<(StatusCode, Json<NewCheckpoint>), ApiError> {
    let handle = api.living(&path.sandbox)?;
    let work = to_the_end(async move { handle.checkpoint(wanted).await });
    let (checkpoint, receipt) = api.measured("checkpoint", work).await?;
    Ok((StatusCode::CREATED, Json(NewCheckpoint { checkpoint, receipt })))
}

/// List the checkpoints of a sandbox, oldest first, also of one that is gone.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/checkpoints", tag = "checkpoints", params(SandboxPath),
    responses(
        (status = 200, description = "All of them", body = Page<CheckpointView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_checkpoints(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
) -> Result<Json<Page<CheckpointView>>, ApiError> {
    let items = api.visitor().checkpoints_of(&path.sandbox).await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// A path of one checkpoint of a sandbox.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct CheckpointOfPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The checkpoint's id, or its beginning.
    checkpoint: String,
}

/// Read one checkpoint of a sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/checkpoints/{checkpoint}", tag = "checkpoints", params(CheckpointOfPath),
    responses(
        (status = 200, description = "The checkpoint", body = CheckpointView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_checkpoint_of(
    api: Visit,
    ApiPath(path): ApiPath<CheckpointOfPath>,
) -> Result<Json<CheckpointView>, ApiError> {
    Ok(Json(checkpoint_of(&api, &path.sandbox, &path.checkpoint)?))
}

/// Remove a checkpoint; nothing that started from it is harmed.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/checkpoints/{checkpoint}", tag = "checkpoints", params(CheckpointOfPath),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_checkpoint(api: Visit, ApiPath(path): ApiPath<CheckpointOfPath>) -> Result<StatusCode, ApiError> {
    let id = checkpoint_of(&api, &path.sandbox, &path.checkpoint)?.id;
    let visitor = api.visitor().clone();
    let work = to_the_end(async move { visitor.delete_checkpoint(id.as_str()).await });
    api.measured("delete_checkpoint", work).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A path of two checkpoints.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct DiffPath {
    /// The sandbox's name, its id, or the beginning of its id.
    sandbox: String,
    /// The id of the checkpoint taken as the earlier, or its beginning.
    from: String,
    /// The id of the checkpoint taken as the later, or its beginning; it may be of another sandbox, such as a fork.
    to: String,
}

/// Compare two checkpoints: files added, changed and removed, processes started and ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/checkpoints/{from}/diff/{to}", tag = "checkpoints", params(DiffPath),
    responses(
        (status = 200, description = "What changed", body = CheckpointDiff),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn diff_checkpoints(api: Visit, ApiPath(path): ApiPath<DiffPath>) -> Result<Json<CheckpointDiff>, ApiError> {
    let from = checkpoint_of(&api, &path.sandbox, &path.from)?.id;
    Ok(Json(api.visitor().diff_checkpoints(from.as_str(), &path.to).await?))
}

/// Take a sandbox back to a checkpoint; what that replaces is kept as an automatic checkpoint first.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/restore", tag = "checkpoints", params(SandboxPath), request_body = Restore,
    responses(
        (status = 200, description = "What was kept and what it took", body = Receipt),
        (status = "default", description = "Refused; the sandbox goes on as it was", body = ErrorBody),
    )
)]
async fn restore_sandbox(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<Restore>,
) -> Result<Json<Receipt>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let work = to_the_end(async move { handle.restore(wanted).await });
    Ok(Json(api.measured("restore", work).await?))
}

/// A path of one checkpoint, whichever sandbox it is of.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct CheckpointPath {
    /// The checkpoint's id, or its beginning.
    checkpoint: String,
}

/// Read one checkpoint, whichever sandbox it is of.
#[utoipa::path(
    get, path = "/v1/checkpoints/{checkpoint}", tag = "checkpoints", params(CheckpointPath),
    responses(
        (status = 200, description = "The checkpoint", body = CheckpointView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_checkpoint(api: Visit, ApiPath(path): ApiPath<CheckpointPath>) -> Result<Json<CheckpointView>, ApiError> {
    Ok(Json(api.visitor().checkpoint(&path.checkpoint)?))
}

/// The checkpoint, if it is of that sandbox, which may be gone.
fn checkpoint_of(api: &Visit, sandbox: &str, checkpoint: &str) -> Result<CheckpointView, ApiError> {
    let owner = api.visitor().id_of(sandbox)?;
    of_owner(api.visitor().checkpoint(checkpoint)?, &owner, sandbox)
}

fn of_owner(found: CheckpointView, owner: &SandboxId, sandbox: &str) -> Result<CheckpointView, ApiError> {
    if found.sandbox == *owner {
        return Ok(found);
    }
    let message = format!("checkpoint `{}` is not of sandbox `{sandbox}`", found.id);
    Err(ApiError::new(ErrorCode::CheckpointNotFound, message).with_hint(format!("it is of `{}`", found.sandbox_name)))
}

#[cfg(test)]
mod tests {
    use roost_model::{CheckpointBytes, CheckpointId};

    use super::*;

    #[test]
    fn a_checkpoint_of_another_sandbox_is_not_found() {
        let (owner, other) = (SandboxId::from_parts(1, 1), SandboxId::from_parts(2, 2));
        let found = CheckpointView {
            id: CheckpointId::from_parts(3, 3),
            sandbox: owner.clone(),
            sandbox_name: "web".parse().unwrap(),
            created_at: "2027-01-15T08:00:00Z".parse().unwrap(),
            comment: None,
            automatic: false,
            from: roost_model::Origin::Outside,
            memory: true,
            parent: None,
            bytes: CheckpointBytes::default(),
            generation: 1,
            template: "base".to_owned(),
            processes: Vec::new(),
            not_kept: Vec::new(),
        };
        assert_eq!(of_owner(found.clone(), &owner, "web").unwrap(), found);
        let refusal = of_owner(found, &other, "db").unwrap_err();
        assert_eq!((refusal.status(), refusal.detail().code), (StatusCode::NOT_FOUND, ErrorCode::CheckpointNotFound));
        assert_eq!(refusal.detail().hint.as_deref(), Some("it is of `web`"));
    }
}
