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

    /// The host, for what is proved otherwise than by a token of Roost's: by a sandbox's own token, a signature, a link.
    /// Routes of the control plane take a `Visit` instead, which knows what their caller may.
    pub(crate) fn beyond_tokens(&self) -> &Host {
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

    /// The sandbox that a client of it means, before that has shown its proof: by the id it was given here, or by Roost's own
    /// id or name. One that is gone is answered by its tombstone.
    pub(crate) fn sandbox(&self, text: &str) -> Result<Handle, HostError> {
        let handle = match from_wire_id(text) {
            Some(id) => self.beyond_tokens().find(id.as_str())?,
            None => self.beyond_tokens().find(text)?,
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
