//! Request bodies: read to a limit, or handed on as a stream. What is left of one that is refused is `unread`'s.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use roost_host::HostError;
use roost_model::ErrorCode;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::errors::ApiError;

/// Most bytes of a JSON body.
pub(crate) const JSON_LIMIT: usize = 1 << 20;
/// How long a body that is read as a whole may take, beside what the slowest line needs for it, in bytes a second.
const PATIENCE: Duration = Duration::from_secs(30);
const SLOWEST: usize = 64 * 1024;
/// How much of a body is still read that is read apart from its request, and for how long.
const DISCARD_BYTES: usize = 64 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(3);
/// Pieces that may wait between the network and a reader that blocks.
const PIECES_AHEAD: usize = 4;

/// Bytes as they are; stands for raw bodies in the document.
#[derive(Debug)]
pub(crate) enum RawBytes {}

impl PartialSchema for RawBytes {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for RawBytes {}

/// Reads a body that may have at most `limit` bytes, in a time that a slow line needs for them.
pub(crate) async fn read_limited(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let time = PATIENCE + Duration::from_secs((limit / SLOWEST) as u64);
    tokio::time::timeout(time, read_to_end(headers, body, limit)).await.unwrap_or_else(|_| {
        let message = format!("the body did not come within {} s", time.as_secs());
        Err(ApiError::bad_request(message).with_status(StatusCode::REQUEST_TIMEOUT))
    })
}

async fn read_to_end(headers: &HeaderMap, body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let mut pieces = body.into_data_stream();
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
        if whole.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(ErrorCode::BodyTooLarge, format!("the body has more than {limit} bytes"))
}

/// Reads on and throws away.
async fn discard(pieces: &mut BodyDataStream) {
    let mut left = DISCARD_BYTES;
    let work = async {
        while let Some(Ok(piece)) = pieces.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    // Whether all of it came does not matter; the answer follows either way.
    drop(tokio::time::timeout(DISCARD_TIME, work).await);
}

/// A body on its way into a sandbox, which remembers whether it was the client that broke it off.
#[derive(Debug)]
pub(crate) struct Upload {
    pieces: BodyDataStream,
    broken: bool,
}

impl Upload {
    pub(crate) fn new(body: Body) -> Self {
        Self { pieces: body.into_data_stream(), broken: false }
    }

    /// The refusal for an upload that failed.
    pub(crate) fn refuse(self, error: HostError) -> ApiError {
        if self.broken { ApiError::bad_request("the body broke off") } else { error.into() }
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = self.pieces.poll_next_unpin(context);
        self.broken |= matches!(piece, Poll::Ready(Some(Err(_))));
        piece
    }
}

/// Hands a body to a reader that may stop before its end; the rest is then thrown away.
pub(crate) fn detach(body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin {
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    tokio::spawn(async move {
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            if sender.send(piece.map_err(io::Error::other)).await.is_err() {
                return discard(&mut pieces).await;
            }
        }
    });
    ReceiverStream::new(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces_of(count: usize) -> Body {
        let pieces = std::iter::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 1000])));
        Body::from_stream(futures_util::stream::iter(pieces.take(count)))
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let bytes = read_limited(&HeaderMap::new(), pieces_of(3), 3000).await.unwrap();
        assert_eq!(bytes.len(), 3000);
        let refused = read_limited(&HeaderMap::new(), pieces_of(4), 3000).await.unwrap_err();
        assert_eq!(refused.detail().code, ErrorCode::BodyTooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        let drops = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, io::Error>(Bytes::from_static(b" ")), ()))
        });
        let refused = read_limited(&HeaderMap::new(), Body::from_stream(drops), JSON_LIMIT).await.unwrap_err();
        assert_eq!((refused.status(), refused.detail().code), (StatusCode::REQUEST_TIMEOUT, ErrorCode::BadRequest));
    }

    #[tokio::test]
    async fn a_declared_length_is_believed() {
        let headers = HeaderMap::from_iter([(header::CONTENT_LENGTH, "3001".parse().unwrap())]);
        let refused = read_limited(&headers, Body::empty(), 3000).await.unwrap_err();
        assert_eq!(refused.status(), 413);
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_is_not_our_fault() {
        let fault = || HostError::Internal("lost".to_owned());
        let broken = Body::from_stream(futures_util::stream::iter([Err::<Bytes, _>(io::Error::other("reset"))]));
        let mut upload = Upload::new(broken);
        assert!(upload.next().await.unwrap().is_err());
        assert_eq!(upload.refuse(fault()).status(), 400);
        let upload = Upload::new(pieces_of(3));
        assert_eq!(upload.refuse(fault()).status(), 500);
    }

    #[tokio::test]
    async fn a_reader_that_stops_does_not_hold_the_sender_up() {
        let mut pieces = detach(pieces_of(100));
        assert_eq!(pieces.next().await.unwrap().unwrap().len(), 1000);
        drop(pieces);
    }
}
