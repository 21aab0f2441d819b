//! `/v1/templates`: list, read, remove, and make with progress as lines of JSON.

use std::convert::Infallible;
use std::io::Read;

use axum::Json;
use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, stream};
use roost_host::{BuildProgress, HostError};
use roost_model::{
    Capability, EngineChoice, ErrorBody, ErrorDetail, ImportTemplate, Page, PatchTemplate, Tag, TagError,
    TemplateDefaults, TemplateRef, TemplateView,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::io::{StreamReader, SyncIoBridge};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::body::{RawBytes, detach};
use crate::errors::ApiError;
use crate::extract::{ApiJson, ApiPath, ApiQuery};
use crate::visit::Visit;

/// What those cannot who are limited.
const CHANGE: &str = "change templates";
/// Signs of life that may wait; more are left out.
const SIGNS: usize = 64;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_templates, make_template))
        .routes(routes!(get_template, upload_template, patch_template, delete_template))
        .routes(routes!(tag_template))
}

/// List templates.
#[utoipa::path(
    get, path = "/v1/templates", tag = "templates",
    responses(
        (status = 200, description = "All of them", body = Page<TemplateView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_templates(api: Visit) -> Result<Json<Page<TemplateView>>, ApiError> {
    Ok(Json(Page { items: api.visitor().templates()?, next_cursor: None }))
}

/// A path of one template.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TemplatePath {
    /// Its name, or `name:tag` for one of its versions.
    template: String,
}

/// Read one template.
#[utoipa::path(
    get, path = "/v1/templates/{template}", tag = "templates", params(TemplatePath),
    responses(
        (status = 200, description = "The template", body = TemplateView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_template(api: Visit, ApiPath(path): ApiPath<TemplatePath>) -> Result<Json<TemplateView>, ApiError> {
    Ok(Json(api.visitor().template(&path.template)?))
}

/// Change what a version of a template gives sandboxes that are made from now on.
#[utoipa::path(
    patch, path = "/v1/templates/{template}", tag = "templates", params(TemplatePath), request_body = PatchTemplate,
    responses(
        (status = 200, description = "The template as it is now", body = TemplateView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn patch_template(
    api: Visit,
    ApiPath(path): ApiPath<TemplatePath>,
    ApiJson(patch): ApiJson<PatchTemplate>,
) -> Result<Json<TemplateView>, ApiError> {
    Ok(Json(api.host(CHANGE)?.patch_template(&path.template, patch).await?))
}

/// Remove a template with all its tags, or one tag of it; sandboxes made from it go on.
#[utoipa::path(
    delete, path = "/v1/templates/{template}", tag = "templates", params(TemplatePath),
    responses(
        (status = 204, description = "Removed"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_template(api: Visit, ApiPath(path): ApiPath<TemplatePath>) -> Result<StatusCode, ApiError> {
    api.host(CHANGE)?.remove_template(&path.template).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A path of a version of a template and a tag.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct TagPath {
    /// Its name, or `name:tag` for one of its versions.
    template: String,
    /// The tag.
    tag: String,
}

/// Let a tag mean this version of a template from now on; `default` is the version that is meant without a tag.
#[utoipa::path(
    put, path = "/v1/templates/{template}/tags/{tag}", tag = "templates", params(TagPath),
    responses(
        (status = 200, description = "The template that the tag means", body = TemplateView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn tag_template(api: Visit, ApiPath(path): ApiPath<TagPath>) -> Result<Json<TemplateView>, ApiError> {
    let version: TemplateRef = path.template.parse().map_err(HostError::from)?;
    let tag: Tag = path.tag.parse().map_err(|error: TagError| HostError::BadRequest(error.to_string()))?;
    api.host(CHANGE)?.tag_template(&version, vec![tag.clone()]).await?;
    let tagged = TemplateRef { name: version.name, tag: Some(tag) };
    Ok(Json(api.visitor().template(&tagged.to_string())?))
}

/// A line of the answer while a template is made; the last one is `done` or `error`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum MakingLine {
    /// It goes on.
    Progress {
        /// What is being done.
        message: String,
    },
    /// It is there.
    Done {
        /// The template.
        template: Box<TemplateView>,
    },
    /// It failed.
    Error {
        /// Why.
        error: ErrorDetail,
    },
}

/// Make a template by a recipe of the daemon's, from a folder or archive on its host, or of a checkpoint.
///
/// `path` is for the owner of the daemon's socket. All others name paths below `template_folders` of its configuration.
/// What is refused before the work begins is answered with its status. The work goes on if the client leaves.
#[utoipa::path(
    post, path = "/v1/templates", tag = "templates", request_body = ImportTemplate,
    responses(
        (status = 200, description = "Lines of JSON", body = MakingLine, content_type = "application/x-ndjson"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn make_template(api: Visit, ApiJson(wanted): ApiJson<ImportTemplate>) -> Result<Response, ApiError> {
    let (progress, signs) = mpsc::channel(SIGNS);
    let visitor = api.visitor().clone();
    let work = tokio::spawn(async move { visitor.make_template(wanted, progress).await });
    answer(signs, work).await
}

/// How to take an archive in.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UploadQuery {
    /// Put it in the place of a template of that name.
    #[serde(default)]
    replace: bool,
    /// Who commands run as.
    user: Option<String>,
    /// Where they start.
    workdir: Option<String>,
    /// What isolates its sandboxes unless they ask for another: `native`, `gvisor` or `auto`.
    #[param(value_type = Option<String>)]
    engine: Option<EngineChoice>,
    /// Capabilities that root in them gets beyond the usual ones unless they ask for others, with commas between them:
    /// `net-admin`, `net-raw`, or `none`.
    capabilities: Option<String>,
}

/// Make a template of the body, a tar stream, which may be compressed with gzip.
#[utoipa::path(
    put, path = "/v1/templates/{template}", tag = "templates", params(TemplatePath, UploadQuery),
    request_body(content = RawBytes, content_type = "application/x-tar"),
    responses(
        (status = 200, description = "Lines of JSON", body = MakingLine, content_type = "application/x-ndjson"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn upload_template(
    api: Visit,
    ApiPath(path): ApiPath<TemplatePath>,
    ApiQuery(query): ApiQuery<UploadQuery>,
    body: Body,
) -> Result<Response, ApiError> {
    let UploadQuery { replace, user, workdir, engine, capabilities } = query;
    let capabilities = capabilities.as_deref().map(Capability::parse_set).transpose().map_err(ApiError::bad_request)?;
    let defaults = TemplateDefaults { user, workdir, engine, capabilities, ..TemplateDefaults::default() };
    let wanted = ImportTemplate { name: path.template, replace, defaults, ..ImportTemplate::default() };
    let (progress, signs) = mpsc::channel(SIGNS);
    let host = api.host(CHANGE)?.clone();
    let archive: Box<dyn Read + Send> = Box::new(SyncIoBridge::new(StreamReader::new(detach(body))));
    let work = tokio::spawn(async move { host.import_archive(wanted, archive, progress).await });
    answer(signs, work).await
}

type Work = JoinHandle<Result<TemplateView, HostError>>;

/// Waits for the first sign of life, or the refusal, and streams the rest.
async fn answer(mut signs: mpsc::Receiver<BuildProgress>, mut work: Work) -> Result<Response, ApiError> {
    let first = tokio::select! {
        biased;
        Some(sign) = signs.recv() => MakingLine::Progress { message: sign.message },
        ended = &mut work => {
            let template = outcome(ended)?;
            let lines = stream::iter([line(&MakingLine::Done { template: Box::new(template) })]);
            return Ok(ndjson(lines));
        }
    };
    Ok(ndjson(lines(first, signs, work)))
}

fn outcome(ended: Result<Result<TemplateView, HostError>, tokio::task::JoinError>) -> Result<TemplateView, ApiError> {
    match ended {
        Ok(made) => Ok(made?),
        Err(error) => Err(HostError::Internal(format!("the work broke off: {error}")).into()),
    }
}

fn ndjson(lines: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

fn line(line: &MakingLine) -> Result<Bytes, Infallible> {
    // Plain data with text keys always has a JSON form.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    Ok(text.into())
}

enum Telling {
    First(MakingLine, mpsc::Receiver<BuildProgress>, Work),
    Signs(mpsc::Receiver<BuildProgress>, Work),
    Told,
}

fn lines(
    first: MakingLine,
    signs: mpsc::Receiver<BuildProgress>,
    work: Work,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    stream::unfold(Telling::First(first, signs, work), |telling| async move {
        match telling {
            Telling::First(first, signs, work) => Some((line(&first), Telling::Signs(signs, work))),
            Telling::Signs(mut signs, work) => match signs.recv().await {
                Some(sign) => {
                    Some((line(&MakingLine::Progress { message: sign.message }), Telling::Signs(signs, work)))
                }
                None => {
                    let last = match outcome(work.await) {
                        Ok(template) => MakingLine::Done { template: Box::new(template) },
                        Err(refusal) => MakingLine::Error { error: refusal.detail().clone() },
                    };
                    Some((line(&last), Telling::Told))
                }
            },
            Telling::Told => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use roost_model::ErrorCode;

    use super::*;

    async fn told(
        signs: &[&str],
        outcome: Result<TemplateView, HostError>,
    ) -> Result<Vec<serde_json::Value>, ApiError> {
        let (sender, receiver) = mpsc::channel(8);
        for message in signs {
            sender.send(BuildProgress { message: (*message).to_owned() }).await.unwrap();
        }
        let work = tokio::spawn(async move {
            drop(sender);
            outcome
        });
        let body = answer(receiver, work).await?.into_body();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(|line| serde_json::from_slice(line).unwrap()).collect())
    }

    fn failure() -> HostError {
        HostError::Template { code: ErrorCode::TemplateInvalid, message: "not a tar".to_owned() }
    }

    #[tokio::test]
    async fn what_fails_before_it_begins_has_its_status() {
        assert_eq!(told(&[], Err(failure())).await.unwrap_err().status(), 400);
    }

    #[tokio::test]
    async fn what_fails_under_way_is_the_last_line() {
        let lines = told(&["copying", "packing"], Err(failure())).await.unwrap();
        let types: Vec<_> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
        assert_eq!(types, ["progress", "progress", "error"]);
        assert_eq!(lines[2]["error"]["code"], "template_invalid");
    }
}
