//! What all handlers share.

use std::sync::Arc;

use roost_host::{Handle, Host, HostError};
use roost_model::SandboxId;
use roost_proxy::Proxy;
use tokio_util::sync::CancellationToken;

/// The version of E2B's in-sandbox daemon whose behaviour is offered; clients choose their features by it.
pub(crate) const ENVD_VERSION: &str = "0.6.13";

/// E2B's wire in front of one host; cheap to clone, and one for all listeners.
#[derive(Debug, Clone)]
pub struct E2b {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    proxy: Proxy,
    closing: CancellationToken,
}

impl E2b {
    /// Puts the wire before a host. `closing` ends what has no end of its own.
    pub fn new(host: Host, proxy: Proxy, closing: CancellationToken) -> Self {
        Self { inner: Arc::new(Inner { host, proxy, closing }) }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.inner.host
    }

    /// The way to ports of sandboxes.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.inner.proxy
    }

    /// Cancelled when the daemon stops, so that streams without an end find one.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    /// The sandbox that a client means: by the id it was given here, or by Roost's own id or name. One that is gone is
    /// answered by its tombstone.
    pub(crate) fn find(&self, text: &str) -> Result<Handle, HostError> {
        let handle = match from_wire_id(text) {
            Some(id) => self.host().find(id.as_str())?,
            None => self.host().find(text)?,
        };
        handle.living()?;
        Ok(handle)
    }
}

/// The id as E2B's clients see it: without its kind, because it must be part of a host name, which has no `_`.
pub(crate) fn wire_id(id: &SandboxId) -> &str {
    id.as_str().strip_prefix(SandboxId::PREFIX).unwrap_or(id.as_str())
}

/// The id behind what a client was given.
pub(crate) fn from_wire_id(text: &str) -> Option<SandboxId> {
    format!("{}{text}", SandboxId::PREFIX).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_goes_out_as_a_label_and_comes_back() {
        let id = SandboxId::generate();
        let label = wire_id(&id);
        assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{label}");
        assert_eq!(from_wire_id(label), Some(id.clone()));
        assert_eq!(from_wire_id(id.as_str()), None);
        assert_eq!(from_wire_id("web"), None);
    }
}
