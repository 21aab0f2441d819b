//! The packet filter: one table on the host, two in the router, loaded whole at the daemon's start.
//!
//! Every load replaces our own tables in one transaction, with the elements of the slots in use, so
//! live slots notice nothing and left-overs of dead ones vanish. No rule grows with the number of slots.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::slot::{Access, Slot};
use crate::uplink::{HOST_GROUP, Subnet, UPLINK};

/// Every router-side end of a slot is in this device group.
pub(crate) const SLOT_GROUP: u32 = 7;
/// The router's table; the router has no other user, so the name needs no tag.
pub(crate) const ROUTER_TABLE: &str = "roost";
/// The router's table made by raw netlink, see [`crate::netlink::nft::mend_quoted_sources`].
pub(crate) const ROUTER_ICMP_TABLE: &str = "roost_icmp";
/// Map from a slot's device to its address: being in it means having a network at all.
pub(crate) const ADDRESS_MAP: &str = "slot_addr";
/// Set of the devices that may reach more than the daemon.
pub(crate) const OPEN_SET: &str = "slot_open";

/// Where a sandbox may never send to, host or router: private, shared, link-local, loopback, multicast.
const BLOCKED: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, \
                       172.16.0.0/12, 192.168.0.0/16, 224.0.0.0/3";

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
    format!(
        r#"add table ip {ROUTER_TABLE}
delete table ip {ROUTER_TABLE}
add table arp {ROUTER_TABLE}
delete table arp {ROUTER_TABLE}
table ip {ROUTER_TABLE} {{
  map {ADDRESS_MAP} {{ type ifname : ipv4_addr; size 8192; {addresses} }}
  set {OPEN_SET} {{ type ifname; size 8192; {open} }}
  set blocked {{ type ipv4_addr; flags interval; auto-merge; elements = {{ {BLOCKED} }} }}
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

/// The host's rules: nothing of ours may reach the host itself, another instance or a private range.
///
/// They name no uplink: whatever the host's routing chooses is right, unless it is blocked. The check
/// stands twice because another table's DNAT (a published container port) may come in between.
pub(crate) fn host_rules(tag: &str, device: &str, subnet: Subnet) -> String {
    let table = host_table(tag);
    let router = subnet.router();
    format!(
        r#"add table ip {table}
delete table ip {table}
table ip {table} {{
  set blocked {{ type ipv4_addr; flags interval; auto-merge; elements = {{ {BLOCKED} }} }}
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
