//! Templates: immutable starting points.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Capability, CheckpointId, EngineChoice, LimitsRequest, TemplateId, TemplateTag};

/// What a template gives the sandboxes made from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateDefaults {
    /// Who commands run as; `root` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where they start; the user's home if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Their environment.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Limits that differ from the daemon's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// What isolates them unless they ask for another: `native`, `gvisor` or `auto`; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub engine: Option<EngineChoice>,
    /// Capabilities that root in them gets beyond the usual ones unless they ask for others; the daemon's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeSet<Capability>>,
}

impl TemplateDefaults {
    /// These, and where they leave something open, others.
    pub fn or(self, others: Self) -> Self {
        let mut env = others.env;
        env.extend(self.env);
        Self {
            user: self.user.or(others.user),
            workdir: self.workdir.or(others.workdir),
            env,
            limits: self.limits.or(others.limits),
            engine: self.engine.or(others.engine),
            capabilities: self.capabilities.or(others.capabilities),
        }
    }
}

/// A template as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateView {
    /// Its id.
    pub id: TemplateId,
    /// Its name.
    pub name: String,
    /// Digest of its image.
    pub digest: String,
    /// Bytes of its image.
    pub size: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// What it gives its sandboxes.
    pub defaults: TemplateDefaults,
    /// Whether its sandboxes start with memory and running processes.
    #[serde(default)]
    pub memory: bool,
    /// What the container image that it was imported from would start; nothing is started by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Names of its versions; `name:tag` starts a sandbox from one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<TemplateTag>,
    /// How many sandboxes stand on it.
    pub sandboxes: u64,
}

/// What to change about a version of a template; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchTemplate {
    /// What isolates its sandboxes unless they ask for another: `native`, `gvisor`, `auto`, or `default` for the daemon's
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

/// A template to import or build; answered by a stream of progress lines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportTemplate {
    /// The name it gets.
    pub name: String,
    /// A recipe built into the daemon: `mini` or `base`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// A folder or tar file on the daemon's host: any for the owner of its socket, otherwise below its `template_folders`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A checkpoint to make it of; its processes run in every sandbox made from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promote: Option<CheckpointId>,
    /// Put it in the place of a template of that name; sandboxes made from the old one go on.
    #[serde(default)]
    pub replace: bool,
    /// What it gives its sandboxes.
    #[serde(default)]
    pub defaults: TemplateDefaults,
}
