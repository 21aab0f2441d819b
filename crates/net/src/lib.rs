//! Network slots: every sandbox sees itself as 10.0.0.2, reaches the internet and DNS, and nothing else.
//!
//! [`Network::open`] makes (or takes over) the router of an instance; [`Network::plug`] connects the
//! network namespace that a sandbox was born with; [`Network::connect`] reaches into it. The picture is
//! in `router.rs`, the policy in `rules.rs`. What is plugged keeps working while no daemon runs, except DNS.

#![forbid(unsafe_code)]

mod config;
mod dialer;
mod dns;
mod error;
mod firewalls;
mod gates;
mod keeper;
mod netlink;
mod network;
mod probe;
mod ranges;
mod router;
mod rules;
mod slot;
mod sysctl;
#[cfg(test)]
mod tests;
mod uplink;
mod worker;

pub use config::{BadTag, Config, Resolvers};
pub use error::{AccessError, DestroyError, OpenError, PlugError, UnplugError};
pub use gates::NoConnects;
pub use netlink::NetlinkError;
pub use network::{Network, destroy};
pub use probe::{Finding, Severity};
pub use rules::RulesError;
pub use slot::{Access, GATEWAY, INSIDE_ADDRESS, MOST_SLOTS, NoSlot, Slot};
pub use sysctl::{SysctlError, raise_setting};
pub use uplink::UplinkError;
