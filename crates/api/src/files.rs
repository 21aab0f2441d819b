//! `/v1/sandboxes/{sandbox}/files`: content, names, owners.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use roost_host::{FileDownload, ReadRange, WriteOptions};
use roost_model::{ErrorBody, FileList, FileStat, MakeFolder, MoveFile, PatchFile};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::body::{RawBytes, Upload};
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery, SandboxPath};
use crate::listing;
use crate::range::{content_range, range_of};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(read_file, write_file, patch_file, remove_file))
        .routes(routes!(list_files))
        .routes(routes!(stat_file))
        .routes(routes!(make_folder))
        .routes(routes!(move_file))
}

/// A path inside.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// The path; a relative one starts at the home of the template's user.
    pub(crate) path: String,
}

/// Which part of a file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    /// The file.
    path: String,
    /// First byte wanted.
    offset: Option<u64>,
    /// At most this many bytes.
    length: Option<u64>,
}

/// Read a file, or a part of it.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, ReadQuery),
    responses(
        (status = 200, description = "Its content", body = RawBytes, content_type = "application/octet-stream"),
        (status = 206, description = "The part that `Range` names", body = RawBytes, content_type = "application/octet-stream"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn read_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let by_header = if query.offset.is_none() && query.length.is_none() { range_of(&headers) } else { None };
    let by_query = ReadRange { offset: query.offset.unwrap_or(0), length: query.length };
    let range = by_header.unwrap_or(by_query);
    let FileDownload { stat, length, known, content } = handle.read_file(&query.path, range).await?.begun().await?;
    let mut response = Response::new(Body::from_stream(content));
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    answer.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(known) = known {
        answer.insert(header::CONTENT_LENGTH, known.into());
    }
    if by_header.is_some() && range.offset < stat.size {
        if let Ok(value) = content_range(range.offset, known.unwrap_or(length), stat.size).parse() {
            answer.insert(header::CONTENT_RANGE, value);
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

/// How to write a file.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    /// The file.
    path: String,
    /// Permission bits, octal.
    mode: Option<String>,
    /// Who owns it; the template's user if absent.
    owner: Option<String>,
    /// Add to its end instead of replacing it.
    #[serde(default)]
    append: bool,
    /// Make missing folders; they are made unless this is `false`.
    #[param(default = true)]
    parents: Option<bool>,
}

/// Write the body to a file; the new content takes the old one's place when all of it has arrived.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, WriteQuery),
    request_body(content = RawBytes, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "The file", body = FileStat),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn write_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<WriteQuery>,
    body: Body,
) -> Result<Json<FileStat>, ApiError> {
    let options = WriteOptions {
        mode: query.mode,
        owner: query.owner,
        append: query.append,
        parents: query.parents.unwrap_or(true),
    };
    let mut upload = Upload::new(body);
    let written = match api.visitor().find(&path.sandbox) {
        Ok(handle) => handle.write_file(&query.path, &options, &mut upload).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(stat) => Ok(Json(stat)),
        Err(error) => Err(upload.refuse(error)),
    }
}

/// Change mode or owner of a path, or make it a symbolic link.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, PathQuery),
    request_body = PatchFile,
    responses(
        (status = 200, description = "The path as it is now", body = FileStat),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn patch_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<PathQuery>,
    ApiJson(patch): ApiJson<PatchFile>,
) -> Result<Json<FileStat>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.patch_file(&query.path, &patch).await?))
}

/// What to remove.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveQuery {
    /// The path.
    path: String,
    /// A folder with everything in it.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, or a folder.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/files", tag = "files", params(SandboxPath, RemoveQuery),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn remove_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<RemoveQuery>,
) -> Result<StatusCode, ApiError> {
    api.living(&path.sandbox)?.remove_file(&query.path, query.recursive).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List the entries of a folder.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/list", tag = "files", params(SandboxPath, PathQuery),
    responses(
        (status = 200, description = "Its entries", body = FileList),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_files(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<PathQuery>,
) -> Result<Response, ApiError> {
    listing::answer(api.living(&path.sandbox)?.list_files(&query.path).await?).await
}

/// Read what a path is; a symbolic link itself, not what it leads to.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/stat", tag = "files", params(SandboxPath, PathQuery),
    responses(
        (status = 200, description = "What it is", body = FileStat),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn stat_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiQuery(query): ApiQuery<PathQuery>,
) -> Result<Json<FileStat>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.stat(&query.path).await?))
}

/// Make a folder.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/mkdir", tag = "files", params(SandboxPath),
    request_body = MakeFolder,
    responses(
        (status = 200, description = "The folder", body = FileStat),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn make_folder(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<MakeFolder>,
) -> Result<Json<FileStat>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.make_folder(&wanted).await?))
}

/// Move a path; a file that is in the way is replaced.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/move", tag = "files", params(SandboxPath),
    request_body = MoveFile,
    responses(
        (status = 200, description = "The path at its new place", body = FileStat),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn move_file(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    ApiJson(wanted): ApiJson<MoveFile>,
) -> Result<Json<FileStat>, ApiError> {
    Ok(Json(api.living(&path.sandbox)?.move_file(&wanted).await?))
}
