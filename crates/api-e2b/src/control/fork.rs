//! Forks: copies of a running sandbox.

use axum::Json;
use axum::http::StatusCode;
use roost_host::{HostError, to_the_end};
use roost_model::{Fork, ForkResult};
use serde::{Deserialize, Serialize};

use super::bodies::Sandbox;
use super::create::timeout;
use super::extract::{E2bJson, E2bPath};
use super::sandboxes::live_for;
use super::visit::Visit;
use crate::error::{E2bError, ErrorBody, status_of};

/// Forks to make.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct NewForks {
    /// Seconds that each lives.
    timeout: Option<i64>,
    count: Option<u32>,
}

/// What came of one fork.
#[derive(Debug, Serialize)]
pub(crate) struct Forked {
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<Sandbox>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody>,
}

/// `POST /sandboxes/{id}/fork`.
pub(crate) async fn fork(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<NewForks>,
) -> Result<(StatusCode, Json<Vec<Forked>>), E2bError> {
    let handle = e2b.find(&id)?;
    let time = timeout(wanted.timeout)?;
    let wanted = Fork { count: Some(wanted.count.unwrap_or(1)), ..Fork::default() };
    wanted.children().map_err(|error| E2bError::bad_request(error.to_string()))?;
    let visitor = e2b.visitor().clone();
    let made = to_the_end(async move { visitor.fork(&handle, wanted).await }).await;
    let mut forks = Vec::new();
    for result in made.map_err(|error| E2bError::from(error).once())? {
        forks.push(match settled(&e2b, result, time).await {
            Ok(sandbox) => Forked { sandbox: Some(sandbox), error: None },
            Err(refusal) => Forked { sandbox: None, error: Some(refusal.into_body()) },
        });
    }
    Ok((StatusCode::CREATED, Json(forks)))
}

async fn settled(e2b: &Visit, result: ForkResult, time: roost_model::Span) -> Result<Sandbox, E2bError> {
    match (result.sandbox, result.error) {
        (Some(view), _) => {
            let handle = e2b.find(view.id.as_str())?;
            match live_for(&handle, time).await {
                // Whoever may destroy nothing may not let it end sooner than its parent's time says.
                Err(HostError::Forbidden(_)) => {}
                lives => lives?,
            }
            Ok(Sandbox::of(e2b, &handle))
        }
        (None, Some(error)) => Err(E2bError::new(status_of(error.code), error.message)),
        (None, None) => Err(E2bError::new(StatusCode::INTERNAL_SERVER_ERROR, "the fork came to nothing")),
    }
}
