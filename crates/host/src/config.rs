//! What the host is told at its start.

use std::collections::BTreeSet;
use std::path::PathBuf;

use roost_model::{Capability, Domain, EngineChoice, IdlePolicy, Limits, SshView};

/// Settings of a running host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Short tag that names this daemon's kernel objects.
    pub instance: String,
    /// Ports of sandboxes are served below it; nothing if the daemon serves no HTTP.
    pub domain: Option<Domain>,
    /// Where the daemon is reached over SSH, if it is.
    pub ssh: Option<SshView>,
    /// The template of sandboxes that ask for none.
    pub default_template: String,
    /// Folders of the host from which callers who do not own it may have templates made.
    pub template_folders: Vec<PathBuf>,
    /// The engine of sandboxes that ask for none.
    pub default_engine: EngineChoice,
    /// Limits of sandboxes that ask for none.
    pub default_limits: Limits,
    /// The most that this host can give one sandbox.
    pub host_limits: Limits,
    /// When sandboxes fall asleep that ask for nothing else.
    pub default_idle: IdlePolicy,
    /// Capabilities beyond the usual ones.
    pub capabilities: CapabilityPolicy,
}

/// Which capabilities sandboxes get beyond the usual ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapabilityPolicy {
    /// Given to sandboxes that ask for none, and by limited tokens.
    pub default: BTreeSet<Capability>,
    /// The most that a sandbox can be given.
    pub allowed: BTreeSet<Capability>,
}
