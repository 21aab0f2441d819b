//! Making a sandbox.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use roost_model::{CreateSandbox, Span};

use super::bodies::{NewSandbox, Sandbox};
use super::extract::{E2bJson, Key};
use crate::E2b;
use crate::error::E2bError;
use crate::templates::template_name;

/// Seconds that a sandbox lives that asks for nothing else.
pub(crate) const DEFAULT_TIMEOUT: u64 = 300;

/// `POST /sandboxes` and `POST /v2/sandboxes`.
pub(crate) async fn create(
    State(e2b): State<E2b>,
    Key(key): Key,
    E2bJson(wanted): E2bJson<NewSandbox>,
) -> Result<(StatusCode, Json<Sandbox>), E2bError> {
    let wanted = request(wanted)?;
    let host = e2b.host().clone();
    // Carried to its end even if the client leaves in the middle.
    let made = tokio::spawn(async move { host.create(wanted, key.as_ref()).await }).await;
    let (view, _) =
        made.map_err(|error| E2bError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).once())??;
    let handle = e2b.find(view.id.as_str()).map_err(|error| E2bError::from(error).once())?;
    Ok((StatusCode::CREATED, Json(Sandbox::of(&e2b, &handle))))
}

/// The same in Roost's words.
fn request(wanted: NewSandbox) -> Result<CreateSandbox, E2bError> {
    let mut env = wanted.env_vars.unwrap_or_default();
    env.entry("E2B_SANDBOX".to_owned()).or_insert_with(|| "true".to_owned());
    Ok(CreateSandbox {
        template: Some(template_name(&wanted.template)?.to_string()),
        ttl: Some(timeout(wanted.timeout)?),
        env,
        labels: wanted.metadata.unwrap_or_default(),
        ..CreateSandbox::default()
    })
}

/// A time to live; one that is over already is refused.
fn timeout(seconds: Option<i64>) -> Result<Span, E2bError> {
    match seconds.map_or(Ok(DEFAULT_TIMEOUT), u64::try_from) {
        Ok(seconds) if seconds > 0 => Ok(Span::seconds(seconds)),
        _ => Err(E2bError::bad_request("the timeout must be greater than 0 seconds")),
    }
}
