//! What is told of a file.

use std::collections::BTreeMap;

use roost_host::Entry;
use serde::{Serialize, Serializer};

use crate::envd::files::metadata_of;

const TYPE: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
/// The least that a folder takes on the disks of E2B.
const FOLDER_SIZE: u64 = 4096;

/// What a file is, as `filesystem.EntryInfo`.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryInfo {
    name: String,
    /// That of what a link leads to.
    #[serde(rename = "type")]
    kind: &'static str,
    path: String,
    /// JSON of proto3 has 64 bits as text.
    #[serde(serialize_with = "as_text")]
    size: u64,
    /// Permission bits of what a link leads to.
    mode: u32,
    permissions: String,
    owner: String,
    group: String,
    modified_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symlink_target: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_symlink: bool,
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

impl From<Entry> for EntryInfo {
    fn from(entry: Entry) -> Self {
        let is_symlink = entry.st_mode & TYPE == LINK;
        let end = entry.leads_to.as_ref();
        let st_mode = end.map_or(entry.st_mode, |end| end.st_mode);
        Self {
            kind: match st_mode & TYPE {
                FILE => "FILE_TYPE_FILE",
                FOLDER => "FILE_TYPE_DIRECTORY",
                // A link that leads nowhere too.
                _ => "FILE_TYPE_UNSPECIFIED",
            },
            mode: if is_symlink && end.is_none() { 0 } else { st_mode & 0o777 },
            permissions: permissions(entry.st_mode),
            symlink_target: end.map(|end| end.path.clone()).or(entry.stat.target),
            metadata: metadata_of(&entry.attributes),
            is_symlink,
            name: entry.stat.name,
            path: entry.stat.path,
            size: match entry.st_mode & TYPE {
                // Clients know folders from disks on which an empty one is not nothing.
                FOLDER => entry.stat.size.max(FOLDER_SIZE),
                _ => entry.stat.size,
            },
            owner: entry.owner,
            group: entry.group,
            modified_time: entry.stat.modified_at.to_string(),
        }
    }
}

/// Type and permission bits as Go writes them: a letter for each thing that is special, or a dash, then nine letters.
fn permissions(st_mode: u32) -> String {
    let kind = match st_mode & TYPE {
        FOLDER => "d",
        LINK => "L",
        0o060_000 | 0o020_000 => "D",
        0o010_000 => "p",
        0o140_000 => "S",
        _ => "",
    };
    let letters = [(0o4000, "u"), (0o2000, "g")].map(|(bit, letter)| if st_mode & bit == 0 { "" } else { letter });
    let device = if st_mode & TYPE == 0o020_000 { "c" } else { "" };
    let sticky = if st_mode & 0o1000 == 0 { "" } else { "t" };
    let mut text = [kind, letters[0], letters[1], device, sticky].concat();
    if text.is_empty() {
        text.push('-');
    }
    let bits = (0..9).rev().zip("rwxrwxrwx".chars());
    text.extend(bits.map(|(bit, letter)| if st_mode & (1 << bit) == 0 { '-' } else { letter }));
    text
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use roost_host::LinkEnd;
    use roost_model::{FileKind, FileStat};
    use serde_json::json;

    use super::*;

    fn entry(st_mode: u32) -> Entry {
        let stat = FileStat {
            name: "f".to_owned(),
            path: "/home/user/f".to_owned(),
            kind: FileKind::File,
            size: 5_000_000_000,
            mode: "0644".to_owned(),
            uid: 1000,
            gid: 7,
            modified_at: Timestamp::from_millisecond(1_500).unwrap(),
            target: None,
        };
        let (owner, group) = ("user".to_owned(), "7".to_owned());
        Entry { stat, owner, group, st_mode, leads_to: None, attributes: BTreeMap::new() }
    }

    #[test]
    fn permissions_are_written_as_go_does() {
        for (st_mode, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "Lrwxrwxrwx"),
            (0o041_777, "dtrwxrwxrwx"),
            (0o104_755, "urwxr-xr-x"),
            (0o102_755, "grwxr-xr-x"),
            (0o106_711, "ugrwx--x--x"),
            (0o020_666, "Dcrw-rw-rw-"),
            (0o060_660, "Drw-rw----"),
            (0o010_600, "prw-------"),
            (0o140_700, "Srwx------"),
        ] {
            assert_eq!(permissions(st_mode), text, "{st_mode:o}");
        }
    }

    #[test]
    fn a_file_is_told_in_the_json_of_proto3() {
        let mut file = entry(0o104_644);
        file.attributes = [("e2b.k", "v"), ("other", "x")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let expected = json!({
            "name": "f", "type": "FILE_TYPE_FILE", "path": "/home/user/f", "size": "5000000000", "mode": 0o644,
            "permissions": "urw-r--r--", "owner": "user", "group": "7", "modifiedTime": "1970-01-01T00:00:01.5Z",
            "metadata": {"k": "v"},
        });
        assert_eq!(serde_json::to_value(EntryInfo::from(file)).unwrap(), expected);
    }

    #[test]
    fn no_folder_is_nothing() {
        let folder = |size| {
            let mut folder = entry(0o040_755);
            folder.stat.size = size;
            EntryInfo::from(folder).size
        };
        assert_eq!((folder(0), folder(10_000)), (4096, 10_000));
    }

    #[test]
    fn a_link_has_the_type_of_its_end() {
        let link = |leads_to| {
            let mut link = Entry { leads_to, ..entry(0o120_777) };
            link.stat.target = Some("../there".to_owned());
            EntryInfo::from(link)
        };
        let good = link(Some(LinkEnd { path: "/there".to_owned(), st_mode: 0o040_750 }));
        assert_eq!((good.kind, good.mode, good.is_symlink), ("FILE_TYPE_DIRECTORY", 0o750, true));
        assert_eq!((good.permissions.as_str(), good.symlink_target.as_deref()), ("Lrwxrwxrwx", Some("/there")));
        let broken = link(None);
        assert_eq!((broken.kind, broken.mode, broken.is_symlink), ("FILE_TYPE_UNSPECIFIED", 0, true));
        assert_eq!(broken.symlink_target.as_deref(), Some("../there"));
    }
}
