//! Connections to ports that have finished an exchange and can carry another.
//!
//! They are kept for a few seconds, less than servers keep them, and used for requests alone that can be sent again: a
//! server may hang up at any time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use hyper::client::conn::http1::SendRequest;
use roost_model::SandboxId;
use tokio::task::AbortHandle;

/// Node.js hangs up after five seconds.
const IDLE: Duration = Duration::from_secs(3);
/// More than a browser opens to one host.
const MOST: usize = 8;

/// A connection to a port that speaks HTTP.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) sender: SendRequest<Body>,
    /// What moves its bytes.
    pub(crate) driver: AbortHandle,
}

/// Where a connection leads: the sandbox, the way to it, and the port.
pub(crate) type Place = (SandboxId, u32, u16);

/// The connections that are kept.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    idle: Mutex<HashMap<Place, Vec<(Instant, Upstream)>>>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Vec<(Instant, Upstream)>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to a place that looks alive.
    pub(crate) async fn take(&self, place: &Place) -> Option<Upstream> {
        loop {
            let (since, mut upstream) = self.lock().get_mut(place)?.pop()?;
            if since.elapsed() < IDLE && upstream.sender.ready().await.is_ok() {
                return Some(upstream);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(self: &Arc<Self>, place: Place, upstream: Upstream) {
        if upstream.sender.is_closed() {
            return;
        }
        let mut idle = self.lock();
        let first = idle.is_empty();
        let here = idle.entry(place).or_default();
        if here.len() < MOST {
            here.push((Instant::now(), upstream));
        }
        drop(idle);
        if first {
            tokio::spawn(sweep(Arc::clone(self)));
        }
    }
}

/// Hangs up on what nobody has used, until nothing is left.
async fn sweep(kept: Arc<Kept>) {
    loop {
        tokio::time::sleep(IDLE / 2).await;
        let mut idle = kept.lock();
        for here in idle.values_mut() {
            here.retain(|(since, _)| since.elapsed() < IDLE);
        }
        idle.retain(|_, here| !here.is_empty());
        if idle.is_empty() {
            return;
        }
    }
}
