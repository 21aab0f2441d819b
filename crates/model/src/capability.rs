//! Linux capabilities that root in a sandbox has only if a caller asks for them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A Linux capability that a sandbox can be given beyond the usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// Root inside configures the sandbox's own network: addresses, routes, firewall, devices.
    NetAdmin,
    /// Root inside opens raw and packet sockets, as tcpdump does.
    NetRaw,
}

/// The word for an empty set.
const NONE: &str = "none";

impl Capability {
    /// Every capability that can be given.
    pub const ALL: [Self; 2] = [Self::NetAdmin, Self::NetRaw];

    /// The word of the API and the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetAdmin => "net-admin",
            Self::NetRaw => "net-raw",
        }
    }

    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
        }
    }

    /// Reads words with commas between them; `none` stands for no capability.
    pub fn parse_set(text: &str) -> Result<BTreeSet<Self>, String> {
        if text == NONE {
            return Ok(BTreeSet::new());
        }
        text.split(',').map(|word| word.trim().parse()).collect()
    }

    /// Shows a set as [`Self::parse_set`] reads it.
    pub fn show_set(set: &BTreeSet<Self>) -> String {
        if set.is_empty() {
            return NONE.to_owned();
        }
        set.iter().map(|capability| capability.as_str()).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Capability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|capability| capability.as_str() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(|capability| format!("`{capability}`")).join(" and ");
            format!("no capability named `{text}`: a sandbox can be given {known}")
        })
    }
}

impl<'de> Deserialize<'de> for Capability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_reads_as_it_is_shown() {
        for set in [vec![], vec![Capability::NetRaw], Capability::ALL.to_vec()] {
            let set = BTreeSet::from_iter(set);
            assert_eq!(Capability::parse_set(&Capability::show_set(&set)), Ok(set));
        }
        assert_eq!(Capability::parse_set("net-raw, net-admin"), Ok(BTreeSet::from(Capability::ALL)));
    }

    #[test]
    fn capability_has_one_word_in_json_and_text() {
        for capability in Capability::ALL {
            assert_eq!(serde_json::to_value(capability).unwrap(), capability.as_str());
            assert_eq!(serde_json::from_value::<Capability>(capability.as_str().into()).unwrap(), capability);
        }
    }

    #[test]
    fn unknown_capability_is_refused_with_the_known_ones() {
        for text in ["sys-admin", "NET_ADMIN", "", "net-raw,", "none,net-raw"] {
            let refused = Capability::parse_set(text).unwrap_err();
            assert!(refused.contains("`net-admin` and `net-raw`"), "{refused}");
        }
        let refused = serde_json::from_value::<Capability>("sys-admin".into()).unwrap_err();
        assert!(refused.to_string().contains("no capability named `sys-admin`"), "{refused}");
    }
}
