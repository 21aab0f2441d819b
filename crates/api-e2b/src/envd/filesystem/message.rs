//! Messages of `filesystem.Filesystem`.

use roost_host::Entry;
use serde::{Deserialize, Serialize};

use super::entry::EntryInfo;
use crate::envd::connect::Event;
use crate::envd::connect::json::{Uint32, or_default};

/// An answer that says only that it is done.
#[derive(Debug, Serialize)]
pub(super) struct Empty {}

#[derive(Debug, Deserialize)]
pub(super) struct AtPath {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Move {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) source: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) destination: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListDir {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) depth: Uint32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Watch {
    #[serde(default, deserialize_with = "or_default")]
    pub(super) path: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(super) recursive: bool,
    #[serde(default, deserialize_with = "or_default", alias = "include_entry")]
    pub(super) include_entry: bool,
    #[serde(default, deserialize_with = "or_default", alias = "allow_network_mounts")]
    pub(super) allow_network_mounts: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WatcherId {
    #[serde(default, deserialize_with = "or_default", alias = "watcher_id")]
    pub(super) watcher_id: String,
}

#[derive(Debug, Serialize)]
pub(super) struct EntryAnswer {
    entry: EntryInfo,
}

impl From<Entry> for EntryAnswer {
    fn from(entry: Entry) -> Self {
        Self { entry: entry.into() }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct ListAnswer {
    pub(super) entries: Vec<EntryInfo>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Created {
    pub(super) watcher_id: String,
}

#[derive(Debug, Serialize)]
pub(super) struct WatcherEvents {
    pub(super) events: Vec<FilesystemEvent>,
}

/// Something happened to a file.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct FilesystemEvent {
    /// Relative to the watched folder.
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: EventType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) entry: Option<EntryInfo>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum EventType {
    #[serde(rename = "EVENT_TYPE_CREATE")]
    Create,
    #[serde(rename = "EVENT_TYPE_WRITE")]
    Write,
    #[serde(rename = "EVENT_TYPE_REMOVE")]
    Remove,
    #[serde(rename = "EVENT_TYPE_RENAME")]
    Rename,
    #[serde(rename = "EVENT_TYPE_CHMOD")]
    Chmod,
}

/// A message of a watch.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum WatchDirEvent {
    Start {},
    Filesystem(Box<FilesystemEvent>),
    Keepalive {},
}

impl Event for WatchDirEvent {
    fn keepalive() -> Self {
        Self::Keepalive {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_read_in_either_spelling() {
        for text in [
            r#"{"path":"a","recursive":true,"includeEntry":true,"unknown":1}"#,
            r#"{"path":"a","recursive":true,"include_entry":true,"allow_network_mounts":null}"#,
        ] {
            let read: Watch = serde_json::from_str(text).unwrap();
            assert!(read.recursive && read.include_entry && !read.allow_network_mounts);
        }
        let depth = |text| serde_json::from_str::<ListDir>(text).unwrap().depth.0;
        assert_eq!((depth(r#"{"depth":3}"#), depth(r#"{"depth":"3"}"#), depth("{}")), (3, 3, 0));
    }

    #[test]
    fn events_are_told_in_the_json_of_proto3() {
        let event = FilesystemEvent { name: "a/b".to_owned(), kind: EventType::Chmod, entry: None };
        let told = |event| serde_json::to_value::<WatchDirEvent>(event).unwrap();
        let expected = json!({"filesystem": {"name": "a/b", "type": "EVENT_TYPE_CHMOD"}});
        assert_eq!(told(WatchDirEvent::Filesystem(Box::new(event))), expected);
        assert_eq!(told(WatchDirEvent::Start {}), json!({"start": {}}));
        assert_eq!(told(WatchDirEvent::keepalive()), json!({"keepalive": {}}));
    }
}
