//! `/v1/overview/watch`: all sandboxes at a glance, as they change.

use std::convert::Infallible;

use axum::response::sse::{Event as Message, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use roost_model::{ErrorBody, OverviewChange};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::events::keep_alive;
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(watch_overview))
}

/// Watch all sandboxes with what they use, as server-sent events; wakes none.
///
/// The first message has everything, each one after it what changed, at most once a second.
#[utoipa::path(
    get, path = "/v1/overview/watch", tag = "sandboxes",
    responses(
        (status = 200, description = "Changes", content((OverviewChange = "text/event-stream"))),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn watch_overview(api: Visit) -> Response {
    let changes = stream::unfold(api.visitor().watch_overview(), |mut reader| async move {
        let change = reader.next().await?;
        let message = Message::default().json_data(&*change).unwrap_or_default();
        Some((Ok::<_, Infallible>(message), reader))
    });
    let changes = changes.take_until(api.closing().clone().cancelled_owned());
    Sse::new(changes).keep_alive(keep_alive()).into_response()
}
