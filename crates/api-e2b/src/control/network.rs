//! What a sandbox may reach, and who may reach it, as far as Roost can say it.
//!
//! A sandbox reaches the outside or it does not. What E2B can say beyond that is refused, never quietly left out.

use axum::http::StatusCode;
use roost_model::{NetworkPolicy, PatchSandbox, PortAccess};
use serde::Deserialize;
use serde_json::Value;

use super::extract::{E2bJson, E2bPath};
use super::visit::Visit;
use crate::error::E2bError;

/// Rules for traffic out of and into a sandbox.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkConfig {
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    allow_out: Option<Vec<String>>,
    deny_out: Option<Vec<String>>,
    rules: Option<Value>,
    egress_proxy: Option<Value>,
    allow_public_traffic: Option<bool>,
    mask_request_host: Option<Value>,
    https_ports: Option<Value>,
}

impl NetworkConfig {
    /// What the sandbox may reach.
    pub(crate) fn policy(&self, allow_internet_access: Option<bool>) -> Result<NetworkPolicy, E2bError> {
        let unsupported = |what: &str| E2bError::bad_request(format!("{what} is not supported by this host"));
        for (what, value) in [
            ("rules", &self.rules),
            ("egressProxy", &self.egress_proxy),
            ("maskRequestHost", &self.mask_request_host),
            ("httpsPorts", &self.https_ports),
        ] {
            if value.as_ref().is_some_and(|value| !is_nothing(value)) {
                return Err(unsupported(what));
            }
        }
        let asked = allow_internet_access.or(self.allow_internet_access);
        let denied = self.deny_out.as_deref().unwrap_or_default();
        let all = denied.iter().any(|range| matches!(range.as_str(), "0.0.0.0/0" | "::/0"));
        let allowed = self.allow_out.as_deref().unwrap_or_default();
        if !denied.is_empty() && !all {
            return Err(unsupported("denyOut of anything but `0.0.0.0/0`"));
        }
        let cut_off = all || asked == Some(false);
        // What is allowed goes before what is denied; alone it changes nothing.
        if cut_off && !allowed.is_empty() {
            return Err(unsupported("allowOut of some addresses or domains while the rest is denied"));
        }
        Ok(NetworkPolicy { enabled: !cut_off })
    }

    /// Who may reach its ports.
    pub(crate) fn port_access(&self) -> PortAccess {
        if self.allow_public_traffic == Some(false) { PortAccess::Private } else { PortAccess::Public }
    }
}

/// Whether a value asks for nothing.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// `PUT /sandboxes/{id}/network`: replaces what a sandbox may reach.
pub(crate) async fn update(
    e2b: Visit,
    E2bPath(id): E2bPath<String>,
    E2bJson(wanted): E2bJson<NetworkConfig>,
) -> Result<StatusCode, E2bError> {
    let handle = e2b.find(&id)?;
    let network = Some(wanted.policy(None)?);
    handle.patch(PatchSandbox { network, ..PatchSandbox::default() }).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Result<bool, u16> {
        let config: NetworkConfig = serde_json::from_str(text).unwrap();
        config.policy(None).map(|policy| policy.enabled).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn what_can_be_said_is_and_the_rest_is_refused() {
        for (text, enabled) in [
            ("{}", true),
            (r#"{"allow_internet_access":false}"#, false),
            (r#"{"denyOut":["0.0.0.0/0"]}"#, false),
            (r#"{"allowOut":["8.8.8.8"]}"#, true),
            (r#"{"rules":{},"egressProxy":null,"denyOut":[]}"#, true),
        ] {
            assert_eq!(policy(text), Ok(enabled), "{text}");
        }
        for text in [
            r#"{"denyOut":["8.8.8.8"]}"#,
            r#"{"denyOut":["0.0.0.0/0"],"allowOut":["example.com"]}"#,
            r#"{"allow_internet_access":false,"allowOut":["1.1.1.1"]}"#,
            r#"{"rules":{"a.com":[]}}"#,
            r#"{"maskRequestHost":"x"}"#,
        ] {
            assert_eq!(policy(text), Err(400), "{text}");
        }
    }

    #[test]
    fn ports_are_open_unless_told_otherwise() {
        let access = |text: &str| serde_json::from_str::<NetworkConfig>(text).unwrap().port_access();
        assert_eq!(access("{}"), PortAccess::Public);
        assert_eq!(access(r#"{"allowPublicTraffic":false}"#), PortAccess::Private);
    }
}
