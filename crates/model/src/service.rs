//! Named processes of a sandbox that its guest supervises.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, Span};

/// What follows when a service's process ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// It is started again, however it ended.
    #[default]
    Always,
    /// It is started again unless it ended with code 0.
    OnFailure,
    /// It stays as it is.
    Never,
}

/// When a service starts without anybody saying so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartPolicy {
    /// Whenever the sandbox starts.
    #[default]
    Auto,
    /// When something asks for its port, or a service that needs it starts.
    OnDemand,
}

/// What a service is: either `argv` or `shell`, and how it is kept up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceSpec {
    /// Program and arguments; it stays in the foreground.
    #[serde(default)]
    pub argv: Vec<String>,
    /// A line for `sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Environment over the sandbox's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; the user's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User by name or number; the template's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The TCP port it listens on once it is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub port: Option<u16>,
    /// Services that must be up before it starts.
    #[serde(default)]
    pub needs: Vec<Name>,
    /// What follows when it ends.
    #[serde(default)]
    pub restart: RestartPolicy,
    /// When it starts.
    #[serde(default)]
    pub start: StartPolicy,
    /// How long it may take to end after `SIGTERM` before it is killed.
    #[serde(default = "usual_stop_timeout")]
    pub stop_timeout: Span,
}

fn usual_stop_timeout() -> Span {
    Span::seconds(10)
}

impl Default for ServiceSpec {
    fn default() -> Self {
        Self {
            argv: Vec::new(),
            shell: None,
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            port: None,
            needs: Vec::new(),
            restart: RestartPolicy::default(),
            start: StartPolicy::default(),
            stop_timeout: usual_stop_timeout(),
        }
    }
}

/// How a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServiceState {
    /// It runs, and listens if it has a port.
    Running,
    /// It waits for what it needs, or does not listen yet.
    Starting,
    /// It ended too soon and is started again after a pause.
    Backoff,
    /// It does not run: stopped, done, or not asked for yet.
    Stopped,
    /// It ended badly and is not started again.
    Failed,
    /// Its sandbox sleeps; it goes on, or starts again, when that wakes.
    Suspended,
}

impl ServiceState {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Starting => "starting",
            Self::Backoff => "backoff",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Suspended => "suspended",
        }
    }
}

impl std::fmt::Display for ServiceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a service's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceExit {
    /// Its exit code; 128 + signal if a signal ended it.
    pub exit_code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

/// Which bytes of a service's log are still kept, by absolute offset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogRange {
    /// The oldest byte that is kept.
    pub start: u64,
    /// How many bytes there have been.
    pub end: u64,
}

/// A service as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    pub name: Name,
    /// How it stands.
    pub state: ServiceState,
    /// The pid of its process inside, while it has one.
    pub pid: Option<u32>,
    /// Since when it is in its state; unknown while its sandbox sleeps.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// How often it was started again since its sandbox started.
    pub restarts: u64,
    /// How its last process ended.
    pub last_exit: Option<ServiceExit>,
    /// Why it is in its state, where that needs saying.
    pub reason: Option<String>,
    /// What is kept of its output.
    pub log: LogRange,
    /// What it is.
    pub spec: ServiceSpec,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn little_has_to_be_said() {
        let spec: ServiceSpec = serde_json::from_value(json!({"shell": "serve"})).unwrap();
        assert_eq!(spec, ServiceSpec { shell: Some("serve".into()), ..ServiceSpec::default() });
        let spec: ServiceSpec =
            serde_json::from_value(json!({"argv": ["x"], "restart": "on-failure", "start": "on-demand"})).unwrap();
        assert_eq!((spec.restart, spec.start), (RestartPolicy::OnFailure, StartPolicy::OnDemand));
        for wrong in [json!({"argv": ["x"], "port": 65536}), json!({"argv": ["x"], "prot": 1})] {
            assert!(serde_json::from_value::<ServiceSpec>(wrong).is_err());
        }
    }
}
