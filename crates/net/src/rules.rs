//! The packet filter: one table on the host, four in the router, each loaded whole.
//!
//! All are loaded at the daemon's start; [`crate::keeper`] loads the host's again when another program changed it,
//! and the router's wall to the host when the host's addresses changed.
//!
//! Every load replaces our own tables in one transaction, with the elements of the slots in use, so
//! live slots notice nothing and left-overs of dead ones vanish. No rule grows with the number of slots.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ranges::{BLOCKED, Range};
use crate::slot::{Access, Slot};
use crate::uplink::{self, HOST_GROUP, Subnet, UPLINK};

/// Every router-side end of a slot is in this device group.
pub(crate) const SLOT_GROUP: u32 = 7;
/// The router's table; the router has no other user, so the name needs no tag.
pub(crate) const ROUTER_TABLE: &str = "roost";
/// The router's table made by raw netlink, see [`crate::netlink::nft::mend_quoted_sources`].
pub(crate) const ROUTER_ICMP_TABLE: &str = "roost_icmp";
/// The router's table between sandboxes and the host: a flush of the host's own rules does not reach it.
pub(crate) const WALL_TABLE: &str = "roost_wall";
/// Map from a slot's device to its address: being in it means having a network at all.
pub(crate) const ADDRESS_MAP: &str = "slot_addr";
/// Set of the devices that may reach more than the daemon.
pub(crate) const OPEN_SET: &str = "slot_open";

/// The `nft` tool could not load a ruleset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// There is no such program, or it does not start.
    #[error("failed to run `nft`")]
    Run(#[source] std::io::Error),
    /// It refused the rules.
    #[error("`nft` refused the {scope} rules: {message}")]
    Refused {
        /// Whose rules.
        scope: &'static str,
        /// What it said.
        message: String,
    },
}

/// The host's table of an instance.
pub(crate) fn host_table(tag: &str) -> String {
    format!("roost_{tag}")
}

/// The router's rules.
///
/// A packet of a slot gets the slot's unique address before connection tracking sees it; a packet to a
/// slot gets the inside address back after everything else. In between all is ordinary routing.
pub(crate) fn router_rules(in_use: &[(Slot, Access)]) -> String {
    let addresses = elements(in_use.iter().map(|(slot, _)| format!("\"{}\" : {}", slot.device(), slot.address())));
    let open = elements(
        in_use
            .iter()
            .filter(|(_, access)| *access == Access::Internet)
            .map(|(slot, _)| format!("\"{}\"", slot.device())),
    );
    let blocked = elements(BLOCKED.iter().map(ToString::to_string));
    format!(
        r#"add table ip {ROUTER_TABLE}
delete table ip {ROUTER_TABLE}
add table arp {ROUTER_TABLE}
delete table arp {ROUTER_TABLE}
table ip {ROUTER_TABLE} {{
  map {ADDRESS_MAP} {{ type ifname : ipv4_addr; size 8192; {addresses} }}
  set {OPEN_SET} {{ type ifname; size 8192; {open} }}
  set blocked {{ type ipv4_addr; flags interval; auto-merge; {blocked} }}
  set flows {{ type ipv4_addr; flags dynamic; size 16384; }}
  set dns_flows {{ type ipv4_addr; flags dynamic; size 16384; }}

  # After defragmentation, before connection tracking.
  chain raw_pre {{
    type filter hook prerouting priority -310; policy accept;
    iifgroup {SLOT_GROUP} goto from_slot
    ip saddr 100.64.0.0/11 drop
  }}
  chain from_slot {{
    ip saddr != 10.0.0.2 drop
    icmp type {{ destination-unreachable, time-exceeded, parameter-problem }} drop
    iifname @{OPEN_SET} goto from_open_slot
    # What is left may only answer the daemon: chain input looks at the connection.
    ip daddr 10.0.0.1 ip saddr set iifname map @{ADDRESS_MAP} accept
    drop
  }}
  chain from_open_slot {{
    # Untracked, so that no sandbox can fill the table of connections with questions to the gateway.
    ip daddr 10.0.0.1 udp dport 53 notrack ip saddr set iifname map @{ADDRESS_MAP} accept
    ip daddr 10.0.0.1 icmp type echo-request notrack ip saddr set iifname map @{ADDRESS_MAP} accept
    ip daddr 10.0.0.1 ip saddr set iifname map @{ADDRESS_MAP} accept
    ip daddr @blocked drop
    ip saddr set iifname map @{ADDRESS_MAP} accept
    drop
  }}
  chain raw_out {{
    type filter hook output priority -310; policy accept;
    oifgroup {SLOT_GROUP} udp sport 53 notrack
    oifgroup {SLOT_GROUP} icmp type echo-reply notrack
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    iifgroup {SLOT_GROUP} ct state established ct direction reply accept
    iifname @{OPEN_SET} ip daddr 10.0.0.1 goto gateway
  }}
  chain gateway {{
    udp dport 53 accept
    tcp dport 53 ct state established accept
    tcp dport 53 ct state new add @dns_flows {{ ip saddr ct count over 32 }} drop
    tcp dport 53 ct state new accept
    icmp type echo-request limit rate 1000/second accept
    drop
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    iifname "{UPLINK}" oifname @{OPEN_SET} ct state established,related ct direction reply accept
    iifgroup {SLOT_GROUP} oifname "{UPLINK}" goto outward
  }}
  chain outward {{
    ct state established,related accept
    # A TCP connection cloned by a fork, or older than the router, ends at once.
    tcp flags & (syn | rst) == 0 reject with tcp reset
    ct state new add @flows {{ ip saddr ct count over 512 }} counter drop
    ct state new accept
    drop
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifgroup {SLOT_GROUP} meta skuid != 0 drop
  }}
  chain nat {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "{UPLINK}" masquerade
  }}
  chain post {{
    type filter hook postrouting priority 310; policy accept;
    oifgroup {SLOT_GROUP} ip daddr set 10.0.0.2
  }}
}}
# Keeps slots from filling the neighbour table, which all namespaces share.
table arp {ROUTER_TABLE} {{
  chain in {{
    type filter hook input priority 0; policy accept;
    iifgroup {SLOT_GROUP} arp saddr ip != 10.0.0.2 drop
    iifgroup {SLOT_GROUP} arp daddr ip != 10.0.0.1 drop
  }}
}}
"#
    )
}

/// The router's rules that keep sandboxes from the host's own addresses and from the networks on its links.
pub(crate) fn wall_rules(ranges: &[Range]) -> String {
    let ranges = elements(ranges.iter().map(ToString::to_string));
    format!(
        r#"add table ip {WALL_TABLE}
delete table ip {WALL_TABLE}
table ip {WALL_TABLE} {{
  set host {{ type ipv4_addr; flags interval; auto-merge; {ranges} }}
  chain pre {{
    type filter hook prerouting priority -305; policy accept;
    iifgroup {SLOT_GROUP} ip daddr @host counter drop
  }}
}}
"#
    )
}

/// What tells one load of the host's rules from another: the name of an empty chain in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// A mark that no other load has, of this process or another.
    pub(crate) fn next() -> Self {
        static LOADS: AtomicU64 = AtomicU64::new(0);
        Self(format!("load_{}_{}", std::process::id(), LOADS.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn chain(&self) -> &str {
        &self.0
    }
}

/// The host's rules: nothing of ours may reach the host itself, another instance or a private range.
///
/// They name no uplink: whatever the host's routing chooses is right, unless it is blocked. The check
/// stands twice because another table's DNAT (a published container port) may come in between.
#[derive(Clone, Debug)]
pub(crate) struct HostRules {
    table: String,
    device: String,
    router: Ipv4Addr,
}

impl HostRules {
    pub(crate) fn new(tag: &str, subnet: Subnet) -> Self {
        Self { table: host_table(tag), device: uplink::host_device(tag), router: subnet.router() }
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The text of one load.
    pub(crate) fn text(&self, mark: &Mark) -> String {
        let Self { table, device, router } = self;
        let (mark, blocked) = (mark.chain(), elements(BLOCKED.iter().map(ToString::to_string)));
        format!(
            r#"add table ip {table}
delete table ip {table}
table ip {table} {{
  set blocked {{ type ipv4_addr; flags interval; auto-merge; {blocked} }}
  chain {mark} {{
  }}
  chain pre {{
    type filter hook prerouting priority -310; policy accept;
    iifname "{device}" ip saddr != {router} drop
    iifname "{device}" ip daddr @blocked drop
  }}
  chain input {{
    type filter hook input priority -10; policy accept;
    iifname "{device}" drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    iifname "{device}" oifgroup {HOST_GROUP} drop
    iifname "{device}" ip daddr @blocked drop
    iifname "{device}" accept
    oifname "{device}" ct state established,related ct direction reply accept
    oifname "{device}" drop
  }}
  chain nat {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {router} oifname != "{device}" masquerade
  }}
}}
"#
        )
    }
}

/// The elements of a set, or nothing at all: the tool does not take an empty list.
fn elements(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { String::new() } else { format!("elements = {{ {} }}", items.join(", ")) }
}

/// Loads rules in the network namespace of the calling thread, all or nothing.
pub(crate) fn load(scope: &'static str, rules: &str) -> Result<(), RulesError> {
    let mut child = nft()
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(RulesError::Run)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends early says why on its standard error.
        drop(stdin.write_all(rules.as_bytes()));
    }
    let output = child.wait_with_output().map_err(RulesError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(RulesError::Refused { scope, message })
}

/// The `nft` tool, also where the folder of system tools is not in `PATH`.
pub(crate) fn nft() -> Command {
    let known = ["/usr/sbin/nft", "/sbin/nft"];
    let path = known.into_iter().find(|path| std::path::Path::new(path).exists());
    Command::new(path.unwrap_or("nft"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_slots_in_use_are_part_of_the_rules() {
        let rules = router_rules(&[(Slot(1), Access::Internet), (Slot(2), Access::DaemonOnly)]);
        assert!(rules.contains(r#"elements = { "s1" : 100.64.0.1, "s2" : 100.64.0.2 }"#));
        assert!(rules.contains(r#"size 8192; elements = { "s1" } }"#));
        assert!(!router_rules(&[]).contains("elements = {  }"));
    }
}
