//! `filesystem.Filesystem`: what files there are, and what happens to them.

mod entry;
mod message;
mod path;
mod watch;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use roost_host::HostError;
use roost_model::ErrorCode;

pub(crate) use path::meant;

use super::Call;
use super::connect::{Code, ConnectError, server_stream, unary};
use crate::E2b;
use entry::EntryInfo;
use message::{AtPath, Created, Empty, EntryAnswer, ListAnswer, ListDir, Move, Watch, WatcherEvents, WatcherId};

pub(crate) fn routes() -> Router<E2b> {
    Router::new()
        .route("/filesystem.Filesystem/Stat", any(stat))
        .route("/filesystem.Filesystem/MakeDir", any(make_dir))
        .route("/filesystem.Filesystem/Move", any(move_path))
        .route("/filesystem.Filesystem/ListDir", any(list_dir))
        .route("/filesystem.Filesystem/Remove", any(remove))
        .route("/filesystem.Filesystem/WatchDir", any(watch_dir))
        .route("/filesystem.Filesystem/CreateWatcher", any(create_watcher))
        .route("/filesystem.Filesystem/GetWatcherEvents", any(watcher_events))
        .route("/filesystem.Filesystem/RemoveWatcher", any(remove_watcher))
}

async fn stat(call: Call, request: Request) -> Response {
    unary(request, async |_, AtPath { path }| {
        let found = call.handle.files_of(call.user.as_deref()).stat(known(&path)?).await;
        found.map(EntryAnswer::from).map_err(|error| match error.code() {
            // Below something that is no folder there is nothing.
            ErrorCode::NotADirectory => ConnectError::new(Code::NotFound, error.to_string()),
            _ => refusal(&call, error),
        })
    })
    .await
}

async fn make_dir(call: Call, request: Request) -> Response {
    unary(request, async |_, AtPath { path }| {
        let made = call.handle.files_of(call.user.as_deref()).make_folder(known(&path)?).await;
        made.map(EntryAnswer::from).map_err(|error| match error.code() {
            ErrorCode::Conflict => ConnectError::new(Code::AlreadyExists, error.to_string()),
            _ => refusal(&call, error),
        })
    })
    .await
}

async fn move_path(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: Move| {
        let (from, to) = (known(&wanted.source)?, known(&wanted.destination)?);
        let moved = call.handle.files_of(call.user.as_deref()).rename(from, to).await;
        moved.map(EntryAnswer::from).map_err(|error| refusal(&call, error))
    })
    .await
}

async fn list_dir(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: ListDir| {
        let path = known(&wanted.path)?;
        let entries = call.handle.files_of(call.user.as_deref()).list(path, wanted.depth.0.max(1)).await;
        let entries = entries.map_err(|error| refusal(&call, error))?;
        Ok(ListAnswer { entries: entries.into_iter().map(EntryInfo::from).collect() })
    })
    .await
}

async fn remove(call: Call, request: Request) -> Response {
    unary(request, async |_, AtPath { path }| {
        match call.handle.files_of(call.user.as_deref()).remove(known(&path)?).await {
            Ok(()) => Ok(Empty {}),
            // It is as gone as it is to be.
            Err(error) if error.code() == ErrorCode::PathNotFound => Ok(Empty {}),
            Err(error) => Err(refusal(&call, error)),
        }
    })
    .await
}

async fn watch_dir(call: Call, request: Request) -> Response {
    server_stream(request, call.cut(), async |_, wanted: Watch| watch::follow(&call, wanted).await).await
}

async fn create_watcher(call: Call, request: Request) -> Response {
    unary(request, async |_, wanted: Watch| Ok(Created { watcher_id: watch::keep(&call, &wanted).await? })).await
}

async fn watcher_events(call: Call, request: Request) -> Response {
    unary(request, async |_, WatcherId { watcher_id }| {
        Ok(WatcherEvents { events: watch::seen(&call, &watcher_id).await? })
    })
    .await
}

async fn remove_watcher(call: Call, request: Request) -> Response {
    unary(request, async |_, WatcherId { watcher_id }| {
        call.handle.end_watch(&watcher_id).await.map_err(|error| watch::refusal(&call, &watcher_id, error))?;
        Ok(Empty {})
    })
    .await
}

/// A path as a guest understands it.
fn known(path: &str) -> Result<&str, ConnectError> {
    meant(path).map_err(ConnectError::invalid)
}

/// A refusal of the sandbox's, in the codes that clients know.
fn refusal(call: &Call, error: HostError) -> ConnectError {
    match (error.code(), &call.user) {
        (ErrorCode::UserNotFound, Some(user)) => {
            ConnectError::new(Code::Unauthenticated, format!("invalid username: '{user}'"))
        }
        _ => error.into(),
    }
}
