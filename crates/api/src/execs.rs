//! `/v1/sandboxes/{sandbox}/execs`: start, list, wait, signal, input.

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use roost_model::{ErrorBody, ExecOutput, ExecView, Page, SignalExec, StartExec, TerminalSize};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::body::RawBytes;
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery, ExecPath, Key, SandboxPath};
use crate::visit::Visit;

/// Input is handed to the guest in pieces of about this size.
const PIECE: usize = 256 * 1024;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(start_exec, list_execs))
        .routes(routes!(get_exec))
        .routes(routes!(signal_exec))
        .routes(routes!(write_stdin))
        .routes(routes!(resize_exec))
}

/// Start a process; with `wait`, wait for its end and return its output.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs", tag = "execs",
    params(
        SandboxPath,
        ("Idempotency-Key" = Option<String>, Header, description = "The same key starts the process once"),
    ),
    request_body = StartExec,
    responses(
        (status = 201, description = "Started", body = ExecView),
        (status = 200, description = "Ended, with `wait`; at most 8 MiB of each stream", body = ExecOutput),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn start_exec(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    Key(key): Key,
    ApiJson(wanted): ApiJson<StartExec>,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    if wanted.wait {
        let output = api.measured("exec_wait", handle.run_exec(wanted, key.as_ref())).await?;
        Ok(Json(output).into_response())
    } else {
        let exec = api.measured("exec_start", handle.start_exec(wanted, key.as_ref())).await?;
        Ok((StatusCode::CREATED, Json(exec)).into_response())
    }
}

/// List the processes the sandbox remembers, oldest first.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs", tag = "execs", params(SandboxPath),
    responses(
        (status = 200, description = "All of them", body = Page<ExecView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_execs(api: Visit, ApiPath(path): ApiPath<SandboxPath>) -> Result<Json<Page<ExecView>>, ApiError> {
    let items = api.living(&path.sandbox)?.execs().await?;
    Ok(Json(Page { items, next_cursor: None }))
}

/// How to read one process.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct GetQuery {
    /// Answer when it has ended.
    #[serde(default)]
    wait: bool,
}

/// Read one process, or wait for its end.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}", tag = "execs", params(ExecPath, GetQuery),
    responses(
        (status = 200, description = "The process", body = ExecView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_exec(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiQuery(query): ApiQuery<GetQuery>,
) -> Result<Json<ExecView>, ApiError> {
    let handle = api.living(&path.sandbox)?;
    Ok(Json(handle.exec(&path.exec_id()?, query.wait).await?))
}

/// Send a signal to a process and its group.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/signal", tag = "execs", params(ExecPath),
    request_body = SignalExec,
    responses(
        (status = 204, description = "Sent"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn signal_exec(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiJson(signal): ApiJson<SignalExec>,
) -> Result<StatusCode, ApiError> {
    let handle = api.living(&path.sandbox)?;
    handle.signal_exec(&path.exec_id()?, &signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What becomes of the input after the body.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StdinQuery {
    /// Close it.
    #[serde(default)]
    close: bool,
}

/// Write the body to a process's standard input; answers when the process's pipe has taken it.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/stdin", tag = "execs", params(ExecPath, StdinQuery),
    request_body(content = RawBytes, content_type = "application/octet-stream"),
    responses(
        (status = 204, description = "Written"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn write_stdin(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiQuery(query): ApiQuery<StdinQuery>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let exec = path.exec_id()?;
    let mut pieces = body.into_data_stream();
    let mut waiting = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
        waiting.extend_from_slice(&piece);
        if waiting.len() >= PIECE
            && let Err(error) = handle.write_stdin(&exec, waiting.split().freeze(), false).await
        {
            return Err(error.into());
        }
    }
    let rest: Bytes = waiting.freeze();
    handle.write_stdin(&exec, rest, query.close).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change the size of a process's terminal.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/execs/{exec}/resize", tag = "execs", params(ExecPath),
    request_body = TerminalSize,
    responses(
        (status = 204, description = "Changed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn resize_exec(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiJson(size): ApiJson<TerminalSize>,
) -> Result<StatusCode, ApiError> {
    let handle = api.living(&path.sandbox)?;
    handle.resize_exec(&path.exec_id()?, size).await?;
    Ok(StatusCode::NO_CONTENT)
}
