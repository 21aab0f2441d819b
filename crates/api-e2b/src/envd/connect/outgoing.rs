//! The answer of a server stream: messages as they come, signs of life between them, and an end.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::code::ConnectError;
use super::envelope::{put_end, put_message};
use super::head::Head;

/// Messages that are ready together leave together, up to about this many bytes.
const TOGETHER: usize = 64 * 1024;

/// A message of a server stream.
pub(crate) trait Event: Serialize + Send + 'static {
    /// The one that says only that the stream lives.
    fn keepalive() -> Self;
}

/// Why a stream does not come to its own end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Its end says why.
    Refused(ConnectError),
    /// The other side is gone: the connection ends without an end of the stream.
    Off,
}

impl<E: Into<ConnectError>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

type Source<E> = Pin<Box<dyn Stream<Item = Result<E, Broken>> + Send>>;
type Cut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is left to send.
enum State<E> {
    Going(Going<E>),
    /// The last bytes are out; what is left is how the body ends.
    Over(Result<(), io::Error>),
}

/// A stream under way.
struct Going<E> {
    source: Source<E>,
    cut: Cut,
    deadline: Option<Instant>,
    keepalive: Duration,
}

/// The body that carries `source` to its end.
pub(super) fn body<E: Event>(source: Source<E>, head: &Head, cut: Cut) -> Body {
    let going = Going { source, cut, deadline: head.deadline, keepalive: head.keepalive };
    let pieces = stream::unfold(State::Going(going), |state| async move {
        match state {
            State::Going(going) => {
                let (bytes, next) = going.piece().await;
                Some((Ok(bytes), next))
            }
            State::Over(Ok(())) => None,
            // Reported as a failure of the body, which breaks the connection off.
            State::Over(Err(error)) => Some((Err(error), State::Over(Ok(())))),
        }
    });
    Body::from_stream(pieces)
}

/// The body of a stream that has one message, or was refused.
pub(super) fn short_body(outcome: Result<impl Serialize, ConnectError>) -> Body {
    let mut out = BytesMut::new();
    let outcome = outcome.map(|message| put_message(&mut out, &message));
    put_end(&mut out, &outcome);
    Body::from_stream(stream::once(std::future::ready(Ok::<_, Infallible>(out.freeze()))))
}

impl<E: Event> Going<E> {
    /// What there is to send next, and what comes after it.
    async fn piece(mut self) -> (Bytes, State<E>) {
        let deadline = async {
            match self.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let mut next = Some(tokio::select! {
            biased;
            item = self.source.next() => item,
            () = &mut self.cut => Some(Err(Broken::Off)),
            () = deadline => Some(Err(Broken::Refused(ConnectError::out_of_time()))),
            () = sleep(self.keepalive) => Some(Ok(E::keepalive())),
        });
        let mut out = BytesMut::new();
        while let Some(item) = next {
            let outcome = match item {
                Some(Ok(event)) => {
                    put_message(&mut out, &event);
                    next = if out.len() < TOGETHER { self.source.next().now_or_never() } else { None };
                    continue;
                }
                None => Ok(()),
                Some(Err(Broken::Refused(error))) => Err(error),
                Some(Err(Broken::Off)) => {
                    return (out.freeze(), State::Over(Err(io::ErrorKind::ConnectionAborted.into())));
                }
            };
            put_end(&mut out, &outcome);
            return (out.freeze(), State::Over(Ok(())));
        }
        (out.freeze(), State::Going(self))
    }
}
