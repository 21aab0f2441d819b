//! `GET /files`: the content of a file, or a part of it.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use roost_host::{FileDownload, ReadRange};
use roost_model::chain;

use super::access::Access;
use super::coding::{self, Coding, packed};
use super::range::{asked, within};
use super::refusal;
use crate::envd::filesystem::meant;
use crate::error::E2bError;

/// Sends a file.
pub(super) async fn download(access: Access, headers: HeaderMap) -> Result<Response, E2bError> {
    let path = meant(access.path.as_deref().unwrap_or_default()).map_err(E2bError::bad_request)?;
    let coding = coding::for_answer(&headers).map_err(|_| {
        E2bError::new(StatusCode::NOT_ACCEPTABLE, "no acceptable encoding: gzip and identity are offered")
    })?;
    let Some(asked) = asked(&headers) else {
        let whole = access.files().read(path, ReadRange::default()).await.map_err(refusal)?;
        return Ok(whole_answer(whole.begun().await.map_err(refusal)?, coding));
    };
    // Opened once to learn its size; the content of that is not asked for.
    let size = access.files().read(path, ReadRange { offset: 0, length: Some(0) }).await.map_err(refusal)?.stat.size;
    let Some(range) = within(asked, size) else { return Ok(beyond(size)) };
    let part = access.files().read(path, range).await.map_err(refusal)?;
    Ok(part_answer(part.begun().await.map_err(refusal)?, range.offset))
}

fn whole_answer(download: FileDownload, coding: Coding) -> Response {
    let is_empty = download.known == Some(0);
    let FileDownload { known, content, .. } = download;
    let content = content.map(|piece| piece.map_err(|error| std::io::Error::other(chain(&error))));
    // Nothing is not made larger.
    let coding = if is_empty { Coding::Plain } else { coding };
    let body = match coding {
        Coding::Plain => Body::from_stream(content),
        Coding::Gzip => Body::from_stream(packed(content)),
    };
    let mut response = answer(body, known.filter(|_| coding == Coding::Plain));
    if let Some(value) = coding::header_of(coding) {
        response.headers_mut().insert(header::CONTENT_ENCODING, value);
    }
    response
}

fn part_answer(download: FileDownload, offset: u64) -> Response {
    let FileDownload { stat, length, known, content } = download;
    let length = known.unwrap_or(length);
    let mut response = answer(Body::from_stream(content), known);
    let last = offset + length.saturating_sub(1);
    if let Ok(value) = format!("bytes {offset}-{last}/{}", stat.size).parse() {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response
}

/// A part that the file does not have.
fn beyond(size: u64) -> Response {
    let refusal = E2bError::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"));
    let mut response = refusal.into_response();
    if let Ok(value) = format!("bytes */{size}").parse() {
        response.headers_mut().insert(header::CONTENT_RANGE, value);
    }
    response
}

fn answer(body: Body, length: Option<u64>) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    // Of no type that a browser would run: these are a sandbox's words at the daemon's address.
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("inline"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
    response
}
