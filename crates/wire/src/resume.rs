//! What a guest is told when its sandbox goes on after a pause.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{DefaultPlace, Key, ServiceSet};

/// Why a sandbox goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It slept, in memory or on disk.
    Wake,
    /// It went back to a checkpoint.
    Restore,
    /// It is a new sandbox that continues from a moment of another.
    Fork,
}

impl Why {
    /// The word, as hooks see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Wake => "wake",
            Why::Restore => "restore",
            Why::Fork => "fork",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The sandbox is awake again: who it is now, and how long it was away.
///
/// A guest whose memory came from an image still has the key of the moment it was saved; this is sent with that key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resumed {
    /// Why.
    pub why: Why,
    /// Its memory came from an image: connections it remembers lead nowhere and are dropped, all but this one.
    #[serde(default)]
    pub from_image: bool,
    /// Id of the sandbox.
    pub id: String,
    /// Name of the sandbox.
    pub name: String,
    /// Host name inside.
    pub hostname: String,
    /// Generation of the sandbox.
    pub generation: u64,
    /// Key that new connections must bring; the old one when absent.
    #[serde(default)]
    pub key: Option<Key>,
    /// Environment of every process that starts from now on; as it was when absent.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// How long nothing ran, for hooks to know. Time limits of processes stand still by themselves meanwhile.
    #[serde(default)]
    pub asleep_ms: u64,
    /// Who and where they are unless they say otherwise; as before when absent.
    #[serde(default)]
    pub place: Option<DefaultPlace>,
    /// Its services; one that slept knows them already, unless they were changed meanwhile.
    #[serde(default)]
    pub services: ServiceSet,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    /// Text that a first-version peer sends; must be understood for ever.
    #[test]
    fn text_of_version_one_is_understood() {
        let text = r#"{"resumed":{"why":"fork","id":"sbx_2","name":"b","hostname":"b","generation":2}}"#;
        let Ok(Request::Resumed(resumed)) = serde_json::from_str(text) else { panic!("{text}") };
        assert_eq!((resumed.why, resumed.generation, resumed.from_image), (Why::Fork, 2, false));
        assert!(resumed.key.is_none() && resumed.asleep_ms == 0 && resumed.env.is_none() && resumed.place.is_none());
        assert!(matches!(serde_json::from_str(r#""quiesce""#).unwrap(), Request::Quiesce));
        assert_eq!(serde_json::to_string(&Why::Restore).unwrap(), format!("\"{}\"", Why::Restore));
    }
}
