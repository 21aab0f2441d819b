//! The errors of each operation.

use std::io;
use std::path::PathBuf;

use crate::config::BadTag;
use crate::netlink::NetlinkError;
use crate::rules::RulesError;
use crate::slot::Slot;
use crate::sysctl::SysctlError;
use crate::uplink::UplinkError;

/// The network could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadTag),
    /// A namespace could not be made or entered.
    #[error("failed to make or enter the router's network namespace")]
    Namespace(#[source] io::Error),
    /// The router's namespace could not be pinned.
    #[error("failed to pin the router's network namespace at `{}`", path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A setting of the router's namespace could not be made.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// The kernel refused a step.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The link between router and host could not be made.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// The packet filter could not be loaded.
    #[error(transparent)]
    Rules(#[from] RulesError),
    /// The sockets of the DNS forwarder could not be made.
    #[error("failed to listen for DNS on the gateway's address")]
    Dns(#[source] io::Error),
    /// A thread could not be started, or it died.
    #[error("failed to run the network's thread")]
    Thread(#[source] io::Error),
}

/// A sandbox's namespace could not be connected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlugError {
    /// No such slot can exist.
    #[error("slot {} is out of range", .0.0)]
    BadSlot(Slot),
    /// The sandbox's namespace could not be entered.
    #[error("failed to enter the network namespace for slot {}", slot.0)]
    Enter {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: io::Error,
    },
    /// The router's half failed.
    #[error("failed to link slot {} to the router", slot.0)]
    Link {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: NetlinkError,
    },
    /// The sandbox's half failed.
    #[error("failed to configure the inside of slot {}", slot.0)]
    Inside {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: NetlinkError,
    },
    /// The packet filter did not take the slot.
    #[error("failed to admit slot {}", slot.0)]
    Filter {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: NetlinkError,
    },
    /// The network was closed.
    #[error("the network is closed")]
    Closed,
}

/// What a slot may reach could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The slot is not plugged.
    #[error("slot {} is not plugged", .0.0)]
    NotPlugged(Slot),
    /// The packet filter refused.
    #[error("failed to change the access of slot {}", slot.0)]
    Filter {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: NetlinkError,
    },
    /// The network was closed.
    #[error("the network is closed")]
    Closed,
}

/// A slot could not be cut off.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnplugError {
    /// The packet filter refused.
    #[error("failed to cut off slot {}", slot.0)]
    Filter {
        /// Which slot.
        slot: Slot,
        /// Why not.
        source: NetlinkError,
    },
    /// The network was closed.
    #[error("the network is closed")]
    Closed,
}

/// The network could not be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(BadTag),
    /// The kernel refused a step.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The pin of the router's namespace could not be used or removed.
    #[error("failed to remove the router's network namespace at `{}`", path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The network was closed before.
    #[error("the network is closed")]
    Closed,
}
