//! The link between router and host: one veth pair with a /30 that no one else on the host uses.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use crate::netlink::message::Batch;
use crate::netlink::route::{self, End, Hop, Known, NewRoute};
use crate::netlink::{NetlinkError, Socket};
use crate::ranges::Range;

/// The router's end.
pub(crate) const UPLINK: &str = "up0";
/// The device group of the host's ends of all instances, by which they are kept apart.
pub(crate) const HOST_GROUP: u32 = 0x726f;

const RANGE: Ipv4Addr = Ipv4Addr::new(100, 127, 0, 0);
const RANGE_PREFIX: u8 = 16;
const SUBNET_PREFIX: u8 = 30;
/// How many /30 the range holds.
const SUBNETS: u32 = 1 << (SUBNET_PREFIX - RANGE_PREFIX);

const FALLBACK_MTU: u32 = 1500;
/// The least that IPv4 hosts must accept; a device with less is no uplink.
const LEAST_MTU: u32 = 576;

/// The link could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UplinkError {
    /// The kernel refused a step.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Every candidate overlaps an address or route of the host.
    #[error("no free /30 in {RANGE}/{RANGE_PREFIX}")]
    NoSubnet,
    /// A link vanished while it was being set up.
    #[error("link `{0}` vanished while it was set up")]
    Vanished(String),
}

/// The two addresses between host and router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subnet(u32);

impl Subnet {
    fn nth(n: u32) -> Self {
        Self(RANGE.to_bits() + 4 * (n % SUBNETS))
    }

    fn of(address: Ipv4Addr) -> Self {
        Self(address.to_bits() & !3)
    }

    pub(crate) fn host(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0 + 1)
    }

    pub(crate) fn router(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.0 + 2)
    }

    fn overlaps(self, known: &Known) -> bool {
        Range::around(self.host(), SUBNET_PREFIX).overlaps(Range::around(known.address, known.prefix))
    }
}

/// The host's device of an instance.
pub(crate) fn host_device(tag: &str) -> String {
    format!("ro{tag}u")
}

/// The MTU of the device that the host's default route uses.
pub(crate) fn default_mtu(host: &mut Socket) -> Result<u32, NetlinkError> {
    let default = route::routes(host)?
        .into_iter()
        .filter(|known| known.prefix == 0 && known.index != 0)
        .min_by_key(|known| known.metric);
    let Some(default) = default else {
        return Ok(FALLBACK_MTU);
    };
    let links = route::links(host)?;
    let mtu = links.iter().find(|link| link.index == default.index).map(|link| link.mtu);
    Ok(mtu.filter(|mtu| *mtu >= LEAST_MTU).unwrap_or(FALLBACK_MTU))
}

/// Makes the link, or adopts the one an earlier daemon of this instance left, with its addresses.
pub(crate) fn ensure(
    host: &mut Socket,
    router: &mut Socket,
    router_netns: BorrowedFd<'_>,
    tag: &str,
    mtu: u32,
) -> Result<Subnet, UplinkError> {
    let device = host_device(tag);
    let near = index_of(host, &device)?;
    let far = index_of(router, UPLINK)?;
    let (near, far) = match (near, far) {
        (Some(near), Some(far)) => (near, far),
        (near, far) => {
            delete(host, near)?;
            delete(router, far)?;
            let mut batch = Batch::new();
            route::add_veth(
                &mut batch,
                End { name: &device, index: 0, mac: None, group: HOST_GROUP, up: false },
                End { name: UPLINK, index: 0, mac: None, group: 0, up: false },
                router_netns,
                mtu,
            );
            host.execute(&batch)?;
            let near = index_of(host, &device)?.ok_or(UplinkError::Vanished(device))?;
            let far = index_of(router, UPLINK)?.ok_or_else(|| UplinkError::Vanished(UPLINK.to_owned()))?;
            (near, far)
        }
    };

    let addresses = route::addresses(host)?;
    let own = addresses.iter().find(|a| a.index == near && a.prefix == SUBNET_PREFIX);
    let subnet = match own {
        Some(own) => Subnet::of(own.address),
        None => {
            let mut known = route::routes(host)?;
            known.extend(addresses);
            choose(tag, &known).ok_or(UplinkError::NoSubnet)?
        }
    };

    let mut batch = Batch::new();
    route::set_mtu(&mut batch, near, mtu);
    route::no_ipv6_address(&mut batch, near);
    route::add_address(&mut batch, near, subnet.host(), SUBNET_PREFIX);
    route::set_up(&mut batch, "bring up the host's end of the uplink", near);
    host.execute(&batch)?;

    let mut batch = Batch::new();
    route::set_mtu(&mut batch, far, mtu);
    route::add_address(&mut batch, far, subnet.router(), SUBNET_PREFIX);
    route::set_up(&mut batch, "bring up the router's end of the uplink", far);
    let hop = Hop { gateway: subnet.host(), index: far, source: None, onlink: false };
    let default = NewRoute { destination: Ipv4Addr::UNSPECIFIED, prefix: 0, via: Some(hop) };
    route::add_route(&mut batch, default);
    router.execute(&batch)?;
    Ok(subnet)
}

/// Removes the host's end, and with it the router's.
pub(crate) fn remove(host: &mut Socket, tag: &str) -> Result<(), NetlinkError> {
    let device = index_of(host, &host_device(tag))?;
    delete(host, device)
}

fn delete(socket: &mut Socket, index: Option<u32>) -> Result<(), NetlinkError> {
    let Some(index) = index else { return Ok(()) };
    let mut batch = Batch::new();
    route::delete_link(&mut batch, index);
    socket.execute(&batch)
}

fn index_of(socket: &mut Socket, name: &str) -> Result<Option<u32>, NetlinkError> {
    let links = route::links(socket)?;
    Ok(links.iter().find(|link| link.name == name).map(|link| link.index))
}

/// The first free /30, looking from a place that depends on the tag.
///
/// A route as wide as the whole range (a VPN over 100.64.0.0/10, or a default route) does not count:
/// a /30 of a link of our own is more specific and harms nobody in it.
fn choose(tag: &str, known: &[Known]) -> Option<Subnet> {
    let start = u32::from_str_radix(tag, 16)
        .unwrap_or_else(|_| tag.bytes().fold(0, |sum, byte| sum * 31 % SUBNETS + u32::from(byte)));
    (0..SUBNETS)
        .map(|n| Subnet::nth(start % SUBNETS + n))
        .find(|subnet| !known.iter().any(|known| known.prefix > RANGE_PREFIX && subnet.overlaps(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(address: [u8; 4], prefix: u8) -> Known {
        Known { address: address.into(), prefix, index: 1, metric: 0 }
    }

    #[test]
    fn the_tag_chooses_first() {
        assert_eq!(choose("000001", &[]), Some(Subnet::nth(1)));
        assert_eq!(choose("000001", &[]).unwrap().host(), Ipv4Addr::new(100, 127, 0, 5));
        assert_eq!(choose("000001", &[]).unwrap().router(), Ipv4Addr::new(100, 127, 0, 6));
        assert!(choose("zz", &[]).is_some());
    }

    #[test]
    fn taken_stretches_are_stepped_over() {
        let taken = [known([100, 127, 0, 5], 30), known([100, 127, 0, 8], 29)];
        assert_eq!(choose("000001", &taken), Some(Subnet::nth(4)));
    }

    #[test]
    fn wide_routes_do_not_count() {
        let wide = [known([0, 0, 0, 0], 0), known([100, 64, 0, 0], 10)];
        assert_eq!(choose("000001", &wide), Some(Subnet::nth(1)));
    }

    #[test]
    fn the_search_wraps_around_and_ends() {
        let upper = [known([100, 127, 128, 0], 17)];
        assert_eq!(choose("003fff", &upper), Some(Subnet::nth(0)));
        let all = [known([100, 127, 0, 0], 17), known([100, 127, 128, 0], 17)];
        assert_eq!(choose("003fff", &all), None);
    }
}
