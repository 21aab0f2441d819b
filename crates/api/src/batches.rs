//! `/v1/batches`: many commands, each in a sandbox of its own.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use roost_host::{BatchReader, HostError};
use roost_model::{BatchView, CreateBatch, ErrorBody, Page, TaskResult};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::api::to_the_end;
use crate::body::read_limited;
use crate::errors::ApiError;
use crate::extract::{ApiPath, ApiQuery, Key, parse_json};
use crate::visit::Visit;

/// What those cannot who are limited.
const BATCHES: &str = "use batches";
/// Most bytes of a batch: many tasks with small files.
const BATCH_LIMIT: usize = 64 << 20;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_batch, list_batches))
        .routes(routes!(get_batch, delete_batch))
        .routes(routes!(cancel_batch))
        .routes(routes!(resume_batch))
        .routes(routes!(batch_results))
}

/// A path of one batch.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct BatchPath {
    /// Its id.
    batch: String,
}

/// Run many commands, each in a sandbox of its own that is gone afterwards.
///
/// The daemon runs them whether or not anybody waits, and goes on after a restart. The same `Idempotency-Key` makes one
/// batch, however often it is sent. At most 64 MiB.
#[utoipa::path(
    post, path = "/v1/batches", tag = "batches", request_body = CreateBatch,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes the batch once")),
    responses(
        (status = 201, description = "Started", body = BatchView),
        (status = 200, description = "The same request had made it before", body = BatchView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn create_batch(
    api: Visit,
    Key(key): Key,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<BatchView>), ApiError> {
    let wanted: CreateBatch = parse_json(&read_limited(&headers, body, BATCH_LIMIT).await?)?;
    let host = api.host(BATCHES)?.clone();
    let (batch, replayed) = to_the_end(async move { host.create_batch(wanted, key.as_ref()).await }).await?;
    let status = if replayed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(batch)))
}

/// List batches.
#[utoipa::path(
    get, path = "/v1/batches", tag = "batches",
    responses(
        (status = 200, description = "All of them", body = Page<BatchView>),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn list_batches(api: Visit) -> Result<Json<Page<BatchView>>, ApiError> {
    Ok(Json(Page { items: api.host(BATCHES)?.batches(), next_cursor: None }))
}

/// Read one batch.
#[utoipa::path(
    get, path = "/v1/batches/{batch}", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "The batch", body = BatchView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn get_batch(api: Visit, ApiPath(path): ApiPath<BatchPath>) -> Result<Json<BatchView>, ApiError> {
    Ok(Json(api.host(BATCHES)?.batch(&path.batch)?))
}

/// End a batch and forget it with its results.
#[utoipa::path(
    delete, path = "/v1/batches/{batch}", tag = "batches", params(BatchPath),
    responses(
        (status = 204, description = "Gone"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn delete_batch(api: Visit, ApiPath(path): ApiPath<BatchPath>) -> Result<StatusCode, ApiError> {
    let host = api.host(BATCHES)?.clone();
    to_the_end(async move { host.delete_batch(&path.batch).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// End what runs of a batch; results stay, and it can be resumed.
#[utoipa::path(
    post, path = "/v1/batches/{batch}/cancel", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "Nothing of it runs any more", body = BatchView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn cancel_batch(api: Visit, ApiPath(path): ApiPath<BatchPath>) -> Result<Json<BatchView>, ApiError> {
    let host = api.host(BATCHES)?.clone();
    Ok(Json(to_the_end(async move { host.cancel_batch(&path.batch).await }).await?))
}

/// Go on with a batch that was cancelled: every task without a result runs.
#[utoipa::path(
    post, path = "/v1/batches/{batch}/resume", tag = "batches", params(BatchPath),
    responses(
        (status = 200, description = "It runs, or is done", body = BatchView),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn resume_batch(api: Visit, ApiPath(path): ApiPath<BatchPath>) -> Result<Json<BatchView>, ApiError> {
    let host = api.host(BATCHES)?.clone();
    Ok(Json(to_the_end(async move { host.resume_batch(&path.batch).await }).await?))
}

/// Which results are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ResultsQuery {
    /// How many of the first results to leave out.
    #[serde(default)]
    after: u64,
    /// Stay until the batch has ended.
    #[serde(default)]
    follow: bool,
}

/// Read the results of a batch, one line of JSON each, in the order in which they came.
#[utoipa::path(
    get, path = "/v1/batches/{batch}/results", tag = "batches", params(BatchPath, ResultsQuery),
    responses(
        (status = 200, description = "Lines of JSON", body = TaskResult, content_type = "application/x-ndjson"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn batch_results(
    api: Visit,
    ApiPath(path): ApiPath<BatchPath>,
    ApiQuery(query): ApiQuery<ResultsQuery>,
) -> Result<Response, ApiError> {
    let reader = api.host(BATCHES)?.batch_results(&path.batch, query.after, query.follow).await?;
    let body = Body::from_stream(lines(reader).take_until(api.closing().clone().cancelled_owned()));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// One line for each result; one that cannot be read breaks the body off.
fn lines(reader: BatchReader) -> impl Stream<Item = Result<Bytes, HostError>> + Send {
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Some(mut line)) => {
                line.push('\n');
                Some((Ok(line.into()), Some(reader)))
            }
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    })
}
