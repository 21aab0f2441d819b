//! Who may connect to an address just now.
//!
//! A connection that is only half made when a sandbox's kernel is saved may be one that this kernel cannot save. So whoever saves
//! closes the gate before: what has begun to connect gets through, and what comes later waits until it is open again.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// A connect takes a round trip to a kernel that runs. One that takes longer, to a sandbox that says nothing, is no reason to wait.
const PATIENCE: Duration = Duration::from_millis(100);

/// As long as this is there no connect to its address begins.
#[derive(Debug)]
pub struct NoConnects(#[expect(dead_code, reason = "what counts is that it is held")] OwnedRwLockWriteGuard<()>);

/// One gate for each address that somebody connects to or keeps closed.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<HashMap<Ipv4Addr, Weak<RwLock<()>>>>);

impl Gates {
    /// Waits until the gate is open; it stays so until the guard is dropped.
    pub(crate) async fn pass(&self, address: Ipv4Addr) -> OwnedRwLockReadGuard<()> {
        self.of(address).read_owned().await
    }

    /// Closes it behind those who are passing; nothing if they take too long.
    pub(crate) async fn close(&self, address: Ipv4Addr) -> Option<NoConnects> {
        let closed = tokio::time::timeout(PATIENCE, self.of(address).write_owned()).await;
        closed.ok().map(NoConnects)
    }

    fn of(&self, address: Ipv4Addr) -> Arc<RwLock<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(&address).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() == gates.capacity() {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::default();
        gates.insert(address, Arc::downgrade(&gate));
        gate
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const ONE: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);
    const OTHER: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 2);

    #[tokio::test]
    async fn who_has_begun_gets_through_and_who_comes_later_waits() {
        let gates = Gates::default();
        let begun = gates.pass(ONE).await;
        let mut closing = Box::pin(gates.close(ONE));
        assert!(closing.as_mut().now_or_never().is_none());
        let mut later = Box::pin(gates.pass(ONE));
        assert!(later.as_mut().now_or_never().is_none());
        assert!(gates.pass(OTHER).now_or_never().is_some());
        drop(begun);
        let closed = closing.await.unwrap();
        assert!(later.as_mut().now_or_never().is_none());
        drop(closed);
        later.await;
    }

    #[tokio::test]
    async fn who_never_gets_through_keeps_nobody_from_closing_for_long() {
        let gates = Gates::default();
        let _begun = gates.pass(ONE).await;
        assert!(gates.close(ONE).await.is_none());
        assert!(gates.pass(ONE).now_or_never().is_some());
    }

    #[tokio::test]
    async fn gates_that_nobody_uses_are_forgotten() {
        let gates = Gates::default();
        for number in 0..1000 {
            drop(gates.pass(Ipv4Addr::from_bits(number)).await);
        }
        assert!(gates.0.lock().unwrap().len() < 10);
    }
}
