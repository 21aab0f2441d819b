//! `…/files/archive`: folders as tar streams, out and in.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use roost_model::ErrorBody;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::body::{RawBytes, Upload};
use crate::errors::ApiError;
use crate::extract::{ApiPath, ApiQuery, SandboxPath};
use crate::files::PathQuery;
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(read_archive, write_archive))
}

/// Read a folder as a tar stream, with names relative to it; a file comes under its own name.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/archive", tag = "files", params(SandboxPath, PathQuery),
    responses(
        (status = 200, description = "A tar stream", body = RawBytes, content_type = "application/x-tar"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn read_archive(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<PathQuery>,
) -> Result<Response, ApiError> {
    let archive = api.living(&path.sandbox)?.archive_out(&query.path).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(archive)).into_response())
}

/// Where to unpack.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UnpackQuery {
    /// The folder; made if missing.
    path: String,
    /// Who owns what is unpacked; the template's user if absent.
    owner: Option<String>,
}

/// Unpack the body, a tar stream, into a folder.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files/archive", tag = "files", params(SandboxPath, UnpackQuery),
    request_body(content = RawBytes, content_type = "application/x-tar"),
    responses(
        (status = 204, description = "Unpacked"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn write_archive(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<UnpackQuery>,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let mut upload = Upload::new(body);
    let unpacked = match api.visitor().find(&path.sandbox) {
        Ok(handle) => handle.archive_in(&query.path, query.owner, &mut upload).await,
        Err(error) => Err(error),
    };
    match unpacked {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(upload.refuse(error)),
    }
}
