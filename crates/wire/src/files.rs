//! Files, as the sandbox sees paths.
//!
//! A relative path is taken from the sandbox's working folder, or from the home of `user` where a call names one; `~`
//! and `~/…` are that user's home. Names that are not UTF-8 are shown with replacement characters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Regular file.
    File,
    /// Folder.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Device, pipe or socket.
    Other,
}

/// What is known about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// Absolute path.
    pub path: String,
    /// Kind of the entry itself; links are not followed.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits, 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Name of the owner, where it has one.
    #[serde(default)]
    pub user: Option<String>,
    /// Name of the group, where it has one.
    #[serde(default)]
    pub group: Option<String>,
    /// Last change of the content, in milliseconds since the epoch.
    #[serde(default)]
    pub modified_ms: i64,
    /// Where a symbolic link points.
    #[serde(default)]
    pub target: Option<String>,
    /// What is at the end of a symbolic link, if anything is.
    #[serde(default)]
    pub leads_to: Option<LinkEnd>,
    /// Type and permission bits as the kernel gives them; 0 from a guest that does not tell.
    #[serde(default)]
    pub st_mode: u32,
    /// Extended attributes of the namespace `user`, without its name. Those that are not text are left out, and all of
    /// them if they are too large to be sent.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

/// What is at the end of a symbolic link, after every link on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// Absolute path without a link in it.
    pub path: String,
    /// Type and permission bits as the kernel gives them.
    pub st_mode: u32,
}

/// A path and whose relative paths are meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathOf {
    /// The path.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
}

/// Lists a folder; `Entries` frames and an `End` follow the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListDir {
    /// The folder.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// How many levels; 1 is the folder itself, 0 counts as 1.
    #[serde(default)]
    pub depth: u32,
}

/// Some entries of a listing, sorted by name within each folder, a folder before what is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entries {
    /// The entries.
    pub entries: Vec<FileStat>,
}

/// Reads a file; `FileData` frames and an `End` follow the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadFile {
    /// The file.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// First byte wanted.
    #[serde(default)]
    pub offset: u64,
    /// At most this many bytes.
    #[serde(default)]
    pub len: Option<u64>,
}

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteHow {
    /// The new content takes its place at once, when all of it has arrived.
    #[default]
    Replace,
    /// Its content is emptied and written anew in place.
    Truncate,
    /// The data goes to its end.
    Append,
    /// The data goes to this offset; the rest stays.
    At(u64),
}

/// Writes a file; `FileData` frames and an `End` follow, then comes the reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// The file.
    pub path: String,
    /// Whose home relative paths and `~` mean, and who owns what is created.
    #[serde(default)]
    pub user: Option<String>,
    /// Permission bits; 0644 for a new file, unchanged for one that is there.
    #[serde(default)]
    pub mode: Option<u32>,
    /// What happens to a file that is there already.
    #[serde(default)]
    pub how: WriteHow,
    /// Create missing folders on the way.
    #[serde(default)]
    pub create_parents: bool,
    /// Give a file that is there already to `user` too.
    #[serde(default)]
    pub take_over: bool,
    /// What its attributes are to be.
    #[serde(default)]
    pub attributes: Option<SetAttributes>,
}

/// Extended attributes of the namespace `user` that a file is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAttributes {
    /// What the names of all of them start with; others are left alone.
    pub prefix: String,
    /// By name, without the prefix. An attribute with the prefix that is not here is removed.
    pub values: BTreeMap<String, String>,
}

/// Joins files to one, in order, and removes them; the result takes the place of what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinFiles {
    /// The files.
    pub sources: Vec<String>,
    /// Where the result goes; missing folders on the way are created.
    pub to: String,
    /// Whose home relative paths and `~` mean, and who owns what is created.
    #[serde(default)]
    pub user: Option<String>,
}

/// Creates a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDir {
    /// The folder.
    pub path: String,
    /// Whose home relative paths and `~` mean, and who owns what is created.
    #[serde(default)]
    pub user: Option<String>,
    /// Permission bits, 0755 when absent.
    #[serde(default)]
    pub mode: Option<u32>,
    /// Create missing folders on the way, and do not mind if it is there.
    #[serde(default)]
    pub parents: bool,
    /// Do mind if it is there, although missing folders on the way are created.
    #[serde(default)]
    pub must_be_new: bool,
}

/// Moves or renames, also from one filesystem to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovePath {
    /// What to move.
    pub from: String,
    /// Its new path.
    pub to: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// Replace a file that is there already.
    #[serde(default)]
    pub overwrite: bool,
    /// Create missing folders on the way to the new path; they belong to `user`.
    #[serde(default)]
    pub create_parents: bool,
}

/// Removes a file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePath {
    /// What to remove; a link itself, not what it points to.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// Remove a folder with everything in it.
    #[serde(default)]
    pub recursive: bool,
}

/// Changes permission bits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chmod {
    /// The file.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// The new bits.
    pub mode: u32,
}

/// Changes owner and group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chown {
    /// The file; a link itself, not what it points to.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// New owner, by name or number.
    #[serde(default)]
    pub owner: Option<String>,
    /// New group, by name or number.
    #[serde(default)]
    pub group: Option<String>,
    /// Everything below too.
    #[serde(default)]
    pub recursive: bool,
}

/// Creates a symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symlink {
    /// Where the link is to be.
    pub path: String,
    /// What it says.
    pub target: String,
    /// Whose home relative paths and `~` mean, and who owns the link.
    #[serde(default)]
    pub user: Option<String>,
}

/// Reads a file or folder as a tar stream; `FileData` frames and an `End` follow the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveOut {
    /// A folder, whose content is packed with paths relative to it, or one file, packed under its own name.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
}

/// Unpacks a tar stream into a folder; `FileData` frames and an `End` follow, then comes the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveIn {
    /// The folder, created when missing.
    pub path: String,
    /// Whose home relative paths and `~` mean, and who owns what is created.
    #[serde(default)]
    pub user: Option<String>,
    /// Keep the owners that the archive names instead.
    #[serde(default)]
    pub keep_owners: bool,
}

/// Ends a stream of data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEnd {
    /// How many bytes or entries there were.
    #[serde(default)]
    pub count: u64,
    /// The sender gives up: nothing of this may take effect.
    #[serde(default)]
    pub abort: bool,
}

/// Watches a file or folder; `WatchEvent` frames follow the reply until the host hangs up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The file or folder.
    pub path: String,
    /// Whose home relative paths and `~` mean.
    #[serde(default)]
    pub user: Option<String>,
    /// Folders below too, also those that come later.
    #[serde(default)]
    pub recursive: bool,
    /// Say with each event what is there now.
    #[serde(default)]
    pub with_stat: bool,
    /// Nothing but a folder.
    #[serde(default)]
    pub only_folder: bool,
    /// Nothing on a filesystem of the network, which does not tell of every change.
    #[serde(default)]
    pub only_local: bool,
}

/// A watch that goes on by itself and keeps what happens until it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepWatch {
    /// Its name, which must be new.
    pub id: String,
    /// What to watch.
    pub watch: Watch,
}

/// Names a watch that goes on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchId {
    /// Its name.
    pub id: String,
}

/// What happened to a watched path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It came into being.
    Created,
    /// Its content changed.
    Modified,
    /// It went away.
    Removed,
    /// It came here from `moved_from`.
    Moved,
    /// Its owner, permissions or times changed.
    Attrib,
    /// Events were lost; look for yourself.
    Overflow,
}

/// One change of a watched path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// What happened.
    pub kind: EventKind,
    /// Absolute path; empty for an overflow.
    pub path: String,
    /// Whether it is a folder.
    #[serde(default)]
    pub is_dir: bool,
    /// Where it was before.
    #[serde(default)]
    pub moved_from: Option<String>,
    /// Whether what is gone from here was moved to where nobody watches.
    #[serde(default)]
    pub moved_away: bool,
    /// What is there now, if that was asked for and something is.
    #[serde(default)]
    pub stat: Option<Box<FileStat>>,
}
