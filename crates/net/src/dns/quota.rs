//! Bounds on questions under way, so that one sandbox cannot use up what all share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PER_CLIENT: usize = 64;
const TOTAL: usize = 2048;

/// Counts what is under way, per client and in all.
#[derive(Debug, Default)]
pub(super) struct Quota {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    clients: HashMap<IpAddr, usize>,
}

/// The right to one question; ends when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    quota: Arc<Quota>,
    client: IpAddr,
}

impl Quota {
    /// A permit, unless the client or all of them have too many.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr) -> Option<Permit> {
        let mut counts = self.counts();
        let own = counts.clients.get(&client).copied().unwrap_or_default();
        if own >= PER_CLIENT || counts.total >= TOTAL {
            return None;
        }
        counts.clients.insert(client, own + 1);
        counts.total += 1;
        Some(Permit { quota: Arc::clone(self), client })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.quota.counts();
        counts.total -= 1;
        if let Some(own) = counts.clients.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                counts.clients.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_the_others_share() {
        let quota = Arc::new(Quota::default());
        let greedy = IpAddr::from([100, 64, 0, 1]);
        let permits: Vec<_> = std::iter::from_fn(|| quota.take(greedy)).collect();
        assert_eq!(permits.len(), PER_CLIENT);
        assert!(quota.take(IpAddr::from([100, 64, 0, 2])).is_some());
        drop(permits);
        assert!(quota.take(greedy).is_some());
        assert!(quota.counts().clients.is_empty());
        assert_eq!(quota.counts().total, 0);
    }
}
