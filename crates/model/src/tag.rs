//! Tags: several versions of a template side by side, and how a request names one of them.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{Name, NameError, TemplateId};

const LONGEST: usize = 128;

/// A name of one version of a template, such as `v1.2`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$", example = "v1.2")]
pub struct Tag(String);

/// Why a text is not a tag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a tag: up to {LONGEST} of a-z, A-Z, 0-9, `_`, and inside it also `.` and `-`")]
pub struct TagError(String);

impl Tag {
    /// What the version that is meant without a tag is called.
    pub const DEFAULT: &'static str = "default";

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names the version that is meant without a tag.
    pub fn is_default(&self) -> bool {
        self.0 == Self::DEFAULT
    }
}

impl Default for Tag {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl FromStr for Tag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let inner = |byte: u8| first(byte) || byte == b'.' || byte == b'-';
        let fits = text.len() <= LONGEST && text.bytes().next().is_some_and(first) && text.bytes().all(inner);
        if fits { Ok(Self(text.to_owned())) } else { Err(TagError(text.to_owned())) }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A tag and what it means now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplateTag {
    /// The tag; `default` is the version that is meant without one.
    pub tag: Tag,
    /// The version.
    pub template: TemplateId,
    /// Since when the tag means it.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
}

/// A template as requests name it: `name`, or `name:tag` for one of its versions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TemplateRef {
    /// Its name.
    pub name: Name,
    /// The version; the current one if absent.
    pub tag: Option<Tag>,
}

impl From<&Name> for TemplateRef {
    fn from(name: &Name) -> Self {
        Self::from(name.clone())
    }
}

impl From<Name> for TemplateRef {
    fn from(name: Name) -> Self {
        Self { name, tag: None }
    }
}

/// Why a text does not name a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateRefError {
    /// The part before the colon is not a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The part after it is not a tag.
    #[error(transparent)]
    Tag(#[from] TagError),
}

impl FromStr for TemplateRef {
    type Err = TemplateRefError;

    fn from_str(text: &str) -> Result<Self, TemplateRefError> {
        let (name, tag) = match text.split_once(':') {
            Some((name, tag)) => (name, Some(tag.parse::<Tag>()?)),
            None => (text, None),
        };
        Ok(Self { name: name.parse()?, tag: tag.filter(|tag| !tag.is_default()) })
    }
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tag {
            Some(tag) => write!(f, "{}:{tag}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_plain_word() {
        for good in ["v1", "1.2.3", "_x", "Latest-2", &"a".repeat(128)] {
            assert!(good.parse::<Tag>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "a:b", "ä", &"a".repeat(129)] {
            assert!(bad.parse::<Tag>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_template_is_named_with_and_without_its_tag() {
        let parsed = |text: &str| text.parse::<TemplateRef>().map(|found| found.to_string());
        assert_eq!(parsed("web"), Ok("web".to_owned()));
        assert_eq!(parsed("web:v1.2"), Ok("web:v1.2".to_owned()));
        assert_eq!(parsed("web:default"), Ok("web".to_owned()));
        assert!(matches!(parsed("web:"), Err(TemplateRefError::Tag(_))));
        assert!(matches!(parsed("a/b:v1"), Err(TemplateRefError::Name(_))));
    }
}
