//! A listing on its way out: one JSON object whose entries are passed on as they come.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use roost_host::{BatchStream, FileListing, HostError};
use roost_model::{ErrorDetail, FileStat};

use crate::errors::ApiError;

/// Text of a listing that is gathered before its status is decided on, so that nearly every failure has a status of its own.
const GATHERED: usize = 1 << 20;

/// Answers with a listing.
pub(crate) async fn answer(listing: FileListing) -> Result<Response, ApiError> {
    let FileListing { path, mut batches } = listing;
    let mut text = opening(&path)?;
    let mut is_first = true;
    while text.len() < GATHERED {
        match batches.next().await {
            Some(batch) => {
                append(&mut text, &batch?, is_first)?;
                is_first = false;
            }
            None => {
                text.extend_from_slice(b"]}");
                return Ok(json(Body::from(text)));
            }
        }
    }
    let rest = stream::once(async { Bytes::from(text) }).chain(rest(batches)).map(Ok::<_, std::convert::Infallible>);
    Ok(json(Body::from_stream(rest)))
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The text behind the first entries. A failure now can only be told in the object itself.
fn rest(batches: BatchStream) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some(batches), |open| async {
        let mut batches = open?;
        let mut text = Vec::new();
        let failed = match batches.next().await {
            None => None,
            Some(batch) => match batch.map_err(ApiError::from).and_then(|batch| append(&mut text, &batch, false)) {
                Ok(()) => return Some((Bytes::from(text), Some(batches))),
                Err(error) => Some(error),
            },
        };
        Some((closing(text, failed.as_ref().map(ApiError::detail)), None))
    })
}

fn opening(path: &str) -> Result<Vec<u8>, ApiError> {
    let mut text = b"{\"path\":".to_vec();
    serde_json::to_writer(&mut text, path).map_err(unwritable)?;
    text.extend_from_slice(b",\"entries\":[");
    Ok(text)
}

fn append(text: &mut Vec<u8>, entries: &[FileStat], is_first: bool) -> Result<(), ApiError> {
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 || !is_first {
            text.push(b',');
        }
        serde_json::to_writer(&mut *text, entry).map_err(unwritable)?;
    }
    Ok(())
}

fn closing(mut text: Vec<u8>, failed: Option<&ErrorDetail>) -> Bytes {
    text.push(b']');
    if let Some(detail) = failed.and_then(|detail| serde_json::to_vec(detail).ok()) {
        text.extend_from_slice(b",\"error\":");
        text.extend_from_slice(&detail);
    }
    text.push(b'}');
    Bytes::from(text)
}

fn unwritable(error: serde_json::Error) -> ApiError {
    HostError::Internal(format!("failed to write a listing: {error}")).into()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use roost_model::{ErrorCode, FileKind, FileList};

    use super::*;

    fn entry(number: usize) -> FileStat {
        FileStat {
            name: format!("file-{number}"),
            path: format!("/data/file-{number}"),
            kind: FileKind::File,
            size: 1,
            mode: "0644".to_owned(),
            uid: 0,
            gid: 0,
            modified_at: "1970-01-01T00:00:00Z".parse().unwrap(),
            target: None,
        }
    }

    fn too_large() -> HostError {
        HostError::GuestReply { too_large: true, message: "too much".to_owned() }
    }

    async fn listed(batches: Vec<Result<Vec<FileStat>, HostError>>) -> Result<(StatusCode, FileList), ApiError> {
        let listing = FileListing { path: "/da\"ta".to_owned(), batches: Box::pin(stream::iter(batches)) };
        let (head, body) = answer(listing).await?.into_parts();
        let text = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        Ok((head.status, serde_json::from_slice(&text).unwrap()))
    }

    #[tokio::test]
    async fn streamed_listing_has_the_shape_of_a_list() {
        let few: Vec<FileStat> = (0..3).map(entry).collect();
        let (_, list) = listed(vec![Ok(few[..1].to_vec()), Ok(few[1..].to_vec())]).await.unwrap();
        assert_eq!(list, FileList { path: "/da\"ta".to_owned(), entries: few, error: None });
        assert_eq!(listed(Vec::new()).await.unwrap().1.entries, []);
        let many: Vec<FileStat> = (0..60_000).map(entry).collect();
        let (status, list) = listed(many.chunks(256).map(|batch| Ok(batch.to_vec())).collect()).await.unwrap();
        assert_eq!((status, list.entries.len(), list.error), (StatusCode::OK, many.len(), None));
    }

    #[tokio::test]
    async fn early_failure_has_a_status_of_its_own() {
        let refused = listed(vec![Ok(vec![entry(0)]), Err(too_large())]).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::BAD_GATEWAY);
    }

    #[tokio::test]
    async fn late_failure_stands_in_the_list() {
        let many = (0..60_000).map(entry).collect();
        let (_, list) = listed(vec![Ok(many), Ok(vec![entry(1)]), Err(too_large())]).await.unwrap();
        assert_eq!(list.error.unwrap().code, ErrorCode::GuestReplyTooLarge);
        assert_eq!(list.entries.len(), 60_001);
    }
}
