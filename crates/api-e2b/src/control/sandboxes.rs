//! Reading, timing and ending sandboxes.

use axum::Json;
use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use roost_host::{Handle, HostError};
use roost_model::{PatchSandbox, Span};
use serde::Deserialize;

use super::bodies::{Detail, Standing};
use super::create::timeout;
use super::extract::{E2bJson, E2bPath};
use super::visit::Visit;
use crate::error::E2bError;

/// `GET /sandboxes/{id}`.
pub(crate) async fn read(e2b: Visit, E2bPath(id): E2bPath<String>) -> Result<Json<Detail>, E2bError> {
    let view = e2b.find(&id)?.view();
    Ok(Json(Detail::of(&e2b, &view)))
}

/// `DELETE /sandboxes/{id}`.
pub(crate) async fn kill(e2b: Visit, E2bPath(id): E2bPath<String>) -> Result<StatusCode, E2bError> {
    let handle = e2b.find(&id)?;
    handle.delete().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A new end, in seconds from now.
#[derive(Debug, Deserialize)]
pub(crate) struct NewTimeout {
    timeout: i64,
}

/// `POST /sandboxes/{id}/timeout`: may shorten; a time that is over ends it at once.
pub(crate) async fn set_timeout(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<NewTimeout>,
) -> Result<StatusCode, E2bError> {
    let handle = running(&e2b, &id)?;
    match wanted.timeout {
        ..=0 => handle.expire().await?,
        seconds => live_for(&handle, timeout(Some(seconds))?).await?,
    }
    Ok(StatusCode::NO_CONTENT)
}

/// How much longer it shall live at least.
#[derive(Debug, Deserialize)]
pub(crate) struct Refresh {
    duration: Option<i64>,
}

/// `POST /sandboxes/{id}/refreshes`: only ever extends.
pub(crate) async fn refresh(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<Refresh>,
) -> Result<StatusCode, E2bError> {
    extend(&running(&e2b, &id)?, timeout(wanted.duration)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A sandbox that is not paused.
pub(crate) fn running(e2b: &Visit, id: &str) -> Result<Handle, E2bError> {
    let handle = e2b.find(id)?;
    match Standing::of(&handle.view()) {
        Standing::Running => Ok(handle),
        Standing::Paused => Err(E2bError::not_found(format!("sandbox `{id}` is not running: it is paused"))),
    }
}

/// Gives it so much time from now on.
pub(crate) async fn live_for(handle: &Handle, time: Span) -> Result<(), HostError> {
    handle.patch(PatchSandbox { ttl: Some(time), ..PatchSandbox::default() }).await?;
    Ok(())
}

/// The same, unless it has more already.
pub(crate) async fn extend(handle: &Handle, time: Span) -> Result<(), E2bError> {
    if is_longer(time, handle.view().expires_at, Timestamp::now()) {
        live_for(handle, time).await?
    }
    Ok(())
}

/// Whether a time from now on ends later than what is there. What has no end has more than any time.
fn is_longer(time: Span, end: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(end) = end else { return false };
    let wanted = time.get().and_then(|time| SignedDuration::try_from(time).ok());
    wanted.and_then(|time| now.checked_add(time).ok()).is_none_or(|wanted| wanted > end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_never_shortens() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert!(is_longer(Span::seconds(60), Some(at(100)), at(50)));
        assert!(!is_longer(Span::seconds(60), Some(at(200)), at(50)));
        assert!(!is_longer(Span::seconds(60), None, at(50)));
    }
}
