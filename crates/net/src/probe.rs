//! What on this host helps or hinders the network, for `doctor`.

use std::io;
use std::os::fd::AsFd;

use roost_sys::netns;
use serde::Serialize;
use serde_json::Value;

use crate::config::Config;
use crate::netlink::message::Batch;
use crate::netlink::route::{self, End};
use crate::netlink::{NetlinkError, Socket};
use crate::{firewalls, rules, sysctl, uplink};

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

/// What an instance has in the host's own network.
#[derive(Clone, Debug)]
pub(crate) struct HostSide {
    pub(crate) table: String,
    pub(crate) device: String,
}

impl HostSide {
    pub(crate) fn of(config: &Config) -> Self {
        Self { table: rules::host_table(&config.tag), device: uplink::host_device(&config.tag) }
    }
}

/// Looks at the host without changing it; `loads` is how often its table had to be loaded again.
pub(crate) fn probe(host: &HostSide, loads: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(probe_forwarding());
    findings.extend(probe_veth().err().map(|error| Finding {
        severity: Severity::Failure,
        code: "no_veth",
        message: format!("this kernel does not let us make veth pairs: {error}"),
        hint: Some("load the `veth` module, and run the daemon as root".to_owned()),
    }));
    match list_chains() {
        Ok(listing) => {
            findings.extend(own_table(&listing, &host.table, loads));
            findings.extend(firewalls::obstacles(&listing, &host.device, list_table));
        }
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
        hint: Some(
            "sysctl -w net.ipv4.ip_forward=1, and the same line in a file of /etc/sysctl.d to make it last".to_owned(),
        ),
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

/// The text of one table, with `None` if it cannot be had.
fn list_table(family: &str, table: &str) -> Option<String> {
    let output = rules::nft().args(["list", "table", family, table]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the host's table of the instance is there, and whether it always was.
fn own_table(listing: &Value, table: &str, loads: u64) -> Option<Finding> {
    let is_there = firewalls::chains(listing).any(|chain| chain.family == "ip" && chain.table == table);
    if !is_there {
        return Some(Finding {
            severity: Severity::Warning,
            code: "host_table_missing",
            message: format!(
                "nft table `ip {table}` is missing: sandboxes have no internet until the daemon has loaded it again"
            ),
            hint: Some("the daemon tries each second; its log names the reason".to_owned()),
        });
    }
    (loads > 0).then(|| Finding {
        severity: Severity::Note,
        code: "host_table_loaded_again",
        message: format!(
            "nft table `ip {table}` was loaded again since the daemon started, because other programs removed or \
             changed it ({loads}x)"
        ),
        hint: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_table_is_a_warning_and_a_repaired_one_a_note() {
        let listing = serde_json::json!({ "nftables": [
            { "chain": { "family": "ip", "table": "roost_a", "name": "pre" } },
            { "chain": { "family": "inet", "table": "roost_b", "name": "pre" } },
        ]});
        assert_eq!(own_table(&listing, "roost_a", 0), None);
        assert_eq!(own_table(&listing, "roost_a", 3).unwrap().severity, Severity::Note);
        assert_eq!(own_table(&listing, "roost_b", 0).unwrap().code, "host_table_missing");
    }

    #[test]
    fn this_kernel_has_veth() {
        probe_veth().unwrap();
    }
}
