//! Ranges of addresses, and those to which no sandbox may send.

use std::fmt;
use std::net::Ipv4Addr;

use crate::netlink::route::Known;

/// All addresses that share their first `prefix` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    first: Ipv4Addr,
    prefix: u8,
}

/// Private, shared, link-local, loopback, multicast and test ranges, and where clouds answer for their own machines:
/// 192.0.0.0/24 holds Oracle's metadata, 168.63.129.16 is Azure's; Alibaba's is in 100.64.0.0/10, and the others' in 169.254.0.0/16.
pub(crate) const BLOCKED: [Range; 11] = [
    Range::new([0, 0, 0, 0], 8),
    Range::new([10, 0, 0, 0], 8),
    Range::new([100, 64, 0, 0], 10),
    Range::new([127, 0, 0, 0], 8),
    Range::new([168, 63, 129, 16], 32),
    Range::new([169, 254, 0, 0], 16),
    Range::new([172, 16, 0, 0], 12),
    Range::new([192, 0, 0, 0], 24),
    Range::new([192, 168, 0, 0], 16),
    Range::new([198, 18, 0, 0], 15),
    Range::new([224, 0, 0, 0], 3),
];

/// A shorter prefix belongs to a route for a part of the internet, not to a network on a link.
const SHORTEST_NETWORK: u8 = 8;

impl Range {
    const fn new([a, b, c, d]: [u8; 4], prefix: u8) -> Self {
        Self { first: Ipv4Addr::new(a, b, c, d), prefix }
    }

    /// The range of this size around an address.
    pub(crate) fn around(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = prefix.min(32);
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
        Self { first: Ipv4Addr::from_bits(address.to_bits() & mask), prefix }
    }

    fn holds(self, other: Self) -> bool {
        self.prefix <= other.prefix && Self::around(other.first, self.prefix) == self
    }

    /// Whether an address is in both.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.holds(other) || other.holds(self)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

/// Returns the host's own addresses and the networks on its links: no two overlap, and none is in [`BLOCKED`].
///
/// A packet that is forwarded by a gateway in such a network is addressed to neither, so the gateway goes on to work.
pub(crate) fn of_host(known: &[Known]) -> Vec<Range> {
    let mut all: Vec<Range> = known
        .iter()
        .map(|known| {
            let prefix = if known.prefix < SHORTEST_NETWORK { 32 } else { known.prefix };
            Range::around(known.address, prefix)
        })
        .collect();
    // A range comes behind the wider ones that begin where it begins, so the last that is kept holds it if any does.
    all.sort_unstable();
    let mut kept: Vec<Range> = Vec::new();
    for range in all {
        if !BLOCKED.iter().chain(kept.last()).any(|wider| wider.holds(range)) {
            kept.push(range);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(address: [u8; 4], prefix: u8) -> Known {
        Known { address: address.into(), prefix, index: 1, metric: 0 }
    }

    fn listed(known: &[Known]) -> Vec<String> {
        of_host(known).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn host_with_a_public_network_blocks_all_of_it() {
        let host = [known([127, 0, 0, 1], 8), known([203, 0, 113, 70], 26), known([198, 51, 100, 1], 32)];
        assert_eq!(listed(&host), ["198.51.100.1/32", "203.0.113.64/26"]);
    }

    #[test]
    fn nested_and_repeated_ranges_are_listed_once() {
        let host = [
            known([203, 0, 113, 70], 32),
            known([203, 0, 113, 7], 25),
            known([203, 0, 113, 9], 24),
            known([203, 0, 113, 9], 24),
            known([203, 0, 114, 9], 24),
        ];
        assert_eq!(listed(&host), ["203.0.113.0/24", "203.0.114.0/24"]);
    }

    #[test]
    fn addresses_of_private_networks_need_no_entry() {
        let host = [known([172, 17, 0, 1], 16), known([192, 168, 1, 9], 24), known([100, 127, 0, 5], 30)];
        assert!(of_host(&host).is_empty());
    }

    #[test]
    fn prefix_of_half_the_internet_blocks_the_address_alone() {
        assert_eq!(listed(&[known([203, 0, 113, 9], 1)]), ["203.0.113.9/32"]);
        assert_eq!(listed(&[known([203, 0, 113, 9], 0)]), ["203.0.113.9/32"]);
    }

    #[test]
    fn metadata_addresses_of_the_clouds_are_blocked() {
        for address in [
            [169, 254, 169, 254],
            [169, 254, 170, 2],
            [168, 63, 129, 16],
            [192, 0, 0, 192],
            [100, 100, 100, 200],
            [198, 19, 255, 255],
        ] {
            let address = Range::new(address, 32);
            assert!(BLOCKED.iter().any(|range| range.holds(address)), "{address}");
        }
        let ordinary = Range::new([192, 0, 1, 1], 32);
        assert!(!BLOCKED.iter().any(|range| range.holds(ordinary)));
    }
}
