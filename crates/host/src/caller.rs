//! Who asks: whoever owns the host, or the holder of a token or a key with its limits.
//!
//! A [`Handle`] knows for whom it was found, so that what destroys is refused in one place, whichever surface asks.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use roost_model::{Access, Capability, CreateSandbox, OnTtl, PatchSandbox, Refused, Subject, TokenId, TokenView};
use roost_store::SandboxRecord;

use crate::actor::expiry;
use crate::handle::Handle;
use crate::{CapabilityPolicy, HostError};

/// Who asks, and what of it is allowed; cheap to clone.
#[derive(Debug, Clone)]
pub struct Caller {
    access: Arc<Access>,
    /// As whom sandboxes are counted.
    id: Option<Arc<str>>,
    /// What it is called in refusals: `token`, `key`.
    noun: &'static str,
    /// Whether the host itself asks, or the owner of the daemon's socket.
    owns_host: bool,
}

static EVERYTHING: LazyLock<Arc<Access>> = LazyLock::new(Arc::default);

impl Caller {
    /// Whoever owns the host, and the host itself.
    pub fn owner() -> Self {
        Self { access: EVERYTHING.clone(), id: None, noun: "caller", owns_host: true }
    }

    /// A browser that the owner logged in: it commands every sandbox, but not the host.
    pub fn session() -> Self {
        Self { access: EVERYTHING.clone(), id: None, noun: "session", owns_host: false }
    }

    /// The holder of something with limits: what it is called (`token`, `key`), and its id, by which the sandboxes that it
    /// makes are counted.
    pub fn holder(noun: &'static str, id: &str, access: Access) -> Self {
        Self { access: Arc::new(access), id: Some(id.into()), noun, owns_host: false }
    }

    /// What it may.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// Whether the files of the host are the caller's own to read.
    pub(crate) fn owns_host(&self) -> bool {
        self.owns_host
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The token by which it came, if it came by one.
    pub(crate) fn token(&self) -> Option<TokenId> {
        self.id()?.parse().ok()
    }

    /// Whether a sandbox is within reach.
    pub(crate) fn reaches(&self, record: &SandboxRecord) -> bool {
        self.access.reaches(Subject { id: &record.id, name: &record.name, labels: &record.labels })
    }

    pub(crate) fn allow<T>(&self, decided: Result<T, Refused>) -> Result<T, HostError> {
        decided.map_err(|refused| HostError::Forbidden(format!("this {} {refused}", self.noun)))
    }

    /// A sandbox to make, brought within reach.
    pub(crate) fn shaped(
        &self,
        mut wanted: CreateSandbox,
        made_up: impl FnOnce() -> roost_model::Name,
    ) -> Result<CreateSandbox, HostError> {
        let asked = wanted.name.as_deref().map(str::parse).transpose()?;
        let name = self.allow(self.access.name_for(asked, made_up))?;
        self.allow(self.access.label_for(name.as_str(), &mut wanted.labels))?;
        wanted.name = Some(name.to_string());
        Ok(wanted)
    }

    /// Refuses capabilities beyond the daemon's default to callers with limits.
    pub(crate) fn may_give(
        &self,
        wanted: Option<&BTreeSet<Capability>>,
        policy: &CapabilityPolicy,
    ) -> Result<(), HostError> {
        match wanted {
            Some(wanted) if !wanted.is_subset(&policy.default) => {
                let what = format!("give a sandbox the capabilities {}", Capability::show_set(wanted));
                self.allow(self.access.without_limits(&what))
            }
            _ => Ok(()),
        }
    }

    /// Whether a sandbox may be changed so.
    pub(crate) fn may_patch(&self, record: &SandboxRecord, patch: &PatchSandbox) -> Result<(), HostError> {
        if let Some(labels) = &patch.labels {
            self.allow(self.access.may_relabel(labels))?;
        }
        if self.access.may_destroy || !ends_sooner(record, patch, Timestamp::now())? {
            return Ok(());
        }
        self.allow(self.access.may_destroy("let a sandbox end sooner"))
    }
}

impl From<&TokenView> for Caller {
    fn from(token: &TokenView) -> Self {
        Self::holder("token", token.id.as_str(), token.access.clone())
    }
}

/// Whether a change brings the end of a sandbox nearer.
fn ends_sooner(record: &SandboxRecord, patch: &PatchSandbox, now: Timestamp) -> Result<bool, HostError> {
    let end = |on_ttl: OnTtl, ttl, at: Option<Timestamp>| match (on_ttl, at) {
        (OnTtl::Delete, Some(at)) => at,
        // One that stays asleep has its whole time before it when it wakes.
        (OnTtl::Delete, None) => expiry(now, ttl).ok().flatten().unwrap_or(Timestamp::MAX),
        _ => Timestamp::MAX,
    };
    let ttl = patch.ttl.or(record.ttl);
    let at = match patch.ttl {
        Some(ttl) => expiry(now, Some(ttl))?,
        None => record.expires_at,
    };
    let after = end(patch.on_ttl.unwrap_or(record.on_ttl), ttl, at);
    Ok(after < end(record.on_ttl, record.ttl, record.expires_at))
}

impl Handle {
    /// The same sandbox for somebody else.
    pub(crate) fn asked_by(self, caller: &Caller) -> Self {
        Self { caller: caller.clone(), ..self }
    }

    /// Refuses whoever may destroy nothing; `what` reads on after `it cannot`.
    pub(crate) fn may_destroy(&self, what: &str) -> Result<(), HostError> {
        self.caller.allow(self.caller.access.may_destroy(what))
    }
}
