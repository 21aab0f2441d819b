//! Requests that are answered before they were read to their end.
//!
//! Whoever refuses a request drops its body, and hyper then closes the connection, unless the rest happens to be there
//! already. The client does not know: it sends the next request on it and hears nothing. So what was not read is read
//! here, if it is little or the client is to hear of a refusal, and else the answer says that the connection ends with it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, EXPECT};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

/// What is worth reading for a connection that can be used again.
const WORTH: Limit = Limit { bytes: 256 * 1024, time: Duration::from_millis(200) };
/// What is read after a refusal. To close while the client still sends makes the kernel reset the connection, and the
/// reason may be lost with it.
const REFUSED: Limit = Limit { bytes: 64 << 20, time: Duration::from_secs(3) };

/// How much is read of what nobody wants.
#[derive(Debug, Clone, Copy)]
struct Limit {
    bytes: usize,
    time: Duration,
}

/// A body that is handed back when it is dropped before its end.
#[derive(Debug)]
pub(crate) struct Returned {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

/// The other end: what was left of a body.
#[derive(Debug)]
pub(crate) struct Unread {
    rest: oneshot::Receiver<Incoming>,
    /// The client waits to be asked for its body: reading it would be asking.
    expects: bool,
}

/// Watches over the body of a request.
pub(crate) fn watch(request: Request<Incoming>) -> (Request<Returned>, Unread) {
    let (back, rest) = oneshot::channel();
    let expects = request.headers().contains_key(EXPECT);
    (request.map(|body| Returned { body: Some(body), back: Some(back) }), Unread { rest, expects })
}

impl Unread {
    /// Makes the answer true: either the connection can be used again after it, or it says that it cannot.
    pub(crate) async fn settle(mut self, mut answer: Response) -> Response {
        let refused = answer.status().is_client_error() || answer.status().is_server_error();
        let limit = if refused { REFUSED } else { WORTH };
        // A body that somebody still reads, as that of a tunnel, is not here.
        if let Ok(rest) = self.rest.try_recv()
            && (self.expects || !tokio::time::timeout(limit.time, ends(rest, limit)).await.unwrap_or(false))
        {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }
}

/// Reads the rest; whether it ended before it was too much.
async fn ends(mut rest: Incoming, limit: Limit) -> bool {
    let mut read = 0;
    while let Some(frame) = rest.frame().await {
        let Ok(frame) = frame else { return false };
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > limit.bytes {
            return false;
        }
    }
    true
}

impl Body for Returned {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = self.body.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !body.is_end_stream()
            && let Some(back) = self.back.take()
        {
            // Nobody waits for it once the answer is on its way.
            back.send(body).ok();
        }
    }
}
