//! Unpacking an archive into a tree that nothing leads out of.

mod times;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::fs::{AtFlags, FileType, Mode, linkat, mknodat, symlinkat};

use super::archive::{Archive, Kind, Member};
use super::import::{ImportError, Meter};
use super::limits::{check_folder, check_path};
use super::tree::{OWNERS, Place, Tree};
use times::FolderTimes;

/// What may follow the end mark of an archive and is still read, so that a packer's own checksum is seen.
const TRAILER: u64 = 1 << 20;

/// Devices whose names are remembered; no `/dev` has as many.
const MOST_DEVICES: usize = 16 * 1024;

/// What is done about members that stand for the removal of others, as layers of images have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whiteouts {
    /// They are files like others.
    Plain,
    /// They are obeyed, and nothing else is unpacked.
    Only,
    /// They are left out.
    Skipped,
}

/// What the name of a member that stands for a removal starts with.
const WHITEOUT: &[u8] = b".wh.";
/// Stands for the removal of all that is in its folder.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Unpacks a plain or compressed archive.
pub(super) fn unpack(
    mut reader: Box<dyn Read + Send>,
    tree: &Tree,
    meter: &mut Meter<'_>,
    whiteouts: Whiteouts,
) -> Result<(), ImportError> {
    let mut magic = Vec::new();
    let peeked = reader.by_ref().take(6).read_to_end(&mut magic);
    peeked.map_err(|source| ImportError::Archive { source })?;
    let tool = unpacker(&magic);
    let mut whole = io::Cursor::new(magic).chain(reader);
    let Some(Unpacker { tool, package, options }) = tool else {
        return Unpacking::new(tree, meter, whiteouts)?.run(&mut whole);
    };
    let unpacking = Unpacking::new(tree, meter, whiteouts)?;
    let mut child = Command::new(tool)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| ImportError::StartTool { tool, package, source })?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(mut stdout)) = (stdin, stdout) else {
        return Err(stop(child, tool));
    };
    std::thread::scope(|scope| {
        let feeder = scope.spawn(move || io::copy(&mut whole, &mut stdin).map(drop));
        let unpacked = unpacking.run(&mut stdout);
        drop(stdout);
        let packed_badly = stop_or_wait(child, tool, unpacked.is_err());
        let fed = feeder.join().unwrap_or_else(|_| Err(io::Error::other("the archive's reader panicked")));
        match (unpacked, packed_badly, fed) {
            // What the source itself says explains a cut archive better than what came of it.
            (Err(_), _, Err(source)) if source.kind() != io::ErrorKind::BrokenPipe => {
                Err(ImportError::Archive { source })
            }
            (Err(error), None, _) => Err(error),
            (_, Some(output), _) => Err(ImportError::Tool { tool, output }),
            (Ok(()), None, _) => Ok(()),
        }
    })
}

/// A tool that unpacks, and the package that brings it.
struct Unpacker {
    tool: &'static str,
    package: &'static str,
    /// An archive says how much memory it takes to unpack it; `zstd` has a limit by default.
    options: &'static [&'static str],
}

/// The tool that unpacks what starts with these bytes.
fn unpacker(magic: &[u8]) -> Option<Unpacker> {
    let (tool, package, options): (_, _, &[_]) = match magic {
        [0x1f, 0x8b, ..] => ("gzip", "gzip", &["-dc"]),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "zstd", &["-dc"]),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => ("xz", "xz-utils", &["-dc", "--memlimit-decompress=512MiB"]),
        _ => return None,
    };
    Some(Unpacker { tool, package, options })
}

fn stop(mut child: Child, tool: &'static str) -> ImportError {
    let stopped = child.kill().and_then(|()| child.wait());
    let output = stopped.map_or_else(|e| e.to_string(), |_| "no pipes".to_owned());
    ImportError::Tool { tool, output }
}

/// Ends the tool and returns what it complained of, if it did by itself.
fn stop_or_wait(mut child: Child, tool: &'static str, kill: bool) -> Option<String> {
    // A tool that already failed by itself is the cause of the failure and keeps its say.
    if kill && matches!(child.try_wait(), Ok(None)) {
        if let Err(error) = child.kill() {
            tracing::warn!(%error, tool, "failed to stop an unpacker");
        }
        return child.wait().err().map(|e| e.to_string());
    }
    match child.wait_with_output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

struct Unpacking<'a, 'b> {
    tree: &'a Tree,
    meter: &'a mut Meter<'b>,
    whiteouts: Whiteouts,
    /// Devices are not unpacked; other names of theirs in the archive are not an error.
    dropped: HashSet<PathBuf>,
    folder_times: FolderTimes,
}

impl<'a, 'b> Unpacking<'a, 'b> {
    fn new(tree: &'a Tree, meter: &'a mut Meter<'b>, whiteouts: Whiteouts) -> Result<Self, ImportError> {
        let folder_times = FolderTimes::new(tree)?;
        Ok(Self { tree, meter, whiteouts, dropped: HashSet::new(), folder_times })
    }

    fn run(mut self, reader: &mut dyn Read) -> Result<(), ImportError> {
        let mut archive = Archive::new(io::BufReader::with_capacity(256 * 1024, reader));
        let mut members = 0_u64;
        while let Some(member) = archive.next().map_err(|source| ImportError::Archive { source })? {
            members += 1;
            self.meter.file()?;
            check_path(&member.path)?;
            let removes = self.whiteouts != Whiteouts::Plain
                && member.path.file_name().is_some_and(|name| name.as_bytes().starts_with(WHITEOUT));
            match self.whiteouts {
                Whiteouts::Only if removes => self.remove(&member.path).map_err(ImportError::file(&member.path))?,
                Whiteouts::Skipped | Whiteouts::Plain if !removes => self.member(member, &mut archive)?,
                // Its data is skipped, which takes as long as to unpack it.
                _ => self.meter.bytes(member.size())?,
            }
        }
        // A layer may change nothing.
        if members == 0 && self.whiteouts == Whiteouts::Plain {
            let source = io::Error::new(io::ErrorKind::InvalidData, "the archive is empty");
            return Err(ImportError::Archive { source });
        }
        io::copy(&mut archive.into_inner().take(TRAILER), &mut io::sink())
            .map_err(|source| ImportError::Archive { source })?;
        self.folder_times.set(self.tree)
    }

    /// Removes what a whiteout stands for; what is not there need not be.
    fn remove(&self, whiteout: &Path) -> io::Result<()> {
        let parent = whiteout.parent().unwrap_or(Path::new(""));
        let inside = parent.strip_prefix("/").unwrap_or(parent);
        let folder = match self.tree.folder(inside) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            folder => folder?,
        };
        let name = whiteout.file_name().unwrap_or_default().as_bytes();
        if name == OPAQUE {
            return roost_sys::tree::empty(&folder);
        }
        let name = name.strip_prefix(WHITEOUT).unwrap_or_default();
        if name.is_empty() || name == b"." || name == b".." || name.starts_with(WHITEOUT) {
            return Ok(());
        }
        Place { parent: folder, name: OsStr::from_bytes(name).to_owned() }.clear()
    }

    fn member(&mut self, member: Member, data: &mut dyn Read) -> Result<(), ImportError> {
        let Member { path, kind, attributes } = &member;
        if attributes.uid >= OWNERS || attributes.gid >= OWNERS {
            return Err(ImportError::Owner { path: path.clone(), uid: attributes.uid, gid: attributes.gid });
        }
        if *kind == Kind::Device {
            self.dropped.insert(path.clone());
            if self.dropped.len() > MOST_DEVICES {
                return Err(ImportError::file(path)(io::Error::other("the archive has too many devices")));
            }
            return Ok(());
        }
        let failed = || ImportError::file(path);
        let Some(place) = self.tree.place(path, true).map_err(failed())? else {
            // The archive's own top folder, `./`.
            return attributes.apply(self.tree.top()).map_err(failed());
        };
        check_folder(&place.parent, path)?;
        match kind {
            Kind::Folder => {
                self.folder(&member, &place).map_err(failed())?;
                self.folder_times.note(path, attributes.seconds)
            }
            Kind::File { .. } => {
                let file = place.clear().and_then(|()| place.create_file()).map_err(failed())?;
                self.content(data, &file, path)?;
                attributes.apply(&file).map_err(failed())
            }
            Kind::Symlink { target } => {
                let made = || -> io::Result<()> {
                    place.clear()?;
                    symlinkat(target.as_os_str(), &place.parent, &place.name)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())
            }
            Kind::Fifo => {
                let made = || -> io::Result<()> {
                    place.clear()?;
                    let mode = Mode::from_raw_mode(attributes.mode);
                    mknodat(&place.parent, &place.name, FileType::Fifo, mode, 0)?;
                    attributes.apply_to_link(&place)
                };
                made().map_err(failed())
            }
            Kind::Hardlink { target } => self.hardlink(target, &place).map_err(failed()),
            Kind::Device => Ok(()),
        }
    }

    /// A symlink to a folder inside stays, as in archives made of a merged `/usr` and an older tree over it.
    fn folder(&self, member: &Member, place: &Place) -> io::Result<()> {
        if place.kind()? == Some(FileType::Symlink) && self.tree.folder(&member.path).is_ok() {
            return Ok(());
        }
        let folder = place.create_folder(0o700)?;
        member.attributes.apply(&folder)
    }

    fn hardlink(&self, target: &Path, place: &Place) -> io::Result<()> {
        if self.dropped.contains(target) {
            return Ok(());
        }
        let existing = self.tree.place(target, false)?.ok_or(io::ErrorKind::IsADirectory)?;
        // A link to itself must not remove what it links to.
        if existing.is_same(place)? {
            return Ok(());
        }
        place.clear()?;
        Ok(linkat(&existing.parent, &existing.name, &place.parent, &place.name, AtFlags::empty())?)
    }

    fn content(&mut self, data: &mut dyn Read, mut file: &File, path: &Path) -> Result<(), ImportError> {
        let mut buffer = vec![0_u8; 256 * 1024];
        loop {
            let read = data.read(&mut buffer).map_err(|source| ImportError::Archive { source })?;
            if read == 0 {
                return Ok(());
            }
            self.meter.bytes(read as u64)?;
            file.write_all(&buffer[..read]).map_err(ImportError::file(path))?;
        }
    }
}

#[cfg(test)]
mod fuzz;
