//! Links, addresses, routes and neighbours (rtnetlink, IPv4 only).

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use super::message::{Batch, Received, Tolerate, attributes, u32_at};
use super::{NetlinkError, Socket};

pub(crate) type Mac = [u8; 6];

const FAMILY: u8 = libc::AF_INET as u8;
/// Not in libc: linux/veth.h, linux/if_link.h, linux/rtnetlink.h.
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const ADDR_GEN_MODE_NONE: u8 = 1;
const RTNH_F_ONLINK: u32 = 4;

/// One end of a veth pair that does not exist yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) name: &'a str,
    /// 0 lets the kernel choose.
    pub(crate) index: u32,
    pub(crate) mac: Option<Mac>,
    pub(crate) group: u32,
    pub(crate) up: bool,
}

/// Asks for a veth pair: `near` in the socket's namespace, `far` born inside `netns`.
///
/// The far end may not be `up`: the kernel answers ENOTCONN, since the near one has no peer yet.
pub(crate) fn add_veth(batch: &mut Batch, near: End<'_>, far: End<'_>, netns: BorrowedFd<'_>, mtu: u32) {
    fn describe(m: &mut super::message::Message<'_>, end: End<'_>, mtu: u32) {
        m.text(libc::IFLA_IFNAME, end.name);
        m.number(libc::IFLA_MTU, mtu);
        m.number(libc::IFLA_GROUP, end.group);
        // One queue: a device of many queues costs memory per CPU that a sandbox never uses.
        m.number(libc::IFLA_NUM_TX_QUEUES, 1);
        m.number(libc::IFLA_NUM_RX_QUEUES, 1);
        if let Some(mac) = end.mac {
            m.attribute(libc::IFLA_ADDRESS, &mac);
        }
    }

    let mut message = batch.message(
        "create a veth pair",
        Tolerate::Nothing,
        libc::RTM_NEWLINK,
        libc::NLM_F_CREATE | libc::NLM_F_EXCL,
    );
    message.raw(&link_header(near.index, near.up));
    describe(&mut message, near, mtu);
    message.nested(libc::IFLA_LINKINFO, |m| {
        m.attribute(libc::IFLA_INFO_KIND, b"veth");
        m.nested(libc::IFLA_INFO_DATA, |m| {
            m.nested(VETH_INFO_PEER, |m| {
                m.raw(&link_header(far.index, far.up));
                describe(m, far, mtu);
                m.number(libc::IFLA_NET_NS_FD, netns.as_raw_fd() as u32);
            });
        });
    });
}

pub(crate) fn set_up(batch: &mut Batch, attempt: &'static str, index: u32) {
    batch.message(attempt, Tolerate::Nothing, libc::RTM_SETLINK, 0).raw(&link_header(index, true));
}

pub(crate) fn set_mtu(batch: &mut Batch, index: u32, mtu: u32) {
    batch
        .message("set the MTU of a link", Tolerate::Nothing, libc::RTM_SETLINK, 0)
        .raw(&link_header(index, false))
        .number(libc::IFLA_MTU, mtu);
}

/// Keeps IPv6 addresses off a link; a kernel without IPv6 refuses, which is as good.
pub(crate) fn no_ipv6_address(batch: &mut Batch, index: u32) {
    batch
        .message("turn off IPv6 addresses", Tolerate::Anything, libc::RTM_SETLINK, 0)
        .raw(&link_header(index, false))
        .nested(libc::IFLA_AF_SPEC, |m| {
            m.nested(libc::AF_INET6 as u16, |m| {
                m.attribute(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]);
            });
        });
}

/// Tolerates a link that is gone already.
pub(crate) fn delete_link(batch: &mut Batch, index: u32) {
    batch.message("delete a link", Tolerate::One(Errno::NODEV), libc::RTM_DELLINK, 0).raw(&link_header(index, false));
}

pub(crate) fn set_group(batch: &mut Batch, index: u32, group: u32) {
    batch
        .message("move a link to a group", Tolerate::One(Errno::NODEV), libc::RTM_SETLINK, 0)
        .raw(&link_header(index, false))
        .number(libc::IFLA_GROUP, group);
}

/// Deletes all links of a group at once, far cheaper than one by one.
pub(crate) fn delete_group(batch: &mut Batch, group: u32) {
    batch
        .message("delete a group of links", Tolerate::One(Errno::NODEV), libc::RTM_DELLINK, 0)
        .raw(&link_header(0, false))
        .number(libc::IFLA_GROUP, group);
}

pub(crate) fn add_address(batch: &mut Batch, index: u32, address: Ipv4Addr, prefix: u8) {
    let mut header = [FAMILY, prefix, 0, libc::RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    header[4..].copy_from_slice(&index.to_ne_bytes());
    batch
        .message("add an address", Tolerate::Nothing, libc::RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
        .raw(&header)
        .attribute(libc::IFA_LOCAL, &address.octets())
        .attribute(libc::IFA_ADDRESS, &address.octets());
}

/// A route to add; a `via` of `None` means that the destination is unreachable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRoute {
    pub(crate) destination: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) via: Option<Hop>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop {
    pub(crate) gateway: Ipv4Addr,
    pub(crate) index: u32,
    /// The source address of what this namespace itself sends that way.
    pub(crate) source: Option<Ipv4Addr>,
    /// The gateway is a neighbour although no address of the link says so.
    pub(crate) onlink: bool,
}

pub(crate) fn add_route(batch: &mut Batch, route: NewRoute) {
    let kind = if route.via.is_some() { libc::RTN_UNICAST } else { libc::RTN_UNREACHABLE };
    let flags = if route.via.is_some_and(|hop| hop.onlink) { RTNH_F_ONLINK } else { 0 };
    let mut header = [
        FAMILY,
        route.prefix,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_UNIVERSE,
        kind,
        0,
        0,
        0,
        0,
    ];
    header[8..].copy_from_slice(&flags.to_ne_bytes());
    let mut message =
        batch.message("add a route", Tolerate::Nothing, libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE);
    message.raw(&header);
    if route.prefix > 0 {
        message.attribute(libc::RTA_DST, &route.destination.octets());
    }
    if let Some(hop) = route.via {
        message.attribute(libc::RTA_GATEWAY, &hop.gateway.octets());
        message.number(libc::RTA_OIF, hop.index);
        if let Some(source) = hop.source {
            message.attribute(libc::RTA_PREFSRC, &source.octets());
        }
    }
}

/// Adds a neighbour that never expires and never asks by ARP.
pub(crate) fn add_neighbour(batch: &mut Batch, index: u32, address: Ipv4Addr, mac: Mac) {
    let mut header = [0; 12];
    header[0] = FAMILY;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&libc::NUD_PERMANENT.to_ne_bytes());
    batch
        .message("add a neighbour", Tolerate::Nothing, libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)
        .raw(&header)
        .attribute(libc::NDA_DST, &address.octets())
        .attribute(libc::NDA_LLADDR, &mac);
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) group: u32,
    pub(crate) mtu: u32,
}

pub(crate) fn links(socket: &mut Socket) -> Result<Vec<Link>, NetlinkError> {
    let mut links = Vec::new();
    socket.dump("list links", libc::RTM_GETLINK, &link_header(0, false), |payload| {
        let (Some(index), Some(rest)) = (u32_at(payload, 4), payload.get(16..)) else {
            return;
        };
        let mut link = Link { index, name: String::new(), group: 0, mtu: 0 };
        for (kind, value) in attributes(rest) {
            match kind {
                libc::IFLA_IFNAME => {
                    let name = value.strip_suffix(&[0]).unwrap_or(value);
                    link.name = String::from_utf8_lossy(name).into_owned();
                }
                libc::IFLA_GROUP => link.group = u32_at(value, 0).unwrap_or_default(),
                libc::IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or_default(),
                _ => {}
            }
        }
        links.push(link);
    })?;
    Ok(links)
}

/// A stretch of addresses that some link or route of a namespace stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) index: u32,
    pub(crate) metric: u32,
}

/// Lists the addresses of links. The far end of a point-to-point link is an entry of its own.
pub(crate) fn addresses(socket: &mut Socket) -> Result<Vec<Known>, NetlinkError> {
    let mut found = Vec::new();
    let header = [FAMILY, 0, 0, 0, 0, 0, 0, 0];
    socket.dump("list addresses", libc::RTM_GETADDR, &header, |payload| {
        let (Some(&prefix), Some(index), Some(rest)) = (payload.get(1), u32_at(payload, 4), payload.get(8..)) else {
            return;
        };
        let (mut own, mut network) = (None, None);
        for (kind, value) in attributes(rest) {
            match kind {
                libc::IFA_LOCAL => own = address(value),
                libc::IFA_ADDRESS => network = address(value),
                _ => {}
            }
        }
        if let Some(address) = own {
            let prefix = if network.is_none_or(|network| network == address) { prefix } else { 32 };
            found.push(Known { address, prefix, index, metric: 0 });
        }
        if let Some(address) = network.filter(|network| own != Some(*network)) {
            found.push(Known { address, prefix, index, metric: 0 });
        }
    })?;
    Ok(found)
}

/// Lists the unicast routes of all tables; a default route has prefix 0.
pub(crate) fn routes(socket: &mut Socket) -> Result<Vec<Known>, NetlinkError> {
    routes_of_kind(socket, libc::RTN_UNICAST)
}

/// Lists the addresses of links, and those that a route makes the namespace's own although no link has them, as clouds do for
/// the public address of a load balancer.
pub(crate) fn own_addresses(socket: &mut Socket) -> Result<Vec<Known>, NetlinkError> {
    let mut found = addresses(socket)?;
    found.extend(routes_of_kind(socket, libc::RTN_LOCAL)?);
    Ok(found)
}

/// Whether a report may be about an entry of [`own_addresses`].
pub(crate) fn concerns_own_addresses(report: &Received<'_>) -> bool {
    match report.kind {
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => report.payload.get(7) == Some(&libc::RTN_LOCAL),
        _ => true,
    }
}

fn routes_of_kind(socket: &mut Socket, wanted: u8) -> Result<Vec<Known>, NetlinkError> {
    let mut found = Vec::new();
    let mut header = [0; 12];
    header[0] = FAMILY;
    socket.dump("list routes", libc::RTM_GETROUTE, &header, |payload| {
        let (Some(&prefix), Some(&kind), Some(rest)) = (payload.get(1), payload.get(7), payload.get(12..)) else {
            return;
        };
        if kind != wanted {
            return;
        }
        let mut known = Known { address: Ipv4Addr::UNSPECIFIED, prefix, index: 0, metric: 0 };
        for (kind, value) in attributes(rest) {
            match kind {
                libc::RTA_DST => known.address = address(value).unwrap_or(known.address),
                libc::RTA_OIF => known.index = u32_at(value, 0).unwrap_or_default(),
                libc::RTA_PRIORITY => known.metric = u32_at(value, 0).unwrap_or_default(),
                _ => {}
            }
        }
        found.push(known);
    })?;
    Ok(found)
}

fn address(value: &[u8]) -> Option<Ipv4Addr> {
    <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from)
}

/// The `ifinfomsg` of a link; `up` sets the flag, otherwise flags stay as they are.
pub(super) fn link_header(index: u32, up: bool) -> [u8; 16] {
    let flag = if up { libc::IFF_UP as u32 } else { 0 };
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flag.to_ne_bytes());
    header[12..16].copy_from_slice(&flag.to_ne_bytes());
    header
}
