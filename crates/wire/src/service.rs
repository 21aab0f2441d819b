//! Named processes that the guest keeps up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Attach, Exit, Program, StreamRange};

/// What follows when a service's process ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// It is started again.
    #[default]
    Always,
    /// It is started again unless it ended with code 0.
    OnFailure,
    /// It stays as it is.
    Never,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name: lowercase letters, digits and dashes.
    pub name: String,
    /// What to execute.
    pub program: Program,
    /// Added to the environment last.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working folder; the sandbox's own or the user's home when absent.
    #[serde(default)]
    pub cwd: Option<String>,
    /// User name or `uid[:gid]`; the sandbox's default user when absent.
    #[serde(default)]
    pub user: Option<String>,
    /// Port it listens on once it is up.
    #[serde(default)]
    pub port: Option<u16>,
    /// Names of services that must be up before it starts.
    #[serde(default)]
    pub needs: Vec<String>,
    /// What follows when it ends.
    #[serde(default)]
    pub restart: Restart,
    /// Start only when asked for.
    #[serde(default)]
    pub on_demand: bool,
    /// Somebody stopped it: it stays down until somebody starts it.
    #[serde(default)]
    pub stopped: bool,
    /// How long it may take to end before it is killed.
    #[serde(default)]
    pub stop_timeout_ms: u64,
}

/// All services of a sandbox. What is not in it any more is stopped and forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSet {
    /// Grows with every change; a set that is not newer than the last one changes nothing.
    pub revision: u64,
    /// The services.
    #[serde(default)]
    pub services: Vec<Service>,
}

/// How services are kept up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceLimits {
    /// The pause before the first restart; it doubles with every further one.
    pub first_pause_ms: u64,
    /// The longest pause.
    pub longest_pause_ms: u64,
    /// A service that ran this long starts with the first pause again.
    pub healthy_ms: u64,
    /// Bytes of one file of a log; two of them are kept.
    pub log_file: u64,
}

impl Default for ServiceLimits {
    fn default() -> Self {
        Self { first_pause_ms: 1000, longest_pause_ms: 60_000, healthy_ms: 30_000, log_file: 4 * 1024 * 1024 }
    }
}

/// Names a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceName {
    /// Which one.
    pub name: String,
}

/// Has a service up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStart {
    /// Which one.
    pub name: String,
    /// End the process it has first.
    #[serde(default)]
    pub again: bool,
    /// Something asks for its port: a pause after a crash is waited out, not cut short.
    #[serde(default)]
    pub demand: bool,
    /// How long to wait for it to be up, or to end.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Attaches to a service's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceLog {
    /// Whose.
    pub name: String,
    /// How; the log is standard output.
    pub attach: Attach,
}

/// How a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// It runs, and listens if it has a port.
    Running,
    /// It waits for what it needs, or does not listen yet.
    Starting,
    /// It ended and is started again after a pause.
    Backoff,
    /// It does not run.
    Stopped,
    /// It ended badly and is not started again.
    Failed,
}

/// What is known about a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceInfo {
    /// Its name.
    pub name: String,
    /// How it stands.
    pub state: ServiceState,
    /// Its process, while it has one.
    #[serde(default)]
    pub pid: Option<i32>,
    /// Since when it is in its state, in milliseconds since the epoch.
    #[serde(default)]
    pub since_ms: u64,
    /// How often it was started again.
    #[serde(default)]
    pub restarts: u64,
    /// How its last process ended.
    #[serde(default)]
    pub last_exit: Option<Exit>,
    /// Why it is in its state, where that needs saying.
    #[serde(default)]
    pub reason: Option<String>,
    /// What is kept of its log.
    #[serde(default)]
    pub log: StreamRange,
    /// The end of its log, where a start did not succeed.
    #[serde(default)]
    pub tail: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GuestConfig, Request};

    /// Text that a first-version peer sends; must be understood for ever.
    #[test]
    fn text_of_version_one_is_understood() {
        let text =
            r#"{"services_set":{"revision":3,"services":[{"name":"web","program":{"shell":"serve"},"port":80}]}}"#;
        let Ok(Request::ServicesSet(set)) = serde_json::from_str(text) else { panic!("{text}") };
        assert_eq!((set.revision, set.services[0].port), (3, Some(80)));
        assert!(matches!(serde_json::from_str(r#""services""#).unwrap(), Request::Services));
        let start: Request = serde_json::from_str(r#"{"service_start":{"name":"web"}}"#).unwrap();
        assert!(matches!(start, Request::ServiceStart(ServiceStart { again: false, wait_ms: 0, .. })));
    }

    #[test]
    fn a_configuration_without_services_has_none() {
        let mut config = serde_json::to_value(GuestConfig::new("sbx_1", "a", crate::Key::from_bytes([1; 32]))).unwrap();
        config.as_object_mut().unwrap().remove("services");
        config.as_object_mut().unwrap().remove("service_limits");
        let config: GuestConfig = serde_json::from_value(config).unwrap();
        assert_eq!((config.services, config.service_limits), (ServiceSet::default(), ServiceLimits::default()));
    }
}
