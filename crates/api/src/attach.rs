//! WebSockets of processes: start one, or attach to one.

use axum::extract::ws::WebSocket;
use axum::response::Response;
use roost_host::{CallError, ExecAttachment, Guest, Handle, HostError, OutputStart};
use roost_model::{ErrorBody, StartExec};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Api;
use crate::bridge::{Conversation, Ending, Told};
use crate::errors::ApiError;
use crate::extract::{ApiPath, ApiQuery, ExecPath, SandboxPath, Upgrade};
use crate::visit::Visit;

pub(crate) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(open_exec)).routes(routes!(attach_exec))
}

/// Start a process over a WebSocket and stay attached.
///
/// The first message is a `StartExec` as text; the answer is `{"type":"started","exec":…}`, then as with `attach`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/start", tag = "execs", params(SandboxPath),
    responses(
        (status = 101, description = "WebSocket"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn open_exec(
    api: Visit,
    ApiPath(path): ApiPath<SandboxPath>,
    Upgrade(upgrade): Upgrade,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    Ok(upgrade.on_upgrade(move |socket| {
        let conversations = api.conversations().clone();
        conversations.track_future(start(api, handle, socket))
    }))
}

async fn start(api: Visit, handle: Handle, socket: WebSocket) {
    let mut conversation = Conversation::new(socket);
    let ending = match start_and_carry(&api, &handle, &mut conversation).await {
        Ok(ending) | Err(ending) => ending,
    };
    conversation.finish(ending).await;
}

async fn start_and_carry(api: &Visit, handle: &Handle, conversation: &mut Conversation) -> Result<Ending, Ending> {
    let wanted: StartExec = conversation.first().await?;
    let attachment = api.measured("exec_start", handle.start_attached(wanted, None)).await.map_err(Ending::Failed)?;
    conversation.tell(&Told::Started { exec: &attachment.exec }).await?;
    Ok(carry(api, handle, attachment, conversation).await)
}

/// Carries an attachment over a conversation to its end.
pub(crate) async fn carry(
    api: &Visit,
    handle: &Handle,
    attachment: ExecAttachment,
    conversation: &mut Conversation,
) -> Ending {
    let ExecAttachment { stream, guest, exec, .. } = attachment;
    let (output, input) = stream.split();
    // Somebody may have put it to sleep under the client; its input then wakes it as any other request does.
    let reach = || {
        let (handle, busy) = (handle.clone(), handle.request(format!("input of exec {}", exec.id)));
        async move {
            if let Err(error) = handle.awake(&busy).await {
                tracing::debug!(sandbox = %handle.id(), %error, "input found it asleep");
            }
            busy
        }
    };
    conversation.carry(output, input, api.closing(), |error| lost(handle, &guest, error), reach).await
}

/// A guest that breaks off because its sandbox ends is no fault.
fn lost(handle: &Handle, guest: &Guest, error: CallError) -> HostError {
    match handle.living() {
        Ok(()) => guest.failed(error),
        Err(gone) => gone,
    }
}

/// From where on output is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AttachQuery {
    /// Absolute offset in standard output; everything that is kept if absent.
    #[serde(default)]
    offset: u64,
    /// Absolute offset in standard error; everything that is kept if absent.
    #[serde(default)]
    stderr_offset: u64,
    /// Hold the process back rather than lose output that has not been read here.
    #[serde(default)]
    lossless: bool,
}

/// Attach to a process over a WebSocket.
///
/// Binary messages of the server: one byte for the stream (1 output, 2 error), eight for the absolute offset (little
/// endian), then the bytes. Text messages of the server have a `type`: `gap` (`stream`, `from`, `to`), `exit` (`status`,
/// `exec`) and `error` (`error`). Binary messages of the client: a byte 0, then input. Text messages of the client:
/// `{"type":"close_stdin"}`, `{"type":"resize","cols":…,"rows":…}`, `{"type":"signal","signal":"INT"}`. A client that
/// leaves does not end the process.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/execs/{exec}/attach", tag = "execs", params(ExecPath, AttachQuery),
    responses(
        (status = 101, description = "WebSocket"),
        (status = "default", description = "Refused", body = ErrorBody),
    )
)]
async fn attach_exec(
    api: Visit,
    ApiPath(path): ApiPath<ExecPath>,
    ApiQuery(query): ApiQuery<AttachQuery>,
    Upgrade(upgrade): Upgrade,
) -> Result<Response, ApiError> {
    let handle = api.living(&path.sandbox)?;
    let start = OutputStart {
        stdout: Some(query.offset),
        stderr: Some(query.stderr_offset),
        follow: true,
        lossless: query.lossless,
    };
    // Before the upgrade, so that a process that is not there is a plain refusal.
    let attachment = handle.attach(&path.exec_id()?, start).await?;
    Ok(upgrade.on_upgrade(move |socket| {
        let conversations = api.conversations().clone();
        conversations.track_future(async move {
            let mut conversation = Conversation::new(socket);
            let ending = carry(&api, &handle, attachment, &mut conversation).await;
            conversation.finish(ending).await;
        })
    }))
}
