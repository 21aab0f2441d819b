//! A folder into an archive.

use std::fs::{self, Metadata};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::header::{BLOCK, Header, Kind};
use super::{MOST, Unfit};

/// Packs all of `folder`; nothing is written before all is known to be usual.
pub(super) fn pack(folder: &Path, into: BorrowedFd<'_>) -> Result<(), Unfit> {
    let top = fs::metadata(folder)?;
    let mut packed = Vec::new();
    add(&mut packed, b"./".to_vec(), Kind::Folder, &top, &[])?;
    add_all(&mut packed, folder, b"./", top.dev())?;
    packed.resize(packed.len() + 2 * BLOCK, 0);
    let mut file = fs::File::from(into.try_clone_to_owned()?);
    file.write_all(&packed)?;
    Ok(())
}

fn add_all(packed: &mut Vec<u8>, folder: &Path, name: &[u8], device: u64) -> Result<(), Unfit> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, found) = (entry.path(), entry.metadata()?);
        let mut name = [name, entry.file_name().as_bytes()].concat();
        let kind = found.file_type();
        if found.dev() != device {
            return Err(Unfit::Unusual);
        }
        if kind.is_dir() {
            name.push(b'/');
            add(packed, name.clone(), Kind::Folder, &found, &[])?;
            add_all(packed, &path, &name, device)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path)?.into_os_string().into_vec();
            add(packed, name, Kind::Link(target), &found, &[])?;
        } else if kind.is_file() {
            let whole = found.blocks() * BLOCK as u64 >= found.size();
            if found.nlink() != 1 || !whole || found.size() > MOST as u64 {
                return Err(Unfit::Unusual);
            }
            let content = fs::read(&path)?;
            add(packed, name, Kind::File(content.len() as u64), &found, &content)?;
        } else if !kind.is_socket() {
            return Err(Unfit::Unusual);
        }
        // A socket has nothing to pack: whoever listens at it brings it back.
    }
    Ok(())
}

fn add(packed: &mut Vec<u8>, name: Vec<u8>, kind: Kind, found: &Metadata, content: &[u8]) -> Result<(), Unfit> {
    let (mode, user, group) = (found.mode() & 0o7777, found.uid(), found.gid());
    let time = u64::try_from(found.mtime()).map_err(|_| Unfit::Unusual)?;
    packed.extend_from_slice(&Header { name, kind, mode, user, group, time }.write()?);
    packed.extend_from_slice(content);
    packed.resize(packed.len().next_multiple_of(BLOCK), 0);
    if packed.len() > MOST { Err(Unfit::Unusual) } else { Ok(()) }
}
