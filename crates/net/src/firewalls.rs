//! The firewalls of other programs that may drop what the host forwards, and how each of them lets sandboxes through.

use serde_json::Value;

use crate::probe::{Finding, Severity};

/// A program with rules of its own, told by the names that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Firewall {
    Docker,
    Ufw,
    Firewalld,
    Other,
}

/// A chain of a listing by `nft -j list chains`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain<'a> {
    pub(crate) family: &'a str,
    pub(crate) table: &'a str,
    name: &'a str,
    hook: &'a str,
    policy: &'a str,
}

/// The chains of a listing; anything else in it is passed over.
pub(crate) fn chains(listing: &Value) -> impl Iterator<Item = Chain<'_>> {
    let entries = listing.get("nftables").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(|entry| entry.get("chain")).map(|chain| {
        let field = |name| chain.get(name).and_then(Value::as_str).unwrap_or_default();
        Chain {
            family: field("family"),
            table: field("table"),
            name: field("name"),
            hook: field("hook"),
            policy: field("policy"),
        }
    })
}

/// Returns a finding for each table of others that drops forwarded packets by default.
///
/// An accept in our own table cannot overrule them: a packet must be accepted by every table. `text` lists a table.
pub(crate) fn obstacles(listing: &Value, device: &str, text: impl Fn(&str, &str) -> Option<String>) -> Vec<Finding> {
    let all: Vec<Chain<'_>> = chains(listing).collect();
    all.iter()
        .filter(|chain| chain.hook == "forward" && ["ip", "inet"].contains(&chain.family))
        .filter_map(|chain| {
            let firewall = Firewall::of(chain, &all);
            // firewalld accepts by policy and rejects by its last rule.
            (firewall == Firewall::Firewalld || chain.policy == "drop").then_some((chain, firewall))
        })
        .map(|(chain, firewall)| {
            let passes = text(chain.family, chain.table).is_some_and(|text| lets_through(&text, device));
            finding(chain, firewall, passes, device)
        })
        .collect()
}

impl Firewall {
    /// The program that made a chain, by its table and the other chains in it.
    fn of(chain: &Chain<'_>, all: &[Chain<'_>]) -> Self {
        let beside = |start: &str| {
            all.iter().any(|other| {
                (other.family, other.table) == (chain.family, chain.table) && other.name.starts_with(start)
            })
        };
        if chain.table == "firewalld" {
            Self::Firewalld
        } else if beside("ufw-") {
            Self::Ufw
        } else if beside("DOCKER") {
            Self::Docker
        } else {
            Self::Other
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Docker => "Docker",
            Self::Ufw => "ufw",
            Self::Firewalld => "firewalld",
            Self::Other => "another firewall",
        }
    }

    /// What lets sandboxes through, and where to write it so that it lasts.
    fn remedy(self, chain: &Chain<'_>, device: &str) -> String {
        let Chain { family, table, name, .. } = chain;
        match self {
            Self::Docker => "iptables -I DOCKER-USER -i ro+ -j ACCEPT; iptables -I DOCKER-USER -o ro+ \
                             -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; to last: net.ipv4.ip_forward=1 in a file \
                             of /etc/sysctl.d, with which Docker leaves forwarding as it is at the next boot"
                .to_owned(),
            Self::Ufw => format!("ufw route allow in on {device}; ufw keeps it"),
            Self::Firewalld => format!(
                "firewall-cmd --permanent --zone=trusted --add-interface={device} && firewall-cmd --reload; \
                 the host itself stays closed to sandboxes by rules of ours"
            ),
            Self::Other => format!(
                "nft insert rule {family} {table} {name} iifname \"ro*\" accept; \
                 nft insert rule {family} {table} {name} oifname \"ro*\" ct state established,related accept; \
                 to last: both rules at the head of chain `{name}` in /etc/nftables.conf"
            ),
        }
    }
}

fn finding(chain: &Chain<'_>, firewall: Firewall, passes: bool, device: &str) -> Finding {
    let Chain { family, table, name, .. } = chain;
    let drops = format!(
        "chain `{name}` of nft table `{family} {table}` ({}) drops forwarded packets unless a rule of its own accepts them",
        firewall.name()
    );
    if passes {
        return Finding {
            severity: Severity::Note,
            code: "forward_policy_drop",
            message: format!("{drops}: it has one for sandboxes"),
            hint: None,
        };
    }
    Finding {
        severity: Severity::Warning,
        code: "forward_policy_drop",
        message: format!("{drops}: sandboxes may have no internet"),
        hint: Some(firewall.remedy(chain, device)),
    }
}

/// Whether a table's text has a rule that accepts packets from the device, or sends them to firewalld's trusted zone.
fn lets_through(text: &str, device: &str) -> bool {
    text.lines().any(|line| {
        let named = line.split("iifname \"").nth(1).and_then(|rest| rest.split('"').next());
        let is_ours = named.is_some_and(|name| match name.strip_suffix('*') {
            Some(start) => device.starts_with(start),
            None => name == device,
        });
        is_ours && (line.trim_end().ends_with("accept") || line.contains("_trusted"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: &str = "ro12ab34u";

    fn chain(family: &str, table: &str, name: &str, hook: Option<(&str, &str)>) -> Value {
        let mut chain = serde_json::json!({ "family": family, "table": table, "name": name });
        if let Some((hook, policy)) = hook {
            chain["hook"] = hook.into();
            chain["policy"] = policy.into();
        }
        serde_json::json!({ "chain": chain })
    }

    fn found(chains: &[Value], text: &str) -> Vec<Finding> {
        obstacles(&serde_json::json!({ "nftables": chains }), DEVICE, |_, _| Some(text.to_owned()))
    }

    #[test]
    fn dropping_forward_chain_is_reported_and_others_are_not() {
        let findings = found(
            &[
                serde_json::json!({ "metainfo": { "version": "1.0.6" } }),
                chain("ip", "filter", "FORWARD", Some(("forward", "drop"))),
                chain("ip", "filter", "INPUT", Some(("input", "drop"))),
                chain("inet", "x", "fwd", Some(("forward", "accept"))),
                chain("ip6", "filter", "FORWARD", Some(("forward", "drop"))),
            ],
            "",
        );
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].severity, Severity::Warning);
        assert!(findings[0].message.contains("`FORWARD` of nft table `ip filter` (another firewall)"));
        assert!(findings[0].hint.as_ref().unwrap().contains("/etc/nftables.conf"));
    }

    #[test]
    fn each_firewall_is_named_with_its_own_remedy() {
        let forward = || chain("ip", "filter", "FORWARD", Some(("forward", "drop")));
        let of = |chains: &[Value]| {
            let findings = found(chains, "");
            assert_eq!(findings.len(), 1, "{findings:?}");
            (findings[0].message.clone(), findings[0].hint.clone().unwrap())
        };
        let (message, hint) = of(&[forward(), chain("ip", "filter", "DOCKER-USER", None)]);
        assert!(message.contains("(Docker)") && hint.contains("DOCKER-USER"), "{message} {hint}");
        let (message, hint) =
            of(&[chain("ip", "filter", "DOCKER", None), forward(), chain("ip", "filter", "ufw-user-forward", None)]);
        assert!(message.contains("(ufw)") && hint.contains("ufw route allow in on ro12ab34u"), "{message} {hint}");
        let (message, hint) = of(&[chain("inet", "firewalld", "filter_FORWARD", Some(("forward", "accept")))]);
        assert!(message.contains("(firewalld)") && hint.contains("--add-interface=ro12ab34u"), "{message} {hint}");
    }

    #[test]
    fn rule_for_sandboxes_makes_it_a_note() {
        let forward = [chain("ip", "filter", "FORWARD", Some(("forward", "drop")))];
        for rule in [
            "\t\tiifname \"ro*\" accept",
            "\t\tiifname \"ro12ab34u\" counter packets 0 bytes 0 accept",
            "\t\tiifname \"ro12ab34u\" goto FWD_trusted",
        ] {
            assert_eq!(found(&forward, rule)[0].severity, Severity::Note, "{rule}");
        }
        for rule in [
            "iifname \"ro12ab34u\" drop",
            "iifname \"eth0\" accept",
            "oifname \"ro*\" accept",
            "iifname \"ro99u\" accept",
        ] {
            assert_eq!(found(&forward, rule)[0].severity, Severity::Warning, "{rule}");
        }
    }

    #[test]
    fn unexpected_listing_is_no_finding() {
        let none = |_: &str, _: &str| None;
        assert!(obstacles(&Value::Null, DEVICE, none).is_empty());
        assert!(obstacles(&serde_json::json!({ "nftables": [{ "chain": 7 }] }), DEVICE, none).is_empty());
    }
}
