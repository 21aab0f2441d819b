//! The three kinds of calls, from a request to its response.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::code::ConnectError;
use super::envelope::{Envelopes, check_length};
use super::head::{Head, Shape};
use super::outgoing::{self, Broken, Event};

/// How long the one message of a call may take to arrive, when the call itself sets no time.
const MESSAGE_TIME: Duration = Duration::from_secs(60);

/// Answers one message with one message.
pub(crate) async fn unary<Q, A, W>(request: Request, work: impl FnOnce(Head, Q) -> W) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    W: Future<Output = Result<A, ConnectError>>,
{
    let (head, body) = match open(request, Shape::Unary) {
        Ok(opened) => opened,
        Err(response) => return *response,
    };
    let answer = async {
        let head = head?;
        let deadline = head.deadline;
        let message = in_time(message_deadline(deadline), whole(body)).await?;
        let message = read(&message)?;
        in_time(deadline, work(head, message)).await
    };
    match answer.await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => (error.code.status(), Json(error)).into_response(),
    }
}

/// Answers one message with a stream of them. When `cut` resolves, what is left of it is broken off.
pub(crate) async fn server_stream<Q, E, S, W>(
    request: Request,
    cut: impl Future<Output = ()> + Send + 'static,
    work: impl FnOnce(Head, Q) -> W,
) -> Response
where
    Q: DeserializeOwned,
    E: Event,
    S: Stream<Item = Result<E, Broken>> + Send + 'static,
    W: Future<Output = Result<S, ConnectError>>,
{
    let (head, body) = match open(request, Shape::Stream) {
        Ok(opened) => opened,
        Err(response) => return *response,
    };
    let begin = async {
        let head = head?;
        let mut incoming = Incoming::new(body);
        let first = async {
            let message = incoming.next().await?.ok_or_else(|| ConnectError::invalid("the call has no message"))?;
            match incoming.next_message().await? {
                None => Ok(message),
                Some(_) => Err(ConnectError::invalid("the call has more than one message")),
            }
        };
        let message = in_time(message_deadline(head.deadline), first).await?;
        let source = in_time(head.deadline, work(head.clone(), message)).await?;
        Ok((head, source))
    };
    streamed(match begin.await {
        Ok((head, source)) => outgoing::body(Box::pin(source), &head, Box::pin(cut)),
        Err(error) => outgoing::short_body(Err::<(), _>(error)),
    })
}

/// Answers a stream of messages with one.
pub(crate) async fn client_stream<Q, A, W>(request: Request, work: impl FnOnce(Head, Incoming<Q>) -> W) -> Response
where
    Q: DeserializeOwned,
    A: Serialize,
    W: Future<Output = Result<A, ConnectError>>,
{
    let (head, body) = match open(request, Shape::Stream) {
        Ok(opened) => opened,
        Err(response) => return *response,
    };
    let answer = async {
        let head = head?;
        in_time(head.deadline, work(head, Incoming::new(body))).await
    };
    streamed(outgoing::short_body(answer.await))
}

/// Takes a request apart. What is no call of this shape is answered at once.
fn open(request: Request, shape: Shape) -> Result<(Result<Head, ConnectError>, Body), Box<Response>> {
    let (parts, body) = request.into_parts();
    Ok((Head::read(&parts, shape)?, body))
}

fn streamed(body: Body) -> Response {
    let content_type = HeaderValue::from_static(Shape::Stream.content_type());
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}

/// Messages of a client as they arrive.
#[derive(Debug)]
pub(crate) struct Incoming<Q> {
    body: BodyDataStream,
    envelopes: Envelopes,
    message: std::marker::PhantomData<fn() -> Q>,
}

impl<Q: DeserializeOwned> Incoming<Q> {
    fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), envelopes: Envelopes::default(), message: std::marker::PhantomData }
    }

    /// The next message; nothing when the client has said all.
    pub(crate) async fn next(&mut self) -> Result<Option<Q>, ConnectError> {
        self.next_message().await?.map(|message| read(&message)).transpose()
    }

    async fn next_message(&mut self) -> Result<Option<Bytes>, ConnectError> {
        loop {
            if let Some(message) = self.envelopes.next()? {
                return Ok(Some(message));
            }
            match self.body.next().await {
                Some(Ok(piece)) => self.envelopes.push(&piece),
                Some(Err(error)) => return Err(broke_off(&error)),
                None if self.envelopes.is_empty() => return Ok(None),
                None => return Err(ConnectError::invalid("the body ends in the middle of a message")),
            }
        }
    }
}

/// A body that is one message.
async fn whole(body: Body) -> Result<Bytes, ConnectError> {
    let mut pieces = body.into_data_stream();
    let Some(first) = pieces.next().await.transpose().map_err(|error| broke_off(&error))? else {
        return Ok(Bytes::new());
    };
    check_length(first.len())?;
    let Some(second) = pieces.next().await else { return Ok(first) };
    let mut all = BytesMut::from(first);
    let mut piece = Some(second);
    while let Some(more) = piece {
        let more = more.map_err(|error| broke_off(&error))?;
        check_length(all.len() + more.len())?;
        all.extend_from_slice(&more);
        piece = pieces.next().await;
    }
    Ok(all.freeze())
}

fn broke_off(error: &axum::Error) -> ConnectError {
    ConnectError::invalid(format!("the body broke off: {error}"))
}

fn read<Q: DeserializeOwned>(message: &[u8]) -> Result<Q, ConnectError> {
    // A message without fields may be left out altogether.
    let message = if message.is_empty() { b"{}" } else { message };
    serde_json::from_slice(message)
        .map_err(|error| ConnectError::invalid(format!("the message is not what this call takes: {error}")))
}

fn message_deadline(deadline: Option<Instant>) -> Option<Instant> {
    deadline.or_else(|| Instant::now().checked_add(MESSAGE_TIME))
}

async fn in_time<T>(
    deadline: Option<Instant>,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    match deadline {
        None => work.await,
        Some(deadline) => timeout_at(deadline, work).await.unwrap_or_else(|_| Err(ConnectError::out_of_time())),
    }
}

#[cfg(test)]
mod tests;
