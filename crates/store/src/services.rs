//! What is remembered of a sandbox's services.

use std::collections::BTreeMap;
use std::fmt;

use roost_model::{Name, RestartPolicy, ServiceSpec, Span, StartPolicy};
use serde::{Deserialize, Serialize};

/// One service.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecord {
    /// What it is.
    #[serde(with = "StoredSpec")]
    pub spec: ServiceSpec,
    /// Somebody stopped it: it stays down until somebody starts it.
    #[serde(default)]
    pub stopped: bool,
}

/// Says what it is up to; its environment holds secrets and stays out of logs.
impl fmt::Debug for ServiceRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceRecord").field("stopped", &self.stopped).finish_non_exhaustive()
    }
}

/// All services of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRecords {
    /// Grows with every change, so that a guest can tell the newer of two sets.
    #[serde(default)]
    pub revision: u64,
    /// The services.
    #[serde(default)]
    pub by_name: BTreeMap<Name, ServiceRecord>,
}

impl ServiceRecords {
    /// What they are, without how they stand.
    pub fn specs(&self) -> BTreeMap<Name, ServiceSpec> {
        self.by_name.iter().map(|(name, record)| (name.clone(), record.spec.clone())).collect()
    }
}

/// The API's own type refuses fields it does not know, which is right for a request and wrong for what an older or newer
/// daemon has stored.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ServiceSpec", default = "ServiceSpec::default")]
struct StoredSpec {
    argv: Vec<String>,
    shell: Option<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    user: Option<String>,
    port: Option<u16>,
    needs: Vec<Name>,
    restart: RestartPolicy,
    start: StartPolicy,
    stop_timeout: Span,
}
