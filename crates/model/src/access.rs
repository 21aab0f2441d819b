//! What somebody who holds a token or a key may do: which sandboxes it reaches, how many it may make, and whether it may
//! destroy anything.
//!
//! Pure questions; the host asks them at every door.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Name, NameError, SandboxId};

/// A made-up name must still fit behind it.
const LONGEST_PREFIX: usize = 30;
const LONGEST_LABEL: usize = 256;

/// What a token or a key is good for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Which sandboxes it reaches.
    #[serde(default)]
    pub reach: Reach,
    /// How many sandboxes that it made may be there at a time; any number if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u32>,
    /// Whether it may end sandboxes, take them back to a checkpoint and remove checkpoints.
    #[serde(default = "yes")]
    pub may_destroy: bool,
}

/// Which sandboxes somebody reaches. What is made or forked must be within reach, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reach {
    /// All of them.
    #[default]
    All,
    /// Those whose name starts with this.
    Prefix(String),
    /// Those with this label.
    Label {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// One, by its id or its name; it can make no other.
    Sandbox(String),
}

/// A sandbox, as far as access goes.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its id.
    pub id: &'a SandboxId,
    /// Its name.
    pub name: &'a Name,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// Why an access cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Nothing starts like this.
    #[error(
        "`{0}` is not the beginning of a name: use up to {LONGEST_PREFIX} of a-z, 0-9 and dashes, and no dash in front"
    )]
    Prefix(String),
    /// No label looks like this.
    #[error("`{0}` is not the key of a label")]
    Label(String),
    /// Neither an id nor a name.
    #[error(transparent)]
    Sandbox(#[from] NameError),
    /// It could make nothing and reach nothing.
    #[error("at most 0 sandboxes: give 1 or more, or leave it out")]
    None,
}

/// Why somebody may not do something. Reads on after the word for what is limited: `this token …`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not within reach.
    #[error("reaches only {reach}, and `{what}` is not among them")]
    OutOfReach {
        /// What was asked for.
        what: String,
        /// What it reaches.
        reach: Reach,
    },
    /// It would be out of reach.
    #[error("makes only {reach}, and `{name}` would not be among them")]
    WouldBeOutOfReach {
        /// The name of what was to be made.
        name: String,
        /// What it reaches.
        reach: Reach,
    },
    /// It reaches one sandbox and makes none.
    #[error("reaches only {0}, and makes no others")]
    MakesNone(Reach),
    /// It would lose what it reaches.
    #[error("reaches only {0}, and may not change that label")]
    KeepsLabel(Reach),
    /// As many are there as may be.
    #[error("may have {most} sandboxes, has {have}, and {more} more are asked for")]
    TooMany {
        /// How many may be there.
        most: u32,
        /// How many are.
        have: usize,
        /// How many are to be made.
        more: usize,
    },
    /// It may destroy nothing.
    #[error("may destroy nothing: it cannot {0}")]
    NoDestruction(String),
    /// It is for those without limits.
    #[error("is limited, and cannot {0}")]
    Limited(String),
}

fn yes() -> bool {
    true
}

impl Default for Access {
    fn default() -> Self {
        Self { reach: Reach::All, at_most: None, may_destroy: true }
    }
}

impl Access {
    /// Whether there is anything it may not do.
    pub fn is_limited(&self) -> bool {
        *self != Self::default()
    }

    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), AccessError> {
        if self.at_most == Some(0) {
            return Err(AccessError::None);
        }
        match &self.reach {
            Reach::All => Ok(()),
            Reach::Prefix(prefix) => {
                let fits = (1..=LONGEST_PREFIX).contains(&prefix.len())
                    && !prefix.starts_with('-')
                    && prefix.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
                if fits { Ok(()) } else { Err(AccessError::Prefix(prefix.clone())) }
            }
            Reach::Label { key, value } => {
                let plain = |text: &str| text.chars().all(|c| !c.is_control() && c != ',');
                let fits = (1..=LONGEST_LABEL).contains(&key.len()) && !key.contains('=') && plain(key) && plain(value);
                if fits { Ok(()) } else { Err(AccessError::Label(key.clone())) }
            }
            Reach::Sandbox(one) => {
                if one.parse::<SandboxId>().is_err() {
                    one.parse::<Name>()?;
                }
                Ok(())
            }
        }
    }

    /// Whether a sandbox is within reach.
    pub fn reaches(&self, sandbox: Subject<'_>) -> bool {
        match &self.reach {
            Reach::All => true,
            Reach::Prefix(prefix) => sandbox.name.as_str().starts_with(prefix.as_str()),
            Reach::Label { key, value } => sandbox.labels.get(key) == Some(value),
            Reach::Sandbox(one) => sandbox.id.as_str() == one || sandbox.name.as_str() == one,
        }
    }

    /// Refuses what a text cannot mean within reach, so that nobody learns what is there beyond it.
    pub fn may_ask_for(&self, text: &str) -> Result<(), Refused> {
        let by_id = text.starts_with(SandboxId::PREFIX);
        match &self.reach {
            Reach::Prefix(prefix) if !by_id && !text.starts_with(prefix.as_str()) && text.parse::<Name>().is_ok() => {
                // The beginning of an id is made of the same letters as a name.
                if text.starts_with('0') { Ok(()) } else { Err(self.out_of_reach(text)) }
            }
            _ => Ok(()),
        }
    }

    /// The refusal of what is out of reach.
    pub fn out_of_reach(&self, what: &str) -> Refused {
        Refused::OutOfReach { what: what.to_owned(), reach: self.reach.clone() }
    }

    /// The name of a sandbox to make: the one that is asked for, or a made-up one within reach.
    pub fn name_for(&self, wanted: Option<Name>, made_up: impl FnOnce() -> Name) -> Result<Name, Refused> {
        match (&self.reach, wanted) {
            (Reach::Sandbox(_), _) => Err(Refused::MakesNone(self.reach.clone())),
            (Reach::Prefix(prefix), Some(name)) if !name.as_str().starts_with(prefix.as_str()) => {
                Err(Refused::WouldBeOutOfReach { name: name.to_string(), reach: self.reach.clone() })
            }
            (_, Some(name)) => Ok(name),
            (Reach::Prefix(prefix), None) => {
                let made_up = made_up();
                let dash = if prefix.ends_with('-') { "" } else { "-" };
                let name = format!("{prefix}{dash}{made_up}");
                // A checked prefix leaves room for every made-up name.
                name.parse().map_err(|_| Refused::WouldBeOutOfReach { name, reach: self.reach.clone() })
            }
            (_, None) => Ok(made_up()),
        }
    }

    /// The labels of a sandbox to make: with the one that brings it within reach.
    pub fn label_for(&self, name: &str, labels: &mut BTreeMap<String, String>) -> Result<(), Refused> {
        let Reach::Label { key, value } = &self.reach else { return Ok(()) };
        match labels.get(key) {
            Some(other) if other != value => {
                Err(Refused::WouldBeOutOfReach { name: name.to_owned(), reach: self.reach.clone() })
            }
            _ => {
                labels.insert(key.clone(), value.clone());
                Ok(())
            }
        }
    }

    /// Whether a sandbox is within reach by this label alone.
    pub fn needs_label(&self, label: &str) -> bool {
        matches!(&self.reach, Reach::Label { key, .. } if key == label)
    }

    /// Whether labels may be changed so.
    pub fn may_relabel(&self, changes: &BTreeMap<String, Option<String>>) -> Result<(), Refused> {
        match &self.reach {
            Reach::Label { key, value } if changes.get(key).is_some_and(|new| new.as_ref() != Some(value)) => {
                Err(Refused::KeepsLabel(self.reach.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Whether so many more may be made by somebody who has so many.
    pub fn may_make(&self, more: usize, have: usize) -> Result<(), Refused> {
        match self.at_most {
            Some(most) if have + more > most as usize => Err(Refused::TooMany { most, have, more }),
            _ => Ok(()),
        }
    }

    /// Whether something may be destroyed; `what` it is reads on after `it cannot`.
    pub fn may_destroy(&self, what: &str) -> Result<(), Refused> {
        if self.may_destroy { Ok(()) } else { Err(Refused::NoDestruction(what.to_owned())) }
    }

    /// Whether something may be done that is not about sandboxes within reach; `what` reads on after `cannot`.
    pub fn without_limits(&self, what: &str) -> Result<(), Refused> {
        if self.is_limited() { Err(Refused::Limited(what.to_owned())) } else { Ok(()) }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all sandboxes"),
            Self::Prefix(prefix) => write!(f, "sandboxes named `{prefix}…`"),
            Self::Label { key, value } => write!(f, "sandboxes with the label {key}={value}"),
            Self::Sandbox(one) => write!(f, "the sandbox `{one}`"),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reach)?;
        if let Some(most) = self.at_most {
            write!(f, ", at most {most}")?;
        }
        if self.may_destroy { Ok(()) } else { f.write_str(", no destruction") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn prefix(text: &str) -> Access {
        Access { reach: Reach::Prefix(text.to_owned()), ..Access::default() }
    }

    fn label(key: &str, value: &str) -> Access {
        Access { reach: Reach::Label { key: key.to_owned(), value: value.to_owned() }, ..Access::default() }
    }

    fn only(one: &str) -> Access {
        Access { reach: Reach::Sandbox(one.to_owned()), ..Access::default() }
    }

    fn reaches(access: &Access, name: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (id, name) = (SandboxId::from_parts(1, 1), name.parse().unwrap());
        access.reaches(Subject { id: &id, name: &name, labels: &labels })
    }

    #[test]
    fn each_reach_knows_its_own() {
        assert!(reaches(&Access::default(), "web", &[]));
        assert!(reaches(&prefix("agent-"), "agent-1", &[]) && !reaches(&prefix("agent-"), "agent", &[]));
        assert!(reaches(&label("team", "a"), "web", &[("team", "a"), ("x", "y")]));
        assert!(!reaches(&label("team", "a"), "web", &[("team", "b")]) && !reaches(&label("team", "a"), "web", &[]));
        assert!(reaches(&only("web"), "web", &[]) && !reaches(&only("web"), "web-2", &[]));
        assert!(reaches(&only(SandboxId::from_parts(1, 1).as_str()), "any", &[]));
    }

    #[test]
    fn a_name_is_refused_before_anybody_looks_for_it() {
        let agent = prefix("agent-");
        let refused = agent.may_ask_for("web").unwrap_err();
        assert_eq!(refused.to_string(), "reaches only sandboxes named `agent-…`, and `web` is not among them");
        for text in ["agent-1", "sbx_01k9zzzzzzzzzzzzzzzzzzzzzz", "01k9zz", "No Name"] {
            assert_eq!(agent.may_ask_for(text), Ok(()), "{text}");
        }
        assert_eq!(label("team", "a").may_ask_for("web"), Ok(()));
    }

    #[test]
    fn what_is_made_is_within_reach() {
        let made_up = || Name::from_random(7);
        assert_eq!(
            prefix("agent-").name_for(None, made_up).unwrap().as_str(),
            "agent-jay-x".replace("jay-x", made_up().as_str())
        );
        assert!(prefix("agent").name_for(None, made_up).unwrap().as_str().starts_with("agent-"));
        assert!(prefix("agent-").name_for(Some("web".parse().unwrap()), made_up).is_err());
        assert_eq!(prefix("agent-").name_for(Some("agent-x".parse().unwrap()), made_up).unwrap().as_str(), "agent-x");
        assert_eq!(only("web").name_for(None, made_up), Err(Refused::MakesNone(Reach::Sandbox("web".to_owned()))));
        let mut labels = BTreeMap::new();
        label("team", "a").label_for("web", &mut labels).unwrap();
        assert_eq!(labels["team"], "a");
        assert!(label("team", "b").label_for("web", &mut labels).is_err());
    }

    #[test]
    fn what_brings_it_within_reach_cannot_be_taken_off() {
        let change = |value: Option<&str>| BTreeMap::from([("team".to_owned(), value.map(str::to_owned))]);
        let team = label("team", "a");
        assert!(team.may_relabel(&change(None)).is_err() && team.may_relabel(&change(Some("b"))).is_err());
        assert!(team.may_relabel(&change(Some("a"))).is_ok() && prefix("a").may_relabel(&change(None)).is_ok());
    }

    #[test]
    fn counts_and_destruction_are_bounded() {
        let five = Access { at_most: Some(5), may_destroy: false, ..Access::default() };
        assert_eq!((five.may_make(1, 4), five.may_make(5, 0)), (Ok(()), Ok(())));
        let refused = five.may_make(3, 3).unwrap_err();
        assert_eq!(refused.to_string(), "may have 5 sandboxes, has 3, and 3 more are asked for");
        let refused = five.may_destroy("remove it").unwrap_err();
        assert_eq!(refused.to_string(), "may destroy nothing: it cannot remove it");
        assert!(five.without_limits("make tokens").is_err() && Access::default().without_limits("make tokens").is_ok());
        assert_eq!(five.to_string(), "all sandboxes, at most 5, no destruction");
    }

    #[test]
    fn it_reads_as_it_is_written() {
        assert_eq!(serde_json::from_value::<Access>(json!({})).unwrap(), Access::default());
        for (access, written) in [
            (Access::default(), json!({"reach": "all", "may_destroy": true})),
            (
                Access { at_most: Some(5), may_destroy: false, ..prefix("agent-") },
                json!({"reach": {"prefix": "agent-"}, "at_most": 5, "may_destroy": false}),
            ),
            (label("team", "a"), json!({"reach": {"label": {"key": "team", "value": "a"}}, "may_destroy": true})),
            (only("web"), json!({"reach": {"sandbox": "web"}, "may_destroy": true})),
        ] {
            assert_eq!(serde_json::to_value(&access).unwrap(), written);
            assert_eq!(serde_json::from_value::<Access>(written).unwrap(), access);
        }
        // A limit that is not understood must not become no limit.
        for unknown in [json!({"hours": "9-17"}), json!({"reach": {"planet": "mars"}})] {
            assert!(serde_json::from_value::<Access>(unknown).is_err());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for good in [Access::default(), prefix("agent-"), prefix("a"), label("team", ""), only("web")] {
            assert_eq!(good.check(), Ok(()), "{good}");
        }
        let none = Access { at_most: Some(0), ..Access::default() };
        let long = "a".repeat(31);
        for bad in [
            none,
            prefix(""),
            prefix("-a"),
            prefix("Agent"),
            prefix(&long),
            label("", "a"),
            label("a=b", ""),
            only("a b"),
        ] {
            assert!(bad.check().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_made_up_name_is_always_within_reach(text in "[a-z0-9][a-z0-9-]{0,29}", random: u32) {
            let access = prefix(&text);
            prop_assert_eq!(access.check(), Ok(()));
            let name = access.name_for(None, || Name::from_random(random)).unwrap();
            prop_assert!(reaches(&access, name.as_str(), &[]), "{}", name);
            prop_assert_eq!(access.may_ask_for(name.as_str()), Ok(()));
        }
    }
}
