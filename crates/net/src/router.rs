//! The router: a network namespace without processes, in which every sandbox's link ends.
//!
//! ```text
//! sandbox                          router                                   host
//! eth0 10.0.0.2/30 -- veth -- s<i>: group 7, no address
//! default via 10.0.0.1        lo: 10.0.0.1/32
//!                             route 100.64.x.y/32 via 10.0.0.2 dev s<i>
//!                             map "s<i>" : 100.64.x.y
//!                             up0 100.127.a.b/30 -- veth -- ro<tag>u -> masquerade
//! ```
//!
//! Sandboxes all have the same inside address and MACs, so a fork needs no change. The router gives
//! each its own address by a map (see [`crate::rules`]). It is pinned to a file and so outlives the
//! daemon; [`Router::open`] makes it or takes it over, each of its steps being one that may be repeated.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use roost_sys::netns;
use rustix::io::Errno;

use crate::config::Config;
use crate::error::{DestroyError, OpenError, PlugError};
use crate::keeper::{Loaded, Reports};
use crate::netlink::carrier::Settle;
use crate::netlink::message::Batch;
use crate::netlink::nft::{self, Change};
use crate::netlink::route::{self, End, Hop, Mac, NewRoute};
use crate::netlink::{ANSWERS_AT_ONCE, NetlinkError, Socket};
use crate::rules::{self, ADDRESS_MAP, HostRules, Mark, OPEN_SET, ROUTER_ICMP_TABLE, ROUTER_TABLE, SLOT_GROUP};
use crate::slot::{Access, GATEWAY, INSIDE_ADDRESS, Slot};
use crate::{ranges, sysctl, uplink};

const LOOPBACK: u32 = 1;
const ROUTER_MAC: Mac = [0x02, 0x00, 0x5e, 0x00, 0x00, 0x01];
const INSIDE_MAC: Mac = [0x02, 0x00, 0x5e, 0x00, 0x00, 0x02];
const INSIDE_DEVICE: &str = "eth0";
/// The same in every sandbox, and beyond the few that a kernel may make by itself in a new namespace.
const INSIDE_INDEX: u32 = 10;
/// Links to be deleted are gathered in this group, because a group goes in one step.
const DOOMED_GROUP: u32 = 8;

/// Settings of the router's namespace; `ip_forward` first, since it resets others.
const SYSCTLS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    // The source of a slot's packet has no route back by its device: a filter would drop it.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
    // The gateway's address is on the loopback device and is asked for on every slot's.
    ("ipv4/conf/all/arp_ignore", "0"),
    ("ipv4/conf/default/arp_ignore", "0"),
    ("ipv4/conf/all/route_localnet", "0"),
    ("ipv4/conf/default/route_localnet", "0"),
    // The daemon opens many short connections to one port of one sandbox.
    ("ipv4/ip_local_port_range", "10240\t65535"),
    ("ipv4/tcp_tw_reuse", "1"),
];

/// What the worker thread owns: the router's namespace and sockets into it.
#[derive(Debug)]
pub(crate) struct Router {
    config: Config,
    home: OwnedFd,
    netns: OwnedFd,
    route: Socket,
    filter: Socket,
    mtu: u32,
    settle: Settle,
    /// What the packet filter holds.
    plugged: HashMap<Slot, Access>,
    closed: bool,
}

impl Router {
    /// Makes the router or takes over the one there is, keeping exactly the slots in use.
    pub(crate) fn open(config: Config, in_use: &[(Slot, Access)]) -> Result<(Self, Loaded), OpenError> {
        let reports = Reports::subscribe()?;
        let home = netns::current().map_err(OpenError::Namespace)?;
        let netns = pinned_namespace(&config)?;
        let inside = |work: &mut dyn FnMut() -> Result<(), OpenError>| {
            netns::visit(&home, &netns, work).map_err(OpenError::Namespace)?
        };

        inside(&mut || prepare_settings().map_err(OpenError::from))?;
        let mut host = Socket::route()?;
        let (mut route, mut filter) =
            netns::visit(&home, &netns, || Ok::<_, NetlinkError>((Socket::route()?, Socket::netfilter()?)))
                .map_err(OpenError::Namespace)??;

        let mtu = uplink::default_mtu(&mut host)?;
        prepare_routes(&mut route)?;
        let subnet = uplink::ensure(&mut host, &mut route, netns.as_fd(), &config.tag, mtu)?;
        let (host_rules, mark) = (HostRules::new(&config.tag, subnet), Mark::next());
        rules::load("host's", &host_rules.text(&mark))?;
        sweep(&mut route, in_use)?;
        let wall = ranges::of_host(&route::own_addresses(&mut host)?);
        let router_rules = rules::wall_rules(&wall) + &rules::router_rules(in_use);
        inside(&mut || Ok(rules::load("router's", &router_rules)?))?;
        nft::mend_quoted_sources(&mut filter, ROUTER_ICMP_TABLE, SLOT_GROUP, INSIDE_ADDRESS)?;
        // Exists only once the rules have made the kernel track connections.
        inside(&mut || Ok(sysctl::set("netfilter/nf_conntrack_tcp_loose", "0").map(drop)?))?;

        let plugged = in_use.iter().copied().collect();
        let settle = Settle::on_this_kernel();
        let router = Self { config, home, netns, route, filter, mtu, settle, plugged, closed: false };
        Ok((router, Loaded { reports, rules: host_rules, mark, wall }))
    }

    /// Runs `work` with the calling thread in the router's namespace.
    pub(crate) fn visit<T>(&self, work: impl FnOnce() -> T) -> std::io::Result<T> {
        netns::visit(&self.home, &self.netns, work)
    }

    pub(crate) fn netns(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Gives the namespace of a sandbox its link, address, routes and place in the packet filter.
    pub(crate) fn plug(&mut self, slot: Slot, netns: BorrowedFd<'_>, access: Access) -> Result<(), PlugError> {
        if !slot.is_valid() {
            return Err(PlugError::BadSlot(slot));
        }
        let mut inside = netns::visit(&self.home, netns, Socket::route)
            .map_err(|source| PlugError::Enter { slot, source })?
            .map_err(|source| PlugError::Link { slot, source })?;

        match self.add_link(slot, netns) {
            // Left by a sandbox that died a moment ago, or by a plug that was not finished.
            Err(error) if error.is(Errno::EXIST) || error.is(Errno::BUSY) => {
                self.delete_link(slot)
                    .and_then(|()| self.add_link(slot, netns))
                    .map_err(|source| PlugError::Link { slot, source })?;
            }
            result => result.map_err(|source| PlugError::Link { slot, source })?,
        }

        let finished = configure_inside(&mut inside)
            .and_then(|()| {
                let mut batch = Batch::new();
                self.settle.request(&mut batch, slot.index());
                self.route.execute(&batch)
            })
            .map_err(|source| PlugError::Inside { slot, source })
            .and_then(|()| self.grant(slot, Some(access)).map_err(|source| PlugError::Filter { slot, source }));
        if finished.is_err()
            && let Err(error) = self.delete_link(slot)
        {
            tracing::warn!(slot = slot.0, %error, "a half-plugged link stays behind");
        }
        finished
    }

    /// Brings the packet filter to what `access` says; `None` cuts the slot off at once.
    pub(crate) fn grant(&mut self, slot: Slot, access: Option<Access>) -> Result<(), NetlinkError> {
        let before = self.plugged.get(&slot).copied();
        let device = slot.device();
        let interface = device.as_str();
        let open = Some(Access::Internet);
        let mut changes = Vec::with_capacity(2);
        if before.is_none() && access.is_some() {
            let value = Some(slot.address());
            changes.push(Change::Add { set: ADDRESS_MAP, interface, value });
        }
        if before != open && access == open {
            changes.push(Change::Add { set: OPEN_SET, interface, value: None });
        }
        if before == open && access != open {
            changes.push(Change::Remove { set: OPEN_SET, interface });
        }
        if before.is_some() && access.is_none() {
            changes.push(Change::Remove { set: ADDRESS_MAP, interface });
        }
        if !changes.is_empty() {
            nft::change_elements(&mut self.filter, ROUTER_TABLE, &changes)?;
        }
        match access {
            Some(access) => self.plugged.insert(slot, access),
            None => self.plugged.remove(&slot),
        };
        Ok(())
    }

    pub(crate) fn is_plugged(&self, slot: Slot) -> bool {
        self.plugged.contains_key(&slot)
    }

    /// Removes everything this instance has in the kernel; sandboxes lose their network.
    pub(crate) fn destroy(&mut self) -> Result<(), DestroyError> {
        self.closed = true;
        destroy(&self.config)
    }

    /// The router's half of a plug: one pair, one route, one neighbour, in one send.
    fn add_link(&mut self, slot: Slot, netns: BorrowedFd<'_>) -> Result<(), NetlinkError> {
        let device = slot.device();
        let index = slot.index();
        let near = End { name: &device, index, mac: Some(ROUTER_MAC), group: SLOT_GROUP, up: true };
        let far = End { name: INSIDE_DEVICE, index: INSIDE_INDEX, mac: Some(INSIDE_MAC), group: 0, up: false };
        let hop = Hop { gateway: INSIDE_ADDRESS, index, source: Some(GATEWAY), onlink: true };
        let mut batch = Batch::new();
        route::add_veth(&mut batch, near, far, netns, self.mtu);
        route::add_route(&mut batch, NewRoute { destination: slot.address(), prefix: 32, via: Some(hop) });
        route::add_neighbour(&mut batch, index, INSIDE_ADDRESS, INSIDE_MAC);
        self.route.execute(&batch)
    }

    fn delete_link(&mut self, slot: Slot) -> Result<(), NetlinkError> {
        let mut batch = Batch::new();
        route::delete_link(&mut batch, slot.index());
        self.route.execute(&batch)
    }
}

/// The sandbox's half of a plug, in one send.
fn configure_inside(inside: &mut Socket) -> Result<(), NetlinkError> {
    let mut batch = Batch::new();
    route::set_up(&mut batch, "bring up the sandbox's loopback", LOOPBACK);
    route::no_ipv6_address(&mut batch, INSIDE_INDEX);
    route::set_up(&mut batch, "bring up the sandbox's link", INSIDE_INDEX);
    route::add_address(&mut batch, INSIDE_INDEX, INSIDE_ADDRESS, 30);
    let hop = Hop { gateway: GATEWAY, index: INSIDE_INDEX, source: None, onlink: false };
    let default = NewRoute { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, via: Some(hop) };
    route::add_route(&mut batch, default);
    route::add_neighbour(&mut batch, INSIDE_INDEX, GATEWAY, ROUTER_MAC);
    inside.execute(&batch)
}

/// Opens the pinned namespace, making and pinning one first if there is none.
fn pinned_namespace(config: &Config) -> Result<OwnedFd, OpenError> {
    let path = config.router_pin();
    let pin_error = |source| OpenError::Pin { path: path.clone(), source };
    if let Some(netns) = netns::open_pinned(&path).map_err(pin_error)? {
        return Ok(netns);
    }
    std::fs::create_dir_all(&config.runtime_dir).map_err(pin_error)?;
    let netns = netns::create().map_err(OpenError::Namespace)?;
    netns::pin(&netns, &path).map_err(pin_error)?;
    Ok(netns)
}

fn prepare_settings() -> Result<(), sysctl::SysctlError> {
    for (name, value) in SYSCTLS {
        sysctl::set(name, value)?;
    }
    // Absent where the kernel has no IPv6, and then there is nothing to turn off.
    for name in ["ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"] {
        if std::path::Path::new("/proc/sys/net").join(name).exists() {
            sysctl::set(name, "1")?;
        }
    }
    Ok(())
}

fn prepare_routes(route: &mut Socket) -> Result<(), NetlinkError> {
    let mut batch = Batch::new();
    route::set_up(&mut batch, "bring up the router's loopback", LOOPBACK);
    route::add_address(&mut batch, LOOPBACK, GATEWAY, 32);
    // A slot that is gone must not leak out by the default route.
    route::add_route(&mut batch, NewRoute { destination: Ipv4Addr::new(100, 64, 0, 0), prefix: 11, via: None });
    route.execute(&batch)
}

/// Deletes the links of slots that nobody uses any more.
fn sweep(route: &mut Socket, in_use: &[(Slot, Access)]) -> Result<(), NetlinkError> {
    let is_doomed = |link: &route::Link| {
        let ours = [SLOT_GROUP, DOOMED_GROUP].contains(&link.group);
        Slot::from_index(link.index).is_some_and(|slot| ours && in_use.iter().all(|(used, _)| *used != slot))
    };
    let doomed: Vec<u32> = route::links(route)?.iter().filter(|link| is_doomed(link)).map(|link| link.index).collect();
    for some in doomed.chunks(ANSWERS_AT_ONCE) {
        let mut batch = Batch::new();
        some.iter().for_each(|index| route::set_group(&mut batch, *index, DOOMED_GROUP));
        route.execute(&batch)?;
    }
    let mut batch = Batch::new();
    route::delete_group(&mut batch, DOOMED_GROUP);
    route.execute(&batch)
}

/// Removes what an instance has in the kernel; each part may be missing.
pub(crate) fn destroy(config: &Config) -> Result<(), DestroyError> {
    config.check().map_err(DestroyError::Config)?;
    let path = config.router_pin();
    let pin_error = |source| DestroyError::Pin { path: path.clone(), source };
    if let Some(netns) = netns::open_pinned(&path).map_err(pin_error)? {
        let home = netns::current().map_err(pin_error)?;
        let mut route = netns::visit(&home, &netns, Socket::route).map_err(pin_error)??;
        let mut batch = Batch::new();
        route::delete_group(&mut batch, SLOT_GROUP);
        route.execute(&batch)?;
    }
    uplink::remove(&mut Socket::route()?, &config.tag)?;
    nft::delete_table(&mut Socket::netfilter()?, &rules::host_table(&config.tag))?;
    netns::unpin(&path).map_err(pin_error)
}
