//! What a listener knows of whoever is at the other end of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::Extensions;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// One connection, as its listener and whoever checks tokens see it; an extension of requests. Clones are the same connection.
#[derive(Debug, Clone)]
pub struct Standing {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    known: AtomicBool,
    began: Instant,
    /// Milliseconds from then to the last byte in either direction.
    moved: AtomicU64,
    asked_to_leave: CancellationToken,
}

impl Standing {
    /// Somebody of whom nothing is known.
    pub fn stranger() -> Self {
        let asked_to_leave = CancellationToken::new();
        let (known, began, moved) = (AtomicBool::new(false), Instant::now(), AtomicU64::new(0));
        Self { inner: Arc::new(Inner { known, began, moved, asked_to_leave }) }
    }

    /// Notes that a request showed a token, a session or a sandbox's own secret that is good.
    ///
    /// From then on the connection is not counted among strangers', and never closed to make room for another.
    pub fn note_known(extensions: &Extensions) {
        if let Some(standing) = extensions.get::<Self>() {
            standing.inner.known.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it has shown who it is.
    pub fn is_known(&self) -> bool {
        self.inner.known.load(Ordering::Relaxed)
    }

    /// Notes that bytes have moved.
    pub fn note_moved(&self) {
        let since = u64::try_from(self.inner.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.inner.moved.store(since, Ordering::Relaxed);
    }

    /// When bytes last moved.
    pub fn moved_at(&self) -> Instant {
        self.inner.began + Duration::from_millis(self.inner.moved.load(Ordering::Relaxed))
    }

    /// Whether both are of one connection.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Has its connection closed.
    pub fn ask_to_leave(&self) {
        self.inner.asked_to_leave.cancel();
    }

    /// Resolves when it is to be closed.
    pub fn left(&self) -> WaitForCancellationFutureOwned {
        self.inner.asked_to_leave.clone().cancelled_owned()
    }
}
