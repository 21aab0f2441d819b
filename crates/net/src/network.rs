//! The face of the crate: an opened network of one instance.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;

use crate::config::Config;
use crate::dialer::Dialer;
use crate::dns::Forwarder;
use crate::error::{AccessError, DestroyError, OpenError, PlugError, UnplugError};
use crate::gates::NoConnects;
use crate::keeper::Keeper;
use crate::probe::{self, Finding, HostSide};
use crate::router;
use crate::slot::{Access, NoSlot, Pool, Slot};
use crate::worker::Worker;

/// The network of one instance; clones share it.
///
/// Dropping the last clone stops DNS and the daemon's own threads, but leaves the router and all plugged
/// slots in place for the next daemon. [`Network::close`] removes them.
#[derive(Clone, Debug)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    keeper: Keeper,
    worker: Worker,
    dialer: Dialer,
    forwarder: Forwarder,
    pool: Mutex<Pool>,
    /// A setting of the host that was changed at the start.
    changed: Option<Finding>,
    host: HostSide,
}

impl Network {
    /// Sets up the router of the instance, or takes over the one that an earlier daemon left.
    ///
    /// `in_use` are the slots of living sandboxes: they go on undisturbed. Every other is removed.
    pub async fn open(config: Config, in_use: &[(Slot, Access)]) -> Result<Self, OpenError> {
        config.check()?;
        let resolvers = config.resolvers.clone();
        let pool = Pool::new(in_use.iter().map(|(slot, _)| *slot), config.slots);
        let host = HostSide::of(&config);
        let (worker, (keeper, dialer, sockets, changed)) = Worker::start(config, in_use.to_vec(), |router, loaded| {
            probe::raise_neighbour_limits();
            let changed = probe::enable_forwarding();
            let sockets =
                router.visit(crate::dns::Sockets::bind).map_err(OpenError::Namespace)?.map_err(OpenError::Dns)?;
            let netns = || router.netns().try_clone_to_owned().map_err(OpenError::Namespace);
            let dialer = Dialer::start(netns()?).map_err(OpenError::Thread)?;
            let keeper = Keeper::start(loaded, netns()?).map_err(OpenError::Thread)?;
            Ok((keeper, dialer, sockets, changed))
        })
        .await?;
        let forwarder = Forwarder::start(sockets, resolvers).map_err(OpenError::Dns)?;
        let pool = Mutex::new(pool);
        Ok(Self { inner: Arc::new(Inner { keeper, worker, dialer, forwarder, pool, changed, host }) })
    }

    /// Whether there is a slot to reserve, as far as others leave it.
    pub fn check_slot(&self) -> Result<(), NoSlot> {
        self.pool().check()
    }

    /// Reserves a slot; the most recently released ones come last.
    pub fn allocate(&self) -> Result<Slot, NoSlot> {
        self.pool().allocate()
    }

    /// Gives a slot's number back, after [`Network::unplug`].
    pub fn release(&self, slot: Slot) {
        self.pool().release(slot);
    }

    /// Connects the network namespace of a sandbox, which must have no `eth0` yet.
    ///
    /// On failure nothing of the slot is left. If the caller stops waiting, the work is done all the
    /// same, so an [`Network::unplug`] has to follow.
    pub async fn plug(&self, slot: Slot, netns: OwnedFd, access: Access) -> Result<(), PlugError> {
        self.inner.keeper.keep_flows(slot);
        self.inner
            .worker
            .run(move |router| router.plug(slot, netns.as_fd(), access))
            .await
            .unwrap_or(Err(PlugError::Closed))
    }

    /// Cuts a slot off at once; its link goes with the sandbox's namespace, and its tracked flows soon after. May be repeated.
    pub async fn unplug(&self, slot: Slot) -> Result<(), UnplugError> {
        let cut_off = self
            .inner
            .worker
            .run(move |router| router.grant(slot, None))
            .await
            .ok_or(UnplugError::Closed)?
            .map_err(|source| UnplugError::Filter { slot, source });
        if cut_off.is_ok() {
            self.inner.keeper.forget_flows(slot);
        }
        cut_off
    }

    /// Changes what a plugged slot may reach, for packets of existing connections too.
    pub async fn set_access(&self, slot: Slot, access: Access) -> Result<(), AccessError> {
        self.inner
            .worker
            .run(move |router| {
                if !router.is_plugged(slot) {
                    return Err(AccessError::NotPlugged(slot));
                }
                router.grant(slot, Some(access)).map_err(|source| AccessError::Filter { slot, source })
            })
            .await
            .unwrap_or(Err(AccessError::Closed))
    }

    /// Connects to a port of a slot's address, or to anything else the router reaches.
    pub async fn connect(&self, to: SocketAddrV4, timeout: Duration) -> io::Result<TcpStream> {
        self.inner.dialer.connect(to, timeout).await
    }

    /// Lets nobody begin to connect to a slot while the result is held, and waits for those who have begun, but not for long.
    pub async fn hold_connects(&self, slot: Slot) -> Option<NoConnects> {
        self.inner.dialer.hold_back(slot.address()).await
    }

    /// Removes the router and everything else of the instance; sandboxes lose their network.
    ///
    /// Other clones then answer that the network is closed.
    pub async fn close(self) -> Result<(), DestroyError> {
        self.inner.forwarder.stop();
        // Otherwise the keeper would take the removal of the host's table for another program's doing.
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || inner.keeper.stop()).await.map_err(|_| DestroyError::Closed)?;
        self.inner.worker.run(|router| router.destroy()).await.unwrap_or(Err(DestroyError::Closed))
    }

    /// Returns what helps or hinders the network on the host at this moment, and the setting that was changed at the start.
    pub async fn findings(&self) -> Vec<Finding> {
        let inner = Arc::clone(&self.inner);
        let looked = tokio::task::spawn_blocking(move || {
            let mut findings: Vec<_> = inner.changed.iter().cloned().collect();
            findings.extend(probe::probe(&inner.host, inner.keeper.loads()));
            findings
        });
        looked.await.unwrap_or_default()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.inner.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes everything of an instance that no daemon runs any more; nothing happens if there is nothing.
pub fn destroy(config: &Config) -> Result<(), DestroyError> {
    router::destroy(config)
}
