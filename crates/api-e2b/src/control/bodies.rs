//! What is sent and answered, in E2B's names.

use std::collections::BTreeMap;

use jiff::Timestamp;
use roost_host::Handle;
use roost_model::{Level, OnTtl, PortAccess, SandboxView, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::metadata;
use super::network::NetworkConfig;
use crate::E2b;
use crate::e2b::{ENVD_VERSION, wire_id};
use crate::token::{access_token, traffic_token};
use crate::usage::whole_cpus;

/// Named where E2B names the machine a sandbox runs on.
pub(crate) const CLIENT_ID: &str = "roost";

/// What to make, in both generations of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template: String,
    /// Seconds.
    pub(crate) timeout: Option<i64>,
    #[serde(default)]
    pub(crate) auto_pause: Option<bool>,
    pub(crate) auto_pause_memory: Option<bool>,
    pub(crate) auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    pub(crate) allow_internet_access: Option<bool>,
    pub(crate) network: Option<NetworkConfig>,
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    pub(crate) env_vars: Option<BTreeMap<String, String>>,
    pub(crate) mcp: Option<Value>,
    pub(crate) iam: Option<Value>,
    pub(crate) volume_mounts: Option<Value>,
}

/// Whether what needs a paused sandbox wakes it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct AutoResume {
    #[serde(default)]
    pub(crate) enabled: bool,
}

/// A sandbox as its maker gets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sandbox {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "sandboxID")]
    sandbox: String,
    #[serde(rename = "clientID")]
    client: &'static str,
    alias: String,
    envd_version: &'static str,
    envd_access_token: String,
    traffic_access_token: Option<String>,
    domain: Option<String>,
}

impl Sandbox {
    pub(crate) fn of(e2b: &E2b, handle: &Handle) -> Self {
        let view = handle.view();
        Self {
            alias: view.template.clone(),
            template: view.template,
            sandbox: wire_id(handle.id()).to_owned(),
            client: CLIENT_ID,
            envd_version: ENVD_VERSION,
            envd_access_token: access_token(e2b.beyond_tokens(), handle.id()),
            traffic_access_token: (view.port_access == PortAccess::Private)
                .then(|| traffic_token(e2b.beyond_tokens(), handle.id())),
            domain: domain(e2b),
        }
    }
}

fn domain(e2b: &E2b) -> Option<String> {
    e2b.beyond_tokens().config().domain.as_ref().map(|domain| domain.authority().to_owned())
}

/// The two states that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Standing {
    /// Awake, or asleep in a way that nobody notices.
    Running,
    /// Asleep until somebody resumes it.
    Paused,
}

impl Standing {
    pub(crate) fn of(view: &SandboxView) -> Self {
        let asleep = matches!(view.state, State::Suspended | State::Suspending);
        if view.stays && asleep { Self::Paused } else { Self::Running }
    }

    /// What a list may be narrowed to.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        match word {
            "running" => Some(Self::Running),
            "paused" => Some(Self::Paused),
            _ => None,
        }
    }
}

/// A sandbox in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Listed {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "sandboxID")]
    sandbox: String,
    #[serde(rename = "clientID")]
    client: &'static str,
    alias: String,
    started_at: String,
    end_at: String,
    cpu_count: u64,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    state: Standing,
    envd_version: &'static str,
    metadata: BTreeMap<String, String>,
}

impl Listed {
    pub(crate) fn of(view: &SandboxView) -> Self {
        Self {
            template: view.template.clone(),
            sandbox: wire_id(&view.id).to_owned(),
            client: CLIENT_ID,
            alias: view.template.clone(),
            started_at: moment(view.created_at),
            end_at: moment(end_of(view)),
            cpu_count: whole_cpus(view.limits.cpus),
            memory_mb: view.limits.memory >> 20,
            disk_size_mb: view.limits.disk >> 20,
            state: Standing::of(view),
            envd_version: ENVD_VERSION,
            metadata: metadata::from_labels(&view.labels),
        }
    }
}

/// Everything about one sandbox.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    #[serde(flatten)]
    listed: Listed,
    envd_access_token: String,
    allow_internet_access: bool,
    domain: Option<String>,
    network: Value,
    lifecycle: Lifecycle,
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_mode: Option<&'static str>,
}

/// What happens at the end of a sandbox's time, and after.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lifecycle {
    auto_resume: bool,
    on_timeout: &'static str,
}

impl Detail {
    pub(crate) fn of(e2b: &E2b, view: &SandboxView) -> Self {
        let paused = Standing::of(view) == Standing::Paused;
        let mode = if view.level == Some(Level::Files) { "filesystem" } else { "full" };
        Self {
            listed: Listed::of(view),
            envd_access_token: access_token(e2b.beyond_tokens(), &view.id),
            allow_internet_access: view.network.enabled,
            domain: domain(e2b),
            network: serde_json::json!({ "allowPublicTraffic": view.port_access == PortAccess::Public }),
            lifecycle: Lifecycle {
                auto_resume: view.auto_resume,
                on_timeout: if view.on_ttl == OnTtl::Delete { "kill" } else { "pause" },
            },
            pause_mode: (paused && view.state == State::Suspended).then_some(mode),
        }
    }
}

/// When a sandbox ends: one that is paused ended its time when it fell asleep, one without an end has a far one.
fn end_of(view: &SandboxView) -> Timestamp {
    match view.expires_at {
        Some(end) => end,
        None if view.stays => view.state_since,
        None => Timestamp::MAX,
    }
}

/// A moment as every client reads it.
pub(crate) fn moment(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_cpus_are_as_clients_read_them() {
        assert_eq!(moment(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000000Z");
        assert_eq!([0.25, 1.0, 1.5].map(whole_cpus), [1, 1, 2]);
        assert_eq!(serde_json::to_value(Standing::Paused).unwrap(), "paused");
        assert_eq!(Standing::parse("running"), Some(Standing::Running));
    }

    #[test]
    fn a_request_needs_nothing_but_a_template() {
        let wanted: NewSandbox = serde_json::from_str(r#"{"templateID":"base","secure":true,"unknown":1}"#).unwrap();
        assert_eq!((wanted.template.as_str(), wanted.timeout), ("base", None));
        let wanted: NewSandbox =
            serde_json::from_str(r#"{"templateID":"b","allow_internet_access":false,"autoResume":{"enabled":true}}"#)
                .unwrap();
        assert_eq!(wanted.allow_internet_access, Some(false));
        assert!(wanted.auto_resume.unwrap().enabled);
        assert!(serde_json::from_str::<NewSandbox>("{}").is_err());
    }
}
