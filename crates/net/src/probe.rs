//! What on this host helps or hinders the network, for `doctor`.

use std::io;
use std::os::fd::AsFd;

use roost_sys::netns;
use serde::Serialize;
use serde_json::Value;

use crate::netlink::message::Batch;
use crate::netlink::route::{self, End};
use crate::netlink::{NetlinkError, Socket};
use crate::{rules, sysctl};

const FORWARDING: &str = "ipv4/ip_forward";

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know.
    Note,
    /// Sandboxes may have no internet.
    Warning,
    /// Sandboxes cannot have a network.
    Failure,
}

/// Something about the host that matters to the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name of it.
    pub code: &'static str,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Looks at the host without changing it.
pub fn probe() -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(probe_forwarding());
    findings.extend(probe_veth().err().map(|error| Finding {
        severity: Severity::Failure,
        code: "no_veth",
        message: format!("this kernel does not let us make veth pairs: {error}"),
        hint: Some("load the `veth` module, and run the daemon as root".to_owned()),
    }));
    match list_chains() {
        Ok(listing) => findings.extend(dropping_chains(&listing)),
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Turns on the host's forwarding of packets and says so if it was off.
pub(crate) fn enable_forwarding() -> Option<Finding> {
    // A refusal is found by the probe that follows.
    let changed = sysctl::set(FORWARDING, "1").unwrap_or(false);
    changed.then(|| Finding {
        severity: Severity::Note,
        code: "forwarding_enabled",
        message: "net.ipv4.ip_forward was 0 and has been set to 1".to_owned(),
        hint: None,
    })
}

/// The neighbour table is one for all namespaces; its default limit suits a single machine.
pub(crate) fn raise_neighbour_limits() {
    for (name, value) in [("gc_thresh3", 65536), ("gc_thresh2", 32768), ("gc_thresh1", 16384)] {
        sysctl::raise_setting(&format!("net/ipv4/neigh/default/{name}"), value);
    }
}

fn probe_forwarding() -> Option<Finding> {
    let value = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap_or_default();
    if value.trim() == "1" {
        return None;
    }
    Some(Finding {
        severity: Severity::Warning,
        code: "forwarding_off",
        message: "net.ipv4.ip_forward is off: sandboxes have no internet until it is on".to_owned(),
        hint: Some("sysctl -w net.ipv4.ip_forward=1 (a daemon run by root does it)".to_owned()),
    })
}

/// Makes a pair in a namespace that vanishes with it.
fn probe_veth() -> io::Result<()> {
    let unwrap = |error: NetlinkError| error.source;
    let home = netns::current()?;
    let scratch = netns::create()?;
    let mut socket = netns::visit(&home, &scratch, Socket::route)?.map_err(unwrap)?;
    let end = |name| End { name, index: 0, mac: None, group: 0, up: false };
    let mut batch = Batch::new();
    route::add_veth(&mut batch, end("probe0"), end("probe1"), scratch.as_fd(), 1500);
    socket.execute(&batch).map_err(unwrap)
}

fn list_chains() -> Result<Value, Finding> {
    let failure = |code, message| Finding {
        severity: Severity::Failure,
        code,
        message,
        hint: Some("install the package `nftables`, and run the daemon as root".to_owned()),
    };
    let output = rules::nft()
        .args(["-j", "list", "chains"])
        .output()
        .map_err(|error| failure("nft_missing", format!("cannot run `nft`: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(failure("nft_refused", format!("`nft` cannot read the rules: {said}")));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// Chains of others that drop forwarded packets by default; an accept of ours cannot overrule them.
fn dropping_chains(listing: &Value) -> Vec<Finding> {
    let entries = listing.get("nftables").and_then(Value::as_array);
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("chain"))
        .filter_map(|chain| {
            let field = |name| chain.get(name).and_then(Value::as_str).unwrap_or_default();
            let (family, table, name) = (field("family"), field("table"), field("name"));
            if !["ip", "inet"].contains(&family) || field("hook") != "forward" || field("policy") != "drop" {
                return None;
            }
            Some(Finding {
                severity: Severity::Warning,
                code: "forward_policy_drop",
                message: format!(
                    "chain `{name}` of nft table `{family} {table}` drops forwarded packets \
                     unless a rule of its own accepts them: sandboxes may have no internet"
                ),
                hint: Some(format!(
                    "nft insert rule {family} {table} {name} iifname \"ro*\" accept; \
                     nft insert rule {family} {table} {name} oifname \"ro*\" ct state \
                     established,related accept"
                )),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropping_forward_chain_is_reported_and_others_are_not() {
        let ruleset = serde_json::json!({ "nftables": [
            { "metainfo": { "version": "1.0.6" } },
            { "table": { "family": "ip", "name": "filter" } },
            { "chain": { "family": "ip", "table": "filter", "name": "FORWARD",
                         "hook": "forward", "policy": "drop" } },
            { "chain": { "family": "ip", "table": "filter", "name": "INPUT",
                         "hook": "input", "policy": "drop" } },
            { "chain": { "family": "inet", "table": "x", "name": "fwd",
                         "hook": "forward", "policy": "accept" } },
            { "chain": { "family": "ip", "table": "filter", "name": "DOCKER-USER" } },
        ]});
        let findings = dropping_chains(&ruleset);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`FORWARD` of nft table `ip filter`"));
    }

    #[test]
    fn an_unexpected_listing_is_no_finding() {
        assert!(dropping_chains(&Value::Null).is_empty());
        assert!(dropping_chains(&serde_json::json!({ "nftables": [{ "chain": 7 }] })).is_empty());
    }

    #[test]
    fn this_kernel_has_veth() {
        probe_veth().unwrap();
    }
}
