//! From what is remembered to what is shown.

use roost_model::{Capability, SandboxView};
use roost_store::SandboxRecord;

/// The public view of a record.
pub(crate) fn view(record: &SandboxRecord) -> SandboxView {
    SandboxView {
        id: record.id.clone(),
        name: record.name.clone(),
        state: record.phase.state(),
        level: record.phase.level(),
        engine: record.engine,
        template: record.template.clone(),
        ephemeral: record.ephemeral,
        created_at: record.created_at,
        state_since: record.state_since,
        generation: record.generation,
        parent: record.parent.clone(),
        limits: record.limits.clone(),
        idle: record.idle.clone(),
        quiet_since: record.quiet_since,
        ttl: record.ttl,
        expires_at: record.expires_at,
        on_ttl: record.on_ttl,
        stays: record.stays,
        auto_resume: record.auto_resume,
        port_access: record.port_access,
        labels: record.labels.clone(),
        env: record.env.clone(),
        network: record.network.clone(),
        // An older version gave its processes all of them.
        capabilities: record.capabilities.clone().unwrap_or_else(|| Capability::ALL.into()),
        ports: Vec::new(),
        reason: record.reason.clone(),
        tombstone: record.tombstone.clone(),
        warnings: Vec::new(),
    }
}
