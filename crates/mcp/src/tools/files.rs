//! Files: read in pieces, written whole, edited by exact replacement, listed.

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use roost_host::{Handle, ReadRange, WriteOptions, to_the_end};
use roost_model::{ErrorCode, FileKind, FileStat};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::text::whole_characters;

const PIECE: u64 = 16_000;
const LARGEST_PIECE: u64 = 200_000;
/// Files that are edited are held in memory.
const LARGEST_EDIT: u64 = 4 << 20;
const ENTRIES: usize = 200;
const DEEPEST: u32 = 10;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "file_read",
            "Read a file",
            Effect::Reads,
            "Read a text file, or a part of it by byte offset. The result says how large it is and where to read on.",
            read,
        ),
        tool(
            "file_write",
            "Write a file",
            Effect::Destroys,
            "Write a text file with this content, in the place of what is there, or add to its end. Missing folders are made.",
            write,
        ),
        tool(
            "file_edit",
            "Edit a file",
            Effect::Destroys,
            "Replace an exact text in a file. It must occur exactly `count` times (once if absent), otherwise nothing is changed: \
             give more of the lines around it.",
            edit,
        ),
        tool(
            "file_list",
            "List a folder",
            Effect::Reads,
            "List what is in a folder, and in those below it with depth.",
            list,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Read {
    /// The sandbox's name or id
    sandbox: String,
    /// Absolute path
    path: String,
    /// Offset of the first byte wanted; 0 if absent
    offset: Option<u64>,
    /// How many bytes at most; 16000 if absent
    limit: Option<u64>,
}

async fn read(call: Call, wanted: Read) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let limit = wanted.limit.unwrap_or(PIECE).clamp(1, LARGEST_PIECE);
    let offset = wanted.offset.unwrap_or(0);
    let (stat, mut bytes) = content(&handle, &wanted.path, ReadRange { offset, length: Some(limit) }).await?;
    if bytes.contains(&0) {
        let message = format!("`{}` is no text: it has {} bytes", wanted.path, stat.size);
        return Err(Failure::bad_request(message).with_hint("look at it with run: `file`, `xxd`, `strings`"));
    }
    if offset + (bytes.len() as u64) < stat.size {
        bytes.truncate(whole_characters(&bytes));
    }
    let next = offset + bytes.len() as u64;
    let rest = if next < stat.size { format!("; the rest: offset={next}") } else { String::new() };
    let text = format!("bytes {offset} to {next} of {}{rest}\n\n{}", stat.size, String::from_utf8_lossy(&bytes));
    let facts = json!({"path": stat.path, "size": stat.size, "offset": offset, "next_offset": next, "truncated": next < stat.size});
    Ok(Answer::new(text, facts))
}

async fn content(handle: &Handle, path: &str, range: ReadRange) -> Result<(FileStat, Vec<u8>), Failure> {
    let download = handle.read_file(path, range).await?;
    let pieces: Vec<Bytes> = download.content.try_collect().await?;
    Ok((download.stat, pieces.concat()))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Write {
    /// The sandbox's name or id
    sandbox: String,
    /// Absolute path
    path: String,
    /// The text
    content: String,
    /// Add to its end instead of replacing it
    #[serde(default)]
    append: bool,
    /// Permission bits, octal, such as `0755`
    mode: Option<String>,
}

async fn write(call: Call, wanted: Write) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let options = WriteOptions { mode: wanted.mode, append: wanted.append, parents: true, ..WriteOptions::default() };
    let stat = store(handle, wanted.path, options, wanted.content).await?;
    Ok(Answer::new(format!("wrote {}: {} bytes", stat.path, stat.size), json!({"path": stat.path, "size": stat.size})))
}

async fn store(handle: Handle, path: String, options: WriteOptions, content: String) -> Result<FileStat, Failure> {
    let stored = to_the_end(async move {
        let data = stream::iter([Ok::<_, std::io::Error>(Bytes::from(content))]);
        handle.write_file(&path, &options, data).await
    });
    Ok(stored.await?)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The sandbox's name or id
    sandbox: String,
    /// Absolute path
    path: String,
    /// The exact text to replace, white space and all
    old: String,
    /// What to put in its place
    new: String,
    /// How often it must occur; all occurrences are replaced. 1 if absent
    count: Option<usize>,
}

async fn edit(call: Call, wanted: Edit) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let whole = ReadRange { offset: 0, length: Some(LARGEST_EDIT + 1) };
    let (stat, bytes) = content(&handle, &wanted.path, whole).await?;
    if stat.size > LARGEST_EDIT {
        let message = format!("`{}` has {} bytes, and at most {LARGEST_EDIT} are edited", wanted.path, stat.size);
        return Err(Failure::bad_request(message).with_hint("use sed with run"));
    }
    let text = String::from_utf8(bytes).map_err(|_| Failure::bad_request(format!("`{}` is no text", wanted.path)))?;
    let count = wanted.count.unwrap_or(1);
    let edited = replaced(&text, &wanted.old, &wanted.new, count)?;
    // Its mode and its owner are its own.
    let options = WriteOptions { mode: Some(stat.mode), owner: Some(stat.uid.to_string()), ..WriteOptions::default() };
    let stat = store(handle, wanted.path, options, edited).await?;
    let facts = json!({"path": stat.path, "size": stat.size, "replaced": count});
    Ok(Answer::new(format!("replaced {count} in {}", stat.path), facts))
}

fn replaced(text: &str, old: &str, new: &str, count: usize) -> Result<String, Failure> {
    if old.is_empty() {
        return Err(Failure::bad_request("`old` is empty: give the text to replace"));
    }
    match text.matches(old).count() {
        found if found == count => Ok(text.replace(old, new)),
        0 => Err(Failure::new(ErrorCode::Conflict, "`old` is not in the file")
            .with_hint("file_read shows what is; white space counts")),
        found => Err(Failure::new(ErrorCode::Conflict, format!("`old` is in the file {found} times, not {count}"))
            .with_hint(format!("give more of the lines around it, or count={found}"))),
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The sandbox's name or id
    sandbox: String,
    /// Absolute path of the folder
    path: String,
    /// How many levels of folders; 1, the folder itself, if absent
    depth: Option<u32>,
    /// How many entries at most; 200 if absent
    limit: Option<usize>,
}

async fn list(call: Call, wanted: List) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let limit = wanted.limit.unwrap_or(ENTRIES).clamp(1, 10 * ENTRIES);
    let entries = handle.files_of(None).list(&wanted.path, wanted.depth.unwrap_or(1).clamp(1, DEEPEST)).await?;
    let shown: Vec<&FileStat> = entries.iter().take(limit).map(|entry| &entry.stat).collect();
    let line = |stat: &&FileStat| match stat.kind {
        FileKind::Folder => format!("{}/\n", stat.path),
        FileKind::Symlink => format!("{} -> {}\n", stat.path, stat.target.as_deref().unwrap_or("?")),
        _ => format!("{} ({} bytes)\n", stat.path, stat.size),
    };
    let mut text: String = shown.iter().map(line).collect();
    if entries.len() > shown.len() {
        text.extend([format!(
            "{} more are not shown: list a folder below, or give a limit",
            entries.len() - shown.len()
        )]);
    }
    let facts: Vec<_> =
        shown.iter().map(|stat| json!({"path": stat.path, "kind": stat.kind, "size": stat.size})).collect();
    let truncated = entries.len() > shown.len();
    Ok(Answer::new(
        if text.is_empty() { "it is empty".to_owned() } else { text },
        json!({"entries": facts, "truncated": truncated}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_is_exact_or_nothing() {
        assert_eq!(replaced("a b a", "b", "c", 1).unwrap(), "a c a");
        assert_eq!(replaced("a b a", "a", "x", 2).unwrap(), "x b x");
        for (old, count) in [("a", 1), ("z", 1), ("", 1), ("a", 3)] {
            assert!(replaced("a b a", old, "x", count).is_err(), "{old} {count}");
        }
    }
}
