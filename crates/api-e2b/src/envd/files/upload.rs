//! `POST /files`: files of a form, or one as it is.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use roost_host::{Entry, HostError, SetAttributes};
use serde::Serialize;

use super::access::Access;
use super::coding::{self, Coding, unpacked};
use super::disposition::Disposition;
use super::gather::gathered;
use super::multipart::{Event, Form, FormError, PartHead};
use super::{metadata, refusal};
use crate::envd::filesystem::meant;
use crate::error::E2bError;

/// Most files of one form.
const MOST_FILES: usize = 10_000;

/// A file that was written.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Written {
    name: String,
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl From<Entry> for Written {
    fn from(entry: Entry) -> Self {
        let metadata = metadata::of_attributes(&entry.attributes);
        Self { name: entry.stat.name, path: entry.stat.path, kind: "file", metadata }
    }
}

/// Writes what the body holds.
pub(super) async fn upload(access: Access, headers: HeaderMap, body: Body) -> Result<Json<Vec<Written>>, E2bError> {
    let attributes = metadata::of_upload(&headers)?;
    let coding = coding::of_request(&headers)
        .map_err(|_| E2bError::bad_request("unsupported Content-Encoding: gzip and identity are understood"))?;
    let mut content = Content::of(body, coding);
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = Disposition::parse(content_type).kind;
    if kind == "application/octet-stream" {
        let path = access.path.as_deref();
        let path = path.ok_or_else(|| E2bError::bad_request("path query parameter is required for raw body upload"))?;
        return Ok(Json(vec![write(&access, path, attributes, content).await?.into()]));
    }
    if !kind.starts_with("multipart/") {
        let message = "expected multipart/form-data or application/octet-stream";
        return Err(E2bError::bad_request(format!("unsupported content type `{content_type}`: {message}")));
    }
    let form = Form::new(content_type).map_err(|error| E2bError::bad_request(error.to_string()))?;
    files_of(&access, attributes, Parts { form, content: &mut content }).await.map(Json)
}

/// Writes the files of a form.
async fn files_of(access: &Access, attributes: SetAttributes, mut parts: Parts<'_>) -> Result<Vec<Written>, E2bError> {
    let mut written: Vec<Written> = Vec::new();
    let mut asked: Vec<String> = Vec::new();
    while let Some(head) = parts.next_part().await? {
        if head.name.as_deref() != Some("file") {
            continue;
        }
        let path = access.path.clone().or(head.filename).unwrap_or_default();
        if path.is_empty() {
            return Err(E2bError::bad_request("a file of the form has no name, and the address names no path"));
        }
        if asked.contains(&path) {
            return Err(twice(&path));
        }
        if written.len() >= MOST_FILES {
            return Err(E2bError::bad_request(format!("a form may hold at most {MOST_FILES} files")));
        }
        let entry = write(access, &path, attributes.clone(), &mut parts).await?;
        if written.iter().any(|earlier| earlier.path == entry.stat.path) {
            return Err(twice(&entry.stat.path));
        }
        asked.push(path);
        written.push(entry.into());
    }
    Ok(written)
}

fn twice(path: &str) -> E2bError {
    let message = format!("you cannot upload multiple files to the same path '{path}' in one upload request");
    E2bError::bad_request(message)
}

/// Writes one file. Nothing of it is touched before its first bytes are here, or all of them if it is small.
async fn write<S>(access: &Access, path: &str, attributes: SetAttributes, data: S) -> Result<Entry, E2bError>
where
    S: Stream<Item = Result<Bytes, Lost>> + Send + Unpin,
{
    let path = meant(path).map_err(E2bError::bad_request)?;
    let mut lost = None;
    let mut pieces = gathered(data);
    let first = pieces.next().await.transpose().map_err(E2bError::from)?;
    let rest = pieces.map(|piece| piece.map_err(|error| io::Error::other(lost.insert(error).to_string())));
    let data = stream::iter(first.map(Ok)).chain(rest);
    let outcome: Result<Entry, HostError> = access.files().write(path, attributes, data).await;
    match (outcome, lost) {
        (Err(_), Some(lost)) => Err(lost.into()),
        (outcome, _) => outcome.map_err(refusal),
    }
}

/// Why the content of a request does not come to its end.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the body broke off: {0}")]
    BrokeOff(#[source] io::Error),
    #[error(transparent)]
    Unsound(io::Error),
    #[error(transparent)]
    Form(#[from] FormError),
}

impl From<Lost> for E2bError {
    fn from(lost: Lost) -> Self {
        Self::bad_request(lost.to_string())
    }
}

/// What a request carries, unpacked.
struct Content(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>);

impl Content {
    fn of(body: Body, coding: Coding) -> Self {
        let pieces = body.into_data_stream().map(|piece| piece.map_err(io::Error::other));
        match coding {
            Coding::Plain => Self(Box::pin(pieces)),
            Coding::Gzip => Self(Box::pin(unpacked(pieces))),
        }
    }
}

impl Stream for Content {
    type Item = Result<Bytes, Lost>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Lost::Unsound(error),
            _ => Lost::BrokeOff(error),
        })
    }
}

/// The parts of a form; as a stream, the data of the part that was begun last.
struct Parts<'a> {
    form: Form,
    content: &'a mut Content,
}

impl Parts<'_> {
    /// The next part, whatever was left of the one before; nothing after the last.
    async fn next_part(&mut self) -> Result<Option<PartHead>, Lost> {
        loop {
            match self.event().await? {
                Event::Part(head) => return Ok(Some(head)),
                Event::Data(_) | Event::PartEnd => {}
                Event::End => return Ok(None),
            }
        }
    }

    async fn event(&mut self) -> Result<Event, Lost> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Event, Lost>> {
        loop {
            if let Some(event) = self.form.next()? {
                return Poll::Ready(Ok(event));
            }
            match ready!(self.content.poll_next_unpin(context)).transpose()? {
                Some(piece) => self.form.push(&piece),
                None => return Poll::Ready(Err(FormError::CutShort.into())),
            }
        }
    }
}

impl Stream for Parts<'_> {
    type Item = Result<Bytes, Lost>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match ready!(self.poll_event(context)) {
            Ok(Event::Data(data)) => Poll::Ready(Some(Ok(data))),
            Ok(Event::Part(_) | Event::PartEnd | Event::End) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}
