//! Forks: new sandboxes that start from a moment of another.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{CheckpointId, ErrorDetail, Name, NameError, Receipt, SandboxView};

/// Forks to make of a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// How many, 1 to 20; as many as there are names if absent, or one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 20)]
    pub count: Option<u32>,
    /// Their names, the first one's first; friendly ones are made up for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// The checkpoint they start from; the sandbox as it is now if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<CheckpointId>,
}

/// Why forks cannot be made as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForkError {
    /// None at all, or more than one request may make.
    #[error("{0} forks: one request makes between 1 and {most}", most = Fork::MOST)]
    Count(usize),
    /// More names than forks.
    #[error("{names} names for {count} forks")]
    Names {
        /// How many names were given.
        names: usize,
        /// How many forks were asked for.
        count: usize,
    },
    /// A name breaks the rules for names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Two forks of one name.
    #[error("the name `{0}` is given twice")]
    Twice(Name),
}

impl Fork {
    /// The most that one request makes.
    pub const MOST: usize = 20;

    /// The forks to make, one entry each: its name, or nothing where one is to be made up.
    pub fn children(&self) -> Result<Vec<Option<Name>>, ForkError> {
        let names = self.names.as_deref().unwrap_or_default();
        let count = match self.count {
            Some(count) => usize::try_from(count).unwrap_or(usize::MAX),
            None => names.len().max(1),
        };
        if !(1..=Self::MOST).contains(&count) {
            return Err(ForkError::Count(count));
        }
        if names.len() > count {
            return Err(ForkError::Names { names: names.len(), count });
        }
        let mut children: Vec<Option<Name>> = Vec::with_capacity(count);
        for name in names {
            let name: Name = name.parse()?;
            if children.iter().flatten().any(|other| *other == name) {
                return Err(ForkError::Twice(name));
            }
            children.push(Some(name));
        }
        children.resize(count, None);
        Ok(children)
    }
}

/// What came of one fork: a sandbox with its receipt, or an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ForkResult {
    /// The new sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
    /// What it kept and what it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

impl From<Result<(SandboxView, Receipt), ErrorDetail>> for ForkResult {
    fn from(outcome: Result<(SandboxView, Receipt), ErrorDetail>) -> Self {
        match outcome {
            Ok((sandbox, receipt)) => Self { sandbox: Some(sandbox), receipt: Some(receipt), error: None },
            Err(error) => Self { sandbox: None, receipt: None, error: Some(error) },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn children(request: serde_json::Value) -> Result<Vec<Option<Name>>, ForkError> {
        serde_json::from_value::<Fork>(request).unwrap().children()
    }

    fn name(text: &str) -> Option<Name> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn names_and_count_fill_each_other_in() {
        assert_eq!(children(json!({})), Ok(vec![None]));
        assert_eq!(children(json!({"names": []})), Ok(vec![None]));
        assert_eq!(children(json!({"names": ["a", "b"]})), Ok(vec![name("a"), name("b")]));
        assert_eq!(children(json!({"count": 3, "names": ["a"]})), Ok(vec![name("a"), None, None]));
        assert_eq!(children(json!({"count": 20})).unwrap().len(), 20);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(children(json!({"count": 0})), Err(ForkError::Count(0)));
        assert_eq!(children(json!({"count": 21})), Err(ForkError::Count(21)));
        assert_eq!(children(json!({"names": vec!["a"; 21]})), Err(ForkError::Count(21)));
        assert_eq!(children(json!({"count": 1, "names": ["a", "b"]})), Err(ForkError::Names { names: 2, count: 1 }));
        assert_eq!(children(json!({"names": ["a", "a"]})), Err(ForkError::Twice("a".parse().unwrap())));
        assert!(matches!(children(json!({"names": ["A"]})), Err(ForkError::Name(_))));
        assert_eq!(ForkError::Count(0).to_string(), "0 forks: one request makes between 1 and 20");
        assert!(serde_json::from_value::<Fork>(json!({"number": 2})).is_err());
    }

    #[test]
    fn a_failed_child_is_only_an_error() {
        let error = ErrorDetail { code: crate::ErrorCode::HostFull, message: "full".to_owned(), hint: None };
        let written = serde_json::to_value(ForkResult::from(Err(error))).unwrap();
        assert_eq!(written, json!({"error": {"code": "host_full", "message": "full"}}));
    }
}
