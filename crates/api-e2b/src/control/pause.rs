//! Pausing and resuming: sleeps that stay until somebody ends them.

use axum::Json;
use axum::http::StatusCode;
use roost_host::Handle;
use roost_model::{ErrorCode, Level, Suspend};
use serde::Deserialize;

use super::bodies::{Sandbox, Standing};
use super::create::timeout;
use super::extract::{E2bJson, E2bPath};
use super::sandboxes::{extend, live_for};
use super::visit::Visit;
use crate::error::E2bError;

/// How to pause.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Pause {
    /// Whether its memory is kept; it is if absent.
    memory: Option<bool>,
}

/// `POST /sandboxes/{id}/pause`.
pub(crate) async fn pause(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<Pause>,
) -> Result<StatusCode, E2bError> {
    let handle = e2b.find(&id)?;
    if Standing::of(&handle.view()) == Standing::Paused {
        return Err(E2bError::new(StatusCode::CONFLICT, format!("sandbox `{id}` is already paused")));
    }
    let to = if wanted.memory == Some(false) { Level::Files } else { Level::Disk };
    // What could not be saved now cannot be saved a moment later: a client that asks again by itself gains nothing.
    handle.suspend(Suspend { to, stay: true }).await.map_err(|error| E2bError::from(error).once())?;
    Ok(StatusCode::NO_CONTENT)
}

/// How to go on.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Resume {
    /// Seconds.
    timeout: Option<i64>,
    /// Whether it goes on with its memory; it does if absent.
    memory: Option<bool>,
}

/// `POST /sandboxes/{id}/connect`, in both generations: a running sandbox lives longer, a paused one goes on.
pub(crate) async fn connect(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<Resume>,
) -> Result<(StatusCode, Json<Sandbox>), E2bError> {
    let handle = e2b.find(&id)?;
    let status = match Standing::of(&handle.view()) {
        Standing::Running => {
            extend(&handle, timeout(wanted.timeout)?).await?;
            StatusCode::OK
        }
        Standing::Paused => {
            wake(&handle, &wanted).await?;
            StatusCode::CREATED
        }
    };
    Ok((status, Json(Sandbox::of(&e2b, &handle))))
}

/// `POST /sandboxes/{id}/resume`, which older clients call.
pub(crate) async fn resume(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<Resume>,
) -> Result<(StatusCode, Json<Sandbox>), E2bError> {
    let handle = e2b.find(&id)?;
    if Standing::of(&handle.view()) == Standing::Running {
        return Err(E2bError::new(StatusCode::CONFLICT, format!("sandbox `{id}` is already running")));
    }
    wake(&handle, &wanted).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::of(&e2b, &handle))))
}

async fn wake(handle: &Handle, wanted: &Resume) -> Result<(), E2bError> {
    // Its clock starts with this time when it is awake.
    live_for(handle, timeout(wanted.timeout)?).await?;
    if wanted.memory == Some(false) {
        handle.suspend(Suspend { to: Level::Files, stay: true }).await?;
    }
    let woken = handle.wake().await;
    woken.map(drop).map_err(|error| match error.code() {
        ErrorCode::ImageIncompatible => E2bError::new(StatusCode::CONFLICT, error.to_string()),
        _ => E2bError::from(error),
    })
}
