//! Files inside a sandbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ErrorDetail;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Symlink,
    /// A device, socket or pipe.
    Other,
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileStat {
    /// The last part of the path.
    pub name: String,
    /// The whole path.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits, for example `0644`.
    pub mode: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    /// Where a symbolic link leads.
    pub target: Option<String>,
}

/// The entries of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileList {
    /// The folder.
    pub path: String,
    /// Its entries, by name; not all of them if there is an `error`.
    pub entries: Vec<FileStat>,
    /// Why a long listing broke off after its first entries had been sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// A folder to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MakeFolder {
    /// Where.
    pub path: String,
    /// Make missing parents, and do not mind if it exists.
    #[serde(default)]
    pub parents: bool,
    /// Permission bits, octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// A path to move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    /// From.
    pub from: String,
    /// To.
    pub to: String,
}

/// What to change of a path, or a link to make at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PatchFile {
    /// Permission bits, octal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// New owner, `user` or `user:group`, names or numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Make the path a symbolic link to this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symlink_to: Option<String>,
}

/// Something changed below a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// `created`, `modified`, `removed`, `moved`, `attributes` or `overflow`.
    pub kind: String,
    /// Which path.
    pub path: String,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Where it was before, for a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<String>,
}
