//! `process.Process`: commands and terminals.
//!
//! Every process is an exec of the sandbox's, whoever started it; clients know it by its pid inside, or by its tag. Pids
//! come around again, so that one is always looked up first and its exec's id is used from there on.

mod ending;
mod follow;
mod input;
mod message;
mod select;
mod start;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use roost_host::{ExecFilter, SignalTarget};
use roost_model::{ErrorCode, TerminalSize};

use super::Call;
use super::connect::{Code, ConnectError, client_stream, server_stream, unary};
use crate::E2b;
use message::{Empty, List, ListAnswer, ProcessInfo, Selected, SendSignal, Update};

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
        .route("/process.Process/List", any(list))
        .route("/process.Process/Start", any(start_process))
        .route("/process.Process/Connect", any(connect))
        .route("/process.Process/Update", any(update))
        .route("/process.Process/SendInput", any(send_input))
        .route("/process.Process/StreamInput", any(stream_input))
        .route("/process.Process/SendSignal", any(send_signal))
        .route("/process.Process/CloseStdin", any(close_stdin))
}

async fn list(call: Call, request: Request) -> Response {
    unary(request, async |_, List {}| {
        let running = ExecFilter { running: true, ..ExecFilter::default() };
        let execs = call.handle.find_execs(running).await?;
        let own: Vec<(String, String)> = start::own_env(&call.handle.view()).collect();
        Ok(ListAnswer { processes: execs.into_iter().map(|exec| ProcessInfo::of(exec, &own)).collect() })
    })
    .await
}

async fn start_process(call: Call, request: Request) -> Response {
    server_stream(request, call.cut(), async |head, wanted| start::start(&call, head.timeout, wanted).await).await
}

async fn connect(call: Call, request: Request) -> Response {
    server_stream(request, call.cut(), async |head, wanted: Selected| {
        let exec = select::find(&call.handle, &wanted.process).await?;
        follow::connect(&call, &exec, &head).await
    })
    .await
}

async fn update(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: Update| {
        let exec = select::find_running(&call.handle, &wanted.process).await?;
        if let Some(pty) = wanted.pty {
            if !exec.info.pty {
                return Err(ConnectError::new(Code::FailedPrecondition, "the process has no terminal"));
            }
            call.handle.resize_exec(&exec.id, TerminalSize::try_from(pty)?).await?;
        }
        Ok(Empty {})
    })
    .await
}

async fn send_input(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted| input::send(&call.handle, wanted).await).await
}

async fn stream_input(call: Call, request: Request) -> Response {
    client_stream(request, async |_, incoming| input::stream(&call.handle, incoming).await).await
}

async fn close_stdin(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: Selected| input::close(&call.handle, &wanted).await).await
}

async fn send_signal(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: SendSignal| {
        let signal = wanted.number()?;
        let exec = select::find_running(&call.handle, &wanted.process).await?;
        match call.handle.send_signal(&exec.id, signal, SignalTarget::Process).await {
            Ok(_) => Ok(Empty {}),
            // It has just ended.
            Err(error) if error.code() == ErrorCode::Conflict => Err(select::not_found(&wanted.process)),
            Err(error) => Err(error.into()),
        }
    })
    .await
}
