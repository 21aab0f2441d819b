//! Names that people give: one label of a host name, because ports are served at `<port>-<name>.<domain>`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const LONGEST: usize = 50;

/// A valid name of a sandbox or template.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?$", example = "web")]
pub struct Name(String);

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing was given.
    #[error("a name cannot be empty")]
    Empty,
    /// Too long for a host name label with a port before it.
    #[error("name `{0}` is longer than {LONGEST} characters")]
    TooLong(String),
    /// A character outside the alphabet.
    #[error("name `{0}` has `{1}` in it: use a-z, 0-9 and inner dashes")]
    Character(String, char),
    /// A dash where a label cannot have one.
    #[error("name `{0}` starts or ends with a dash")]
    Dash(String),
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A friendly name for a sandbox that was given none, made of random bits.
    pub fn from_random(random: u32) -> Self {
        const FIRST: [&str; 16] = [
            "amber", "brisk", "calm", "deft", "eager", "fleet", "glad", "hazel", "ivory", "jolly", "keen", "lucid",
            "mellow", "noble", "quiet", "sunny",
        ];
        const SECOND: [&str; 16] = [
            "crane", "dove", "egret", "finch", "grebe", "heron", "ibis", "jay", "kite", "lark", "martin", "owl",
            "pipit", "robin", "swift", "wren",
        ];
        let first = FIRST[(random & 15) as usize];
        let second = SECOND[((random >> 4) & 15) as usize];
        Self(format!("{first}-{second}-{:04x}", (random >> 8) & 0xffff))
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if let Some(odd) = text.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(NameError::Character(text.to_owned(), odd));
        }
        if text.len() > LONGEST {
            return Err(NameError::TooLong(text.to_owned()));
        }
        if text.starts_with('-') || text.ends_with('-') {
            return Err(NameError::Dash(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names() {
        for good in ["a", "web", "web-1", "3000-web", "0"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        assert_eq!("".parse::<Name>(), Err(NameError::Empty));
        assert!(matches!("Web".parse::<Name>(), Err(NameError::Character(_, 'W'))));
        assert!(matches!("a/b".parse::<Name>(), Err(NameError::Character(_, '/'))));
        assert!(matches!("-a".parse::<Name>(), Err(NameError::Dash(_))));
        assert!(matches!("a".repeat(51).parse::<Name>(), Err(NameError::TooLong(_))));
    }

    #[test]
    fn random_names_are_names() {
        for random in [0, 1, 0xffff_ffff, 0x1234_5678] {
            assert!(Name::from_random(random).as_str().parse::<Name>().is_ok());
        }
    }
}
