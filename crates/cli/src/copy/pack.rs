//! A folder here as a tar stream.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use indicatif::ProgressBar;
use roost_client::Upload;
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::copy::channel::{self, ChannelWriter, PIECES};

/// Whose the entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Numbers as they are here.
    Kept,
    /// Nobody's in particular; the other side decides.
    Dropped,
}

/// A folder on its way into a stream.
#[derive(Debug)]
pub(crate) struct Packing {
    upload: Upload,
    outcome: PackOutcome,
}

/// How the packing of a folder ended.
#[derive(Debug)]
pub(crate) struct PackOutcome {
    task: JoinHandle<anyhow::Result<()>>,
}

impl Packing {
    pub(crate) fn start(folder: PathBuf, owners: Owners, bar: ProgressBar) -> anyhow::Result<Self> {
        let (pieces, incoming) = mpsc::channel(PIECES);
        let task = tokio::task::spawn_blocking(move || {
            let mut builder = Builder::new(ChannelWriter::new(pieces, bar));
            let packed = add_folder(&mut builder, &folder, owners).and_then(|()| Ok(builder.finish()?));
            let mut writer = builder.into_inner()?;
            if packed.is_err() {
                writer.fail(io::Error::other("the folder could not be read to its end"));
                return packed;
            }
            Ok(io::Write::flush(&mut writer)?)
        });
        Ok(Self { upload: Upload::stream(channel::stream(incoming), None), outcome: PackOutcome { task } })
    }

    pub(crate) fn into_parts(self) -> (Upload, PackOutcome) {
        (self.upload, self.outcome)
    }
}

impl PackOutcome {
    /// Fails if a file could not be read; that the other side stopped listening is the other side's to tell.
    pub(crate) async fn check(self) -> anyhow::Result<()> {
        match self.task.await.context("failed to pack the folder")? {
            Err(error) if is_hang_up(&error) => Ok(()),
            packed => packed,
        }
    }
}

fn is_hang_up(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(broken)
}

/// How many bytes the files below a folder have, for a progress bar.
pub(crate) fn size_of(folder: &Path) -> u64 {
    let mut size = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) if found.is_file() => size += found.len(),
                _ => {}
            }
        }
    }
    size
}

fn add_folder(builder: &mut Builder<ChannelWriter>, top: &Path, owners: Owners) -> anyhow::Result<()> {
    // A stack on the heap: the depth of a tree is not ours to choose.
    let mut pending = vec![(top.to_owned(), PathBuf::new())];
    while let Some((path, name)) = pending.pop() {
        let is_top = name.as_os_str().is_empty();
        let found = if is_top { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let found = found.with_context(|| format!("failed to read `{}`", path.display()))?;
        if found.is_dir() {
            let shown = if is_top { Path::new("./") } else { &name };
            builder.append_data(&mut header(&found, owners), shown, io::empty())?;
            let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut entries = entries.with_context(|| format!("failed to read `{}`", path.display()))?;
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
            pending.extend(entries.into_iter().map(|entry| (entry.path(), name.join(entry.file_name()))));
        } else if found.is_symlink() {
            let target = fs::read_link(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
            builder.append_link(&mut header(&found, owners), &name, target)?;
        } else if found.is_file() {
            add_file(builder, &path, &name, owners)?;
        } else {
            eprintln!("roost: left out `{}`: neither file, folder nor link", path.display());
        }
    }
    Ok(())
}

fn add_file(builder: &mut Builder<ChannelWriter>, path: &Path, name: &Path, owners: Owners) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("failed to open `{}`", path.display()))?;
    // Of the open file: what the name leads to may have changed since.
    let found = file.metadata().with_context(|| format!("failed to read `{}`", path.display()))?;
    let exact = Exact { file, left: found.len() };
    builder
        .append_data(&mut header(&found, owners), name, exact)
        .with_context(|| format!("failed to pack `{}`", path.display()))
}

fn header(found: &Metadata, owners: Owners) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(found.mode() & 0o7777);
    header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
    header.set_size(if found.is_file() { found.len() } else { 0 });
    header.set_entry_type(if found.is_dir() {
        EntryType::Directory
    } else if found.is_symlink() {
        EntryType::Symlink
    } else {
        EntryType::Regular
    });
    let (uid, gid) = match owners {
        Owners::Kept => (found.uid(), found.gid()),
        Owners::Dropped => (0, 0),
    };
    header.set_uid(u64::from(uid));
    header.set_gid(u64::from(gid));
    header
}

/// As many bytes of a file as its header promises, even if the file grows; an error if it shrinks.
struct Exact {
    file: File,
    left: u64,
}

impl Read for Exact {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(target.len());
        let count = self.file.read(&mut target[..most])?;
        if count == 0 && most > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::copy::channel::ChannelReader;
    use crate::copy::unpack::unpack;

    #[test]
    fn what_is_packed_is_unpacked() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = "long-name-".repeat(15);
        fs::create_dir_all(from.path().join(&deep).join("empty")).unwrap();
        let content: Vec<u8> = (0..700_000_u32).map(|n| (n % 251) as u8).collect();
        let file = Path::new(&deep).join("file");
        fs::write(from.path().join(&file), &content).unwrap();
        fs::set_permissions(from.path().join(&file), fs::Permissions::from_mode(0o750)).unwrap();
        symlink(&file, from.path().join("link")).unwrap();

        let (pieces, incoming) = mpsc::channel(PIECES);
        let folder = from.path().to_owned();
        let packing = std::thread::spawn(move || {
            let mut builder = Builder::new(ChannelWriter::new(pieces, ProgressBar::hidden()));
            add_folder(&mut builder, &folder, Owners::Dropped).unwrap();
            io::Write::flush(&mut builder.into_inner().unwrap()).unwrap();
        });
        let done = unpack(ChannelReader::new(incoming), to.path()).unwrap();
        packing.join().unwrap();
        assert_eq!(done.entries, 4);
        assert_eq!(fs::read(to.path().join("link")).unwrap(), content);
        assert_eq!(fs::metadata(to.path().join(&file)).unwrap().mode() & 0o7777, 0o750);
        assert!(to.path().join(&deep).join("empty").is_dir());
        assert_eq!(size_of(from.path()), 700_000);
    }

    #[test]
    fn a_file_gives_exactly_what_its_header_promised() {
        let mut grown = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut grown, b"0123456789").unwrap();
        io::Seek::rewind(&mut grown).unwrap();
        let mut taken = String::new();
        Exact { file: grown.try_clone().unwrap(), left: 4 }.read_to_string(&mut taken).unwrap();
        assert_eq!(taken, "0123");
        io::Seek::rewind(&mut grown).unwrap();
        let short = Exact { file: grown, left: 11 }.read_to_string(&mut taken).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
