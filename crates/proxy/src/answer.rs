//! The body of an answer on its way to the client: as long as it lasts, its sandbox is in use.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use roost_host::Line;
use tokio_util::sync::CancellationToken;

use crate::guard::InUse;
use crate::kept::{Kept, Place, Upstream};

/// Bodies up to this size are read before they are passed on.
const SMALL: u64 = 64 * 1024;
/// How long is waited for one.
const SOON: Duration = Duration::from_millis(200);

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// How an answer may come to its end before its body does.
enum Interrupted {
    /// Its sandbox is gone.
    Lost,
    /// The daemon stops, and it is a stream without an end.
    Closing,
}

/// What is held until the body has ended.
pub(crate) struct Held {
    pub(crate) upstream: Upstream,
    pub(crate) in_use: InUse,
    /// Where the connection can be kept afterwards, if it can be.
    pub(crate) keep: Option<(Arc<Kept>, Place)>,
}

struct Answer {
    /// What was read before the client was told anything.
    ahead: VecDeque<Frame<Bytes>>,
    inner: Incoming,
    interrupted: Pin<Box<dyn Future<Output = Interrupted> + Send>>,
    /// Gone when the body has ended.
    held: Option<Held>,
}

/// Makes the body that the client gets.
///
/// An answer is waited for, so its sandbox is kept awake under it. A stream of events has no end that could be waited for:
/// it may sleep, and it ends when the daemon does.
pub(crate) fn body(begun: Begun, mut line: Line, held: Held, events: bool, closing: CancellationToken) -> Body {
    let Begun { ahead, inner } = begun;
    if inner.is_end_stream() && ahead.is_empty() {
        finish(held);
        return Body::empty();
    }
    let interrupted = async move {
        tokio::select! {
            () = line.lost(|| !events) => Interrupted::Lost,
            () = closing.cancelled(), if events => Interrupted::Closing,
        }
    };
    Body::new(Answer { ahead, inner, interrupted: Box::pin(interrupted), held: Some(held) })
}

/// A body, and what has been read of it.
#[derive(Debug)]
pub(crate) struct Begun {
    ahead: VecDeque<Frame<Bytes>>,
    inner: Incoming,
}

impl Begun {
    /// Reads a small body ahead, so that a sleep in the middle of it can still be made good, or told; nothing if its sandbox
    /// is gone. A server that takes its time is not waited for.
    ///
    /// One that breaks off is an error here: a client that were told of it by its own body would not even get the head.
    pub(crate) async fn small(inner: Incoming, line: &mut Line) -> Result<Option<Self>, hyper::Error> {
        let mut begun = Self { ahead: VecDeque::new(), inner };
        if begun.inner.size_hint().exact().is_none_or(|size| size > SMALL) {
            return Ok(Some(begun));
        }
        let read = async {
            while !begun.inner.is_end_stream() {
                match poll_fn(|cx| Pin::new(&mut begun.inner).poll_frame(cx)).await {
                    Some(frame) => begun.ahead.push_back(frame?),
                    None => break,
                }
            }
            Ok::<_, hyper::Error>(true)
        };
        let watched = line.clone();
        let enough = async {
            // What is falling asleep cannot go on; it is known soon whether it is lost.
            while {
                tokio::time::sleep(SOON).await;
                watched.is_asleep()
            } {}
        };
        let there = tokio::select! {
            biased;
            read = read => read?,
            () = line.lost(|| true) => false,
            () = enough => true,
        };
        Ok(there.then_some(begun))
    }
}

fn finish(held: Held) {
    let Held { upstream, in_use, keep } = held;
    if let Some((kept, place)) = keep {
        kept.put(place, upstream);
    }
    drop(in_use);
}

impl Answer {
    fn end(&mut self) {
        if let Some(held) = self.held.take() {
            finish(held);
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(frame) = self.ahead.pop_front() {
            if self.inner.is_end_stream() && self.ahead.is_empty() {
                self.end();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.held.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if self.inner.is_end_stream() {
                    self.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.end();
                Poll::Ready(None)
            }
            Poll::Pending => match self.interrupted.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(how) => {
                    if let Some(held) = self.held.take() {
                        held.upstream.driver.abort();
                    }
                    match how {
                        Interrupted::Closing => Poll::Ready(None),
                        Interrupted::Lost => Poll::Ready(Some(Err(io::Error::other("its sandbox is gone").into()))),
                    }
                }
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let waiting: usize = self.ahead.iter().filter_map(Frame::data_ref).map(Bytes::len).sum();
        let (waiting, rest) = (waiting as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + waiting);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + waiting);
        }
        hint
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("inner", &self.inner).finish_non_exhaustive()
    }
}
