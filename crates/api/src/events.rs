//! `/v1/events`: what happened, from any point on, as it happens.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::http::HeaderMap;
use axum::response::sse::{Event as Message, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};
use roost_host::{EventReader, HostError};
use roost_model::{ErrorBody, Event, Page};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::errors::ApiError;
use crate::extract::ApiQuery;
use crate::visit::Visit;

const LARGEST_PAGE: usize = 10_000;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Comments in a quiet stream, so that nobody between takes it for dead.
pub(crate) fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(KEEP_ALIVE)
}

/// The last event of a stream that fails under way.
pub(crate) fn error_event(error: HostError) -> Message {
    let refusal = ApiError::from(error);
    Message::default().event("error").json_data(refusal.detail()).unwrap_or_default()
}

/// Which events are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Only those after this id; all if absent.
    after: Option<u64>,
    /// Only those of this sandbox, by name or id.
    sandbox: Option<String>,
    /// Stay and tell more as it happens; with `false`, return a page as JSON.
    #[param(default = true)]
    follow: Option<bool>,
    /// How many at most, without `follow`.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
}

/// Follow events as server-sent events, or read a page of them.
#[utoipa::path(
    get, path = "/v1/events", tag = "events",
    params(
        EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event seen; stands before `after`"),
    ),
    responses(
        (
            status = 200, description = "With `follow`, one server-sent event for each; otherwise a page",
            content((Event = "text/event-stream"), (Page<Event> = "application/json")),
        ),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn events(api: Visit, ApiQuery(query): ApiQuery<EventsQuery>, headers: HeaderMap) -> Result<Response, ApiError> {
    let sandbox = query.sandbox.as_deref();
    let after = last_seen(&headers)?.or(query.after).unwrap_or(0);
    if query.follow.unwrap_or(true) {
        let reader = api.visitor().follow_events(after, sandbox)?;
        let events = messages(reader).map(Ok::<_, Infallible>).take_until(api.closing().clone().cancelled_owned());
        return Ok(Sse::new(events).keep_alive(keep_alive()).into_response());
    }
    let limit = query.limit.unwrap_or(LARGEST_PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(ApiError::bad_request(format!("a limit is a number from 1 to {LARGEST_PAGE}")));
    }
    let items = api.visitor().events_after(after, limit, sandbox)?;
    let next_cursor = items.last().filter(|_| items.len() == limit).map(|event| event.id.to_string());
    Ok(Json(Page { items, next_cursor }).into_response())
}

fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| ApiError::bad_request("`Last-Event-ID` is the number of an event"))
}

fn messages(reader: EventReader) -> impl Stream<Item = Message> + Send {
    stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        match reader.next().await {
            Ok(event) => {
                let message = Message::default().id(event.id.to_string()).event(event.kind.as_str());
                Some((message.json_data(&event).unwrap_or_default(), Some(reader)))
            }
            Err(error) => Some((error_event(error), None)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_is_a_number() {
        let headers = |text: &str| HeaderMap::from_iter([("last-event-id".parse().unwrap(), text.parse().unwrap())]);
        assert_eq!(last_seen(&HeaderMap::new()).unwrap(), None);
        assert_eq!(last_seen(&headers("17")).unwrap(), Some(17));
        assert_eq!(last_seen(&headers("x")).unwrap_err().status(), 400);
    }
}
