//! `…/execs/{exec}/output`: one stream of a process's output as a plain body.

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use roost_host::{Busy, ExecFrame, Gap, Guest, GuestStream, HostError, OutputStart};
use roost_model::ErrorBody;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::body::RawBytes;
use crate::errors::ApiError;
use crate::extract::{ApiPath, ApiQuery, ExecPath};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(exec_output))
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OutputStream {
    /// Standard output, or the terminal.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which output is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OutputQuery {
    /// Which stream; standard output if absent.
    #[serde(default)]
    #[param(inline, required = false)]
    stream: OutputStream,
    /// Absolute offset of the first byte wanted.
    #[serde(default)]
    offset: u64,
    /// Go on until the process ends.
    #[serde(default)]
    follow: bool,
}

/// Read a process's output from an absolute offset.
///
/// Bytes that are no longer kept are named in `Roost-Gap`, never left out silently. A gap that opens while a body is
/// under way breaks the body off; ask again from where it ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/output", tag = "execs", params(ExecPath, OutputQuery),
    responses(
        (
            status = 200, description = "The bytes", body = RawBytes, content_type = "application/octet-stream",
            headers(
                ("Roost-Offset" = u64, description = "Absolute offset of the first byte of the body"),
                ("Roost-Gap" = String, description = "`from-to`: bytes that were asked for and are gone"),
            ),
        ),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn exec_output(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiQuery(query): ApiQuery<OutputQuery>,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let wanted = |stream| (query.stream == stream).then_some(query.offset);
    let start = OutputStart {
        stdout: wanted(OutputStream::Stdout),
        stderr: wanted(OutputStream::Stderr),
        follow: query.follow,
        // A reader from outside must not slow the process down.
        lossless: false,
    };
    let attachment = handle.attach(&path.exec_id()?, start).await?;
    let kept_from = match query.stream {
        OutputStream::Stdout => attachment.exec.output.stdout_start,
        OutputStream::Stderr => attachment.exec.output.stderr_start,
    };
    let source = Source { stream: attachment.stream, guest: attachment.guest, kept_from, _busy: attachment.busy };
    body_of(&api, source, query.offset, query.follow).await
}

/// Output on its way to a body.
pub(crate) struct Source {
    pub(crate) stream: GuestStream,
    pub(crate) guest: Guest,
    /// The oldest byte that is kept.
    pub(crate) kept_from: u64,
    /// Keeps the sandbox awake for whoever reads.
    pub(crate) _busy: Busy,
}

/// One stream of output as a body that starts at `offset`, or after a gap that its head tells of.
pub(crate) async fn body_of(api: &Visit, mut source: Source, wanted: u64, follow: bool) -> Result<Response, ApiError> {
    // The head must name the first byte. Where the guest answers at once its first frame tells; when following, the
    // first byte may be long in coming, and it is the one asked for.
    let first = if !follow || wanted < source.kept_from { next(&mut source).await? } else { None };
    let (offset, gap, first) = match first {
        Some(ExecFrame::Gap(gap)) => (gap.to, Some(gap), None),
        Some(ExecFrame::Output { offset, bytes, stream }) => {
            (offset, None, Some(ExecFrame::Output { offset, bytes, stream }))
        }
        Some(end @ ExecFrame::End(_)) => (wanted, None, Some(end)),
        None => (wanted, None, None),
    };
    let frames = stream::iter(first.map(Ok)).chain(frames(source));
    let closing = api.closing().clone();
    let body = Body::from_stream(contiguous(frames, offset).take_until(closing.cancelled_owned()));
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    let headers = response.headers_mut();
    headers.insert("roost-offset", offset.into());
    if let Some(Gap { from, to, .. }) = gap
        && let Ok(text) = format!("{from}-{to}").parse()
    {
        headers.insert("roost-gap", text);
    }
    Ok(response)
}

async fn next(source: &mut Source) -> Result<Option<ExecFrame>, HostError> {
    let frame = source.stream.next().await;
    frame.transpose().map_err(|error| source.guest.failed(error))
}

fn frames(source: Source) -> impl Stream<Item = Result<ExecFrame, HostError>> + Send {
    stream::unfold(source, |mut source| async move {
        let frame = next(&mut source).await.transpose()?;
        Some((frame, source))
    })
}

/// The bytes of frames that follow one another without a gap, up to the end; anything else is an error.
fn contiguous(
    frames: impl Stream<Item = Result<ExecFrame, HostError>> + Send + 'static,
    from: u64,
) -> impl Stream<Item = Result<Bytes, HostError>> + Send + 'static {
    stream::unfold(Some((Box::pin(frames), from)), |state| async move {
        let (mut frames, expected) = state?;
        match frames.next().await {
            Some(Ok(ExecFrame::Output { offset, bytes, .. })) if offset == expected => {
                let after = expected + bytes.len() as u64;
                Some((Ok(bytes), Some((frames, after))))
            }
            Some(Ok(ExecFrame::Output { offset: other, .. })) => Some((Err(broken(expected, other)), None)),
            Some(Ok(ExecFrame::Gap(Gap { to, .. }))) => Some((Err(broken(expected, to)), None)),
            Some(Ok(ExecFrame::End(_))) => None,
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((Err(HostError::Internal("the output broke off".to_owned())), None)),
        }
    })
}

fn broken(expected: u64, next: u64) -> HostError {
    HostError::Conflict(format!("output from {expected} to {next} is gone"))
}

#[cfg(test)]
mod tests {
    use roost_host::Stream as Which;

    use super::*;

    fn output(offset: u64, text: &'static str) -> Result<ExecFrame, HostError> {
        Ok(ExecFrame::Output { stream: Which::Stdout, offset, bytes: Bytes::from_static(text.as_bytes()) })
    }

    async fn pieces(frames: Vec<Result<ExecFrame, HostError>>, from: u64) -> Vec<Result<Bytes, String>> {
        let pieces = contiguous(stream::iter(frames), from);
        pieces.map(|piece| piece.map_err(|error| error.to_string())).collect().await
    }

    #[tokio::test]
    async fn a_gap_under_way_breaks_the_body_off() {
        let gap = ExecFrame::Gap(Gap { stream: Which::Stdout, from: 3, to: 9 });
        let got = pieces(vec![output(0, "abc"), Ok(gap), output(9, "x")], 0).await;
        assert_eq!(got.len(), 2);
        assert!(got[1].as_ref().is_err_and(|error| error.contains("from 3 to 9")));
    }

    #[tokio::test]
    async fn bytes_that_do_not_follow_are_an_error() {
        let got = pieces(vec![output(5, "abc"), output(9, "x")], 5).await;
        assert_eq!(got[0], Ok(Bytes::from_static(b"abc")));
        assert!(got[1].is_err());
        assert_eq!(got.len(), 2);
    }
}
