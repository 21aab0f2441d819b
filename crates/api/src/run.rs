//! `/v1/run`: one command in a sandbox of its own, gone afterwards on every way out.

use axum::Json;
use axum::extract::ws::WebSocket;
use axum::response::Response;
use roost_host::{ExecAttachment, HostError, Run};
use roost_model::{ErrorBody, ExecOutput, RunRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::to_the_end;
use crate::bridge::{Conversation, Ending, Told};
use crate::errors::ApiError;
use crate::extract::{ApiJson, Upgrade};
use crate::visit::Visit;
use crate::{Api, attach};

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(run, open_run))
}

/// Starts a run. If whoever asked leaves meanwhile, the start goes on and its guard then ends the sandbox.
async fn start(api: &Visit, request: RunRequest) -> Result<(Run, ExecAttachment), ApiError> {
    let visitor = api.visitor().clone();
    api.measured("run", to_the_end(async move { visitor.start_run(request).await })).await
}

/// Ends a run also if whoever asked leaves meanwhile.
async fn end(run: Run) -> Result<(), HostError> {
    to_the_end(async move {
        run.end().await;
        Ok(())
    })
    .await
}

/// Make a sandbox, run one command in it, return its output and end the sandbox.
#[utoipa::path(
    post, path = "/v1/run", tag = "execs", request_body = RunRequest,
    responses(
        (status = 200, description = "Ended; at most 8 MiB of each stream", body = ExecOutput),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn run(api: Visit, ApiJson(request): ApiJson<RunRequest>) -> Result<Json<ExecOutput>, ApiError> {
    let (run, attachment) = start(&api, request).await?;
    let output = attachment.collect().await;
    end(run).await?;
    Ok(Json(output?))
}

/// Make a sandbox and run one command in it over a WebSocket.
///
/// The first message is a `RunRequest` as text; the answers are `{"type":"created","sandbox":…}` and
/// `{"type":"started","exec":…}`, then as with `attach`. When the command ends the sandbox is ended first and `exit` told
/// then. When the socket closes, for whatever reason, the sandbox ends.
#[utoipa::path(
    get, path = "/v1/run", tag = "execs",
    responses(
        (status = 101, description = "WebSocket"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn open_run(api: Visit, Upgrade(upgrade): Upgrade) -> Response {
    upgrade.on_upgrade(move |socket| {
        let conversations = api.conversations().clone();
        conversations.track_future(converse(api, socket))
    })
}

async fn converse(api: Visit, socket: WebSocket) {
    let mut conversation = Conversation::new(socket);
    let ending = match run_and_carry(&api, &mut conversation).await {
        Ok(ending) | Err(ending) => ending,
    };
    conversation.finish(ending).await;
}

async fn run_and_carry(api: &Visit, conversation: &mut Conversation) -> Result<Ending, Ending> {
    let request: RunRequest = conversation.first().await?;
    let (run, attachment) = start(api, request).await.map_err(Ending::Failed)?;
    let ending = carry(api, &run, attachment, conversation).await;
    end(run).await.map_err(|error| Ending::Failed(error.into()))?;
    ending
}

async fn carry(
    api: &Visit,
    run: &Run,
    attachment: ExecAttachment,
    conversation: &mut Conversation,
) -> Result<Ending, Ending> {
    conversation.tell(&Told::Created { sandbox: &run.sandbox() }).await?;
    conversation.tell(&Told::Started { exec: &attachment.exec }).await?;
    let found = api.visitor().find(run.sandbox().id.as_str());
    let handle = found.map_err(|error| Ending::Failed(error.into()))?;
    Ok(attach::carry(api, &handle, attachment, conversation).await)
}
