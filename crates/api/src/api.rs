//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub(crate) use roost_host::to_the_end;
use roost_host::{Caller, Host, HostError, Visitor};
use roost_proxy::Proxy;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::errors::ApiError;
use crate::metrics::Metrics;

/// The API of one host; cheap to clone, and one for all listeners so that they count together.
#[derive(Debug, Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Host,
    metrics: Metrics,
    requests: AtomicU64,
    proxy: Proxy,
    lifetime: Lifetime,
}

/// What must come to an end when the daemon stops.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifetime {
    /// Cancelled when the daemon stops, so that streams without an end find one.
    pub(crate) closing: CancellationToken,
    /// WebSocket conversations, which outlive the connection task they came from.
    pub(crate) conversations: TaskTracker,
}

impl Api {
    /// Puts an API before a host.
    pub fn new(host: Host) -> Self {
        let lifetime = Lifetime::default();
        let proxy = Proxy::new(host.clone(), lifetime.closing.clone(), lifetime.conversations.clone());
        let (metrics, requests) = (Metrics::new(), AtomicU64::new(0));
        Self { inner: Arc::new(Inner { host, metrics, requests, proxy, lifetime }) }
    }

    /// The host for somebody.
    pub(crate) fn visitor(&self, caller: Caller) -> Visitor {
        self.inner.host.visit(caller)
    }

    /// The host, for finding out who somebody is. Handlers take a `Visit` instead, which knows what their caller may.
    pub(crate) fn beyond_tokens(&self) -> &Host {
        &self.inner.host
    }

    /// The way to ports of sandboxes.
    pub fn proxy(&self) -> &Proxy {
        &self.inner.proxy
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// A number for the next request's span.
    pub(crate) fn next_request(&self) -> u64 {
        self.inner.requests.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn lifetime(&self) -> &Lifetime {
        &self.inner.lifetime
    }

    /// Cancelled when the daemon stops.
    pub fn closing(&self) -> &CancellationToken {
        &self.lifetime().closing
    }

    /// WebSocket and other conversations under way, which outlive the connection task they came from.
    pub fn conversations(&self) -> &TaskTracker {
        &self.lifetime().conversations
    }

    /// Does one of the operations whose count and duration are shown in the metrics.
    pub(crate) async fn measured<T>(
        &self,
        operation: &'static str,
        work: impl Future<Output = Result<T, HostError>>,
    ) -> Result<T, ApiError> {
        let started = Instant::now();
        let outcome = work.await;
        let word = outcome.as_ref().map_or_else(|error| error.code().as_str(), |_| "ok");
        self.metrics().operation(operation, word, started.elapsed());
        Ok(outcome?)
    }
}

impl From<Host> for Api {
    fn from(host: Host) -> Self {
        Self::new(host)
    }
}
