//! What is sent and answered, in E2B's names.

use std::collections::BTreeMap;

use roost_host::Handle;
use serde::{Deserialize, Serialize};

use crate::E2b;
use crate::e2b::{ENVD_VERSION, wire_id};
use crate::token::access_token;

/// Named where E2B names the machine a sandbox runs on.
pub(crate) const CLIENT_ID: &str = "roost";

/// What to make, in both generations of the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewSandbox {
    #[serde(rename = "templateID")]
    pub(crate) template: String,
    /// Seconds.
    #[serde(default)]
    pub(crate) timeout: Option<i64>,
    #[serde(default)]
    pub(crate) metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(crate) env_vars: Option<BTreeMap<String, String>>,
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
    envd_version: &'static str,
    envd_access_token: String,
    domain: Option<String>,
}

impl Sandbox {
    pub(crate) fn of(e2b: &E2b, handle: &Handle) -> Self {
        Self {
            template: handle.view().template,
            sandbox: wire_id(handle.id()).to_owned(),
            client: CLIENT_ID,
            envd_version: ENVD_VERSION,
            envd_access_token: access_token(handle),
            domain: e2b.host().config().domain.as_ref().map(|domain| domain.authority().to_owned()),
        }
    }
}
