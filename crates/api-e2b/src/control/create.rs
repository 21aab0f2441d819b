//! Making a sandbox.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use roost_host::{HostError, to_the_end};
use roost_model::{CreateSandbox, ErrorCode, OnTtl, PatchSandbox, Span};

use super::bodies::{NewSandbox, Sandbox};
use super::extract::{E2bJson, Key};
use super::network::is_nothing;
use super::visit::Visit;
use super::{metadata, snapshots};
use crate::error::E2bError;

/// Seconds that a sandbox lives that asks for nothing else.
pub(crate) const DEFAULT_TIMEOUT: u64 = 300;

/// `POST /sandboxes` and `POST /v2/sandboxes`.
pub(crate) async fn create(
    e2b: Visit,
    Key(key): Key,
    E2bJson(wanted): E2bJson<NewSandbox>,
) -> Result<(StatusCode, Json<Sandbox>), E2bError> {
    let template = wanted.template.clone();
    let start = snapshots::start(&e2b, &template).await?;
    let wanted = request(wanted, start)?;
    let own_labels = wanted.labels.clone();
    let visitor = e2b.visitor().clone();
    let made = to_the_end(async move { visitor.create(wanted, key.as_ref()).await });
    let (view, _) = made.await.map_err(|error| refused(error, &template))?;
    let handle = e2b.find(view.id.as_str()).map_err(|error| E2bError::from(error).once())?;
    // What starts from a snapshot has the labels of that sandbox too, which nobody asked for here.
    let foreign = view.labels.keys().filter(|key| !own_labels.contains_key(*key));
    let mut labels: BTreeMap<String, Option<String>> = foreign.map(|key| (key.clone(), None)).collect();
    // One that brings it within reach of its maker stays.
    labels.retain(|key, _| !e2b.visitor().caller().access().needs_label(key));
    if !labels.is_empty() {
        let patch = PatchSandbox { labels: Some(labels), ..PatchSandbox::default() };
        handle.patch(patch).await.map_err(|error| E2bError::from(error).once())?;
    }
    Ok((StatusCode::CREATED, Json(Sandbox::of(&e2b, &handle))))
}

/// Clients send some refused requests again by themselves; where something may have been made, they must not.
fn refused(error: HostError, template: &str) -> E2bError {
    match error.code() {
        ErrorCode::HostFull | ErrorCode::LimitExceeded => E2bError::from(error),
        ErrorCode::TemplateNotFound => E2bError::not_found(format!("template '{template}' not found: {error}")),
        // One that is gone again is no sandbox that somebody could look for.
        ErrorCode::SandboxTerminated => E2bError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).once(),
        _ => E2bError::from(error).once(),
    }
}

/// The same in Roost's words.
fn request(wanted: NewSandbox, start: CreateSandbox) -> Result<CreateSandbox, E2bError> {
    for (what, value) in [("mcp", &wanted.mcp), ("iam", &wanted.iam), ("volumeMounts", &wanted.volume_mounts)] {
        if value.as_ref().is_some_and(|value| !is_nothing(value)) {
            return Err(E2bError::bad_request(format!("{what} is not supported by this host")));
        }
    }
    let auto_resume = wanted.auto_resume.unwrap_or_default().enabled;
    let on_ttl = on_ttl(wanted.auto_pause.unwrap_or_default(), wanted.auto_pause_memory, auto_resume)?;
    let network = wanted.network.unwrap_or_default();
    let mut env = wanted.env_vars.unwrap_or_default();
    env.entry("E2B_SANDBOX".to_owned()).or_insert_with(|| "true".to_owned());
    Ok(CreateSandbox {
        ttl: Some(timeout(wanted.timeout)?),
        on_ttl: Some(on_ttl),
        auto_resume: Some(auto_resume),
        port_access: Some(network.port_access()),
        network: Some(network.policy(wanted.allow_internet_access)?),
        env,
        labels: metadata::to_labels(wanted.metadata.unwrap_or_default()),
        ..start
    })
}

/// What happens at the end of its time.
fn on_ttl(pause: bool, memory: Option<bool>, auto_resume: bool) -> Result<OnTtl, E2bError> {
    match (pause, memory) {
        (false, Some(false)) => {
            Err(E2bError::bad_request("autoPauseMemory can only be disabled together with autoPause"))
        }
        (true, Some(false)) if auto_resume => Err(E2bError::bad_request(
            "a sandbox that keeps only its files when it pauses cannot be resumed by traffic: disable autoResume",
        )),
        (true, Some(false)) => Ok(OnTtl::Files),
        (true, _) => Ok(OnTtl::Disk),
        (false, _) => Ok(OnTtl::Delete),
    }
}

/// A time to live; one that is over already is refused.
pub(crate) fn timeout(seconds: Option<i64>) -> Result<Span, E2bError> {
    match seconds.map_or(Ok(DEFAULT_TIMEOUT), u64::try_from) {
        Ok(seconds) if seconds > 0 => Ok(Span::seconds(seconds)),
        _ => Err(E2bError::bad_request("the timeout must be greater than 0 seconds")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(body: serde_json::Value) -> Result<CreateSandbox, u16> {
        let wanted: NewSandbox = serde_json::from_value(body).unwrap();
        request(wanted, CreateSandbox::default()).map_err(|refusal| refusal.status().as_u16())
    }

    #[test]
    fn a_sandbox_lives_five_minutes_and_is_killed_then() {
        let plain = asked(json!({"templateID": "base"})).unwrap();
        assert_eq!((plain.ttl, plain.on_ttl), (Some(Span::seconds(300)), Some(OnTtl::Delete)));
        assert_eq!(plain.env["E2B_SANDBOX"], "true");
        for timeout in [0, -5] {
            assert_eq!(asked(json!({"templateID": "base", "timeout": timeout})).unwrap_err(), 400);
        }
    }

    #[test]
    fn how_it_pauses_is_kept_and_contradictions_are_refused() {
        let wish = |body| asked(body).map(|wanted| (wanted.on_ttl.unwrap(), wanted.auto_resume.unwrap()));
        assert_eq!(wish(json!({"templateID": "b", "autoPause": true})), Ok((OnTtl::Disk, false)));
        let files = json!({"templateID": "b", "autoPause": true, "autoPauseMemory": false});
        assert_eq!(wish(files), Ok((OnTtl::Files, false)));
        let resumes = json!({"templateID": "b", "autoPause": true, "autoResume": {"enabled": true}});
        assert_eq!(wish(resumes), Ok((OnTtl::Disk, true)));
        assert_eq!(wish(json!({"templateID": "b", "autoPauseMemory": false})), Err(400));
        let both =
            json!({"templateID": "b", "autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}});
        assert_eq!(wish(both), Err(400));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for what in ["mcp", "iam", "volumeMounts"] {
            assert_eq!(asked(json!({"templateID": "b", (what): {"a": 1}})).unwrap_err(), 400);
            assert!(asked(json!({"templateID": "b", (what): null})).is_ok());
        }
    }
}
