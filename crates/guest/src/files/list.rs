//! Listing folders.

use std::fs;
use std::path::{Path, PathBuf};

use roost_wire::frame::Kind;
use roost_wire::{Entries, ErrorCode, Failure, FileKind, FileStat, ListDir, Reply, StreamEnd};

use super::Caller;
use super::stat::{describe, stat};
use crate::conn::{Conn, ConnError};
use crate::failure::failed_on;
use crate::guest::Guest;
use crate::users::Users;

/// Most entries of a frame.
const BATCH: usize = 256;
/// Most bytes of names and attributes in a frame, which in JSON can become six times as many.
const BATCH_BYTES: usize = 100 * 1024;

/// Lists a folder and, if asked for, those below it.
pub(crate) fn list(guest: &Guest, conn: &mut Conn, request: &ListDir) -> Result<(), ConnError> {
    let opened = Caller::new(guest, request.user.as_deref()).and_then(|caller| {
        let path = caller.place.resolve(&request.path)?;
        let mut folder = stat(&caller.users, &path)?;
        if folder.kind == FileKind::Symlink {
            let metadata = fs::metadata(&path).map_err(|error| failed_on("look at", &path, &error))?;
            folder = describe(&caller.users, &path, &metadata);
        }
        if folder.kind != FileKind::Directory {
            return Err(Failure::new(ErrorCode::NotADirectory, format!("`{}` is not a folder", path.display())));
        }
        let names = sorted_names(&path).map_err(|error| failed_on("list", &path, &error))?;
        Ok((caller.users, path, folder, names))
    });
    let (users, path, folder, names) = match opened {
        Ok(opened) => opened,
        Err(failure) => return conn.answer(Err(failure)),
    };
    conn.queue(Kind::Reply, &Reply::Stat(folder))?;
    let mut batch = Batch::default();
    walk(&users, &path, names, request.depth.max(1), &mut |entry| batch.add(conn, entry))?;
    batch.send(conn)?;
    conn.send(Kind::End, &StreamEnd { count: batch.count, abort: false })
}

/// Visits entries, a folder before what is in it. What vanishes meanwhile or may not be read is passed over.
fn walk(
    users: &Users,
    folder: &Path,
    names: Vec<PathBuf>,
    depth: u32,
    visit: &mut dyn FnMut(FileStat) -> Result<(), ConnError>,
) -> Result<(), ConnError> {
    // A stack on the heap: depth is the sandbox's choice, a thread's stack is not.
    let mut folders = vec![(folder.to_owned(), names.into_iter(), depth)];
    while let Some((folder, names, depth)) = folders.last_mut() {
        let Some(name) = names.next() else {
            folders.pop();
            continue;
        };
        let (path, below) = (folder.join(name), depth.saturating_sub(1));
        let Ok(entry) = stat(users, &path) else { continue };
        let descend = below > 0 && entry.kind == FileKind::Directory;
        visit(entry)?;
        if descend && let Ok(names) = sorted_names(&path) {
            folders.push((path, names.into_iter(), below));
        }
    }
    Ok(())
}

/// Names in a folder, in order.
pub(super) fn sorted_names(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| PathBuf::from(entry.file_name())));
    let mut names = entries.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    Ok(names)
}

/// Entries on their way out.
#[derive(Debug, Default)]
struct Batch {
    entries: Entries,
    bytes: usize,
    count: u64,
}

impl Batch {
    fn add(&mut self, conn: &mut Conn, entry: FileStat) -> Result<(), ConnError> {
        let link =
            entry.leads_to.as_ref().map_or(0, |end| end.path.len()) + entry.target.as_ref().map_or(0, String::len);
        let attributes = entry.attributes.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.bytes += entry.path.len() + link + attributes;
        self.count += 1;
        self.entries.entries.push(entry);
        if self.entries.entries.len() >= BATCH || self.bytes >= BATCH_BYTES { self.send(conn) } else { Ok(()) }
    }

    fn send(&mut self, conn: &mut Conn) -> Result<(), ConnError> {
        if self.entries.entries.is_empty() {
            return Ok(());
        }
        conn.send(Kind::Entries, &self.entries)?;
        self.entries.entries.clear();
        self.bytes = 0;
        Ok(())
    }
}
