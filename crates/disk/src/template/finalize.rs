//! What every template gets before it is packed: our `/dev`, mount points, a resolver, and no strange owners or devices.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use roost_sys::tree::{At, Visitor, empty, walk};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, Stat, Uid, chmodat, chownat, fchmod, makedev, mkdirat, mknodat, statat, symlinkat,
    unlinkat,
};

use super::import::ImportError;
use super::limits;
use super::tree::{OWNERS, Tree};

/// The gateway's address inside every sandbox, where the daemon answers names.
const RESOLV_CONF: &[u8] = b"nameserver 10.0.0.1\n";

/// The group that owns terminals on every distribution.
const TTY_GROUP: u32 = 5;

const DEVICES: [(&str, u32, u32, u32); 6] = [
    ("null", 1, 3, 0),
    ("zero", 1, 5, 0),
    ("full", 1, 7, 0),
    ("random", 1, 8, 0),
    ("urandom", 1, 9, 0),
    ("tty", 5, 0, TTY_GROUP),
];

const LINKS: [(&str, &str); 5] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Makes the tree at `root` fit to be the root of a sandbox.
pub(super) fn finalize(root: &Path) -> Result<(), ImportError> {
    let failed = |attempt| move |source| ImportError::Finalize { attempt, source };
    let tree = Tree::open(root).map_err(failed("open the tree"))?;
    fchmod(tree.top(), Mode::from_raw_mode(0o755)).map_err(|e| failed("set the mode of `/`")(e.into()))?;
    let top = tree.top().try_clone().map_err(failed("open the tree"))?;
    walk(top, &mut Cleaning)?;
    mount_points(&tree).map_err(failed("make the mount points"))?;
    devices(&tree).map_err(failed("make the devices"))?;
    resolver(&tree).map_err(failed("write `/etc/resolv.conf`"))
}

/// Drops device nodes and sockets, and refuses owners that no sandbox has and trees that no image holds.
struct Cleaning;

impl Visitor for Cleaning {
    type Error = ImportError;

    fn entry(&mut self, at: &At<'_>) -> Result<bool, ImportError> {
        let path = limits::check(at)?;
        let failed = |e: rustix::io::Errno| ImportError::file(&path)(e.into());
        let stat: Stat = statat(at.folder, at.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if matches!(kind, FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket) {
            unlinkat(at.folder, at.name, AtFlags::empty()).map_err(failed)?;
            return Ok(false);
        }
        if stat.st_uid >= OWNERS || stat.st_gid >= OWNERS {
            return Err(ImportError::Owner { path, uid: stat.st_uid, gid: stat.st_gid });
        }
        Ok(kind == FileType::Directory)
    }

    fn fault(&mut self, path: &Path, error: io::Error) -> ImportError {
        // A filesystem that a build left mounted is not ours to walk.
        let mounted = error.kind() == io::ErrorKind::CrossesDevices;
        ImportError::file(path)(if mounted { io::Error::other("a filesystem is mounted there") } else { error })
    }
}

fn mount_points(tree: &Tree) -> io::Result<()> {
    for (name, mode) in [("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755), ("tmp", 0o1777)] {
        let place = tree.place(Path::new(name), false)?.ok_or(io::ErrorKind::InvalidFilename)?;
        place.create_folder(mode)?;
    }
    Ok(())
}

fn devices(tree: &Tree) -> io::Result<()> {
    let place = tree.place(Path::new("dev"), false)?.ok_or(io::ErrorKind::InvalidFilename)?;
    let dev = place.open_folder()?;
    empty(&dev)?;
    let everybody = Mode::from_raw_mode(0o666);
    for (name, major, minor, group) in DEVICES {
        mknodat(&dev, name, FileType::CharacterDevice, everybody, makedev(major, minor))?;
        chownat(&dev, name, Some(Uid::ROOT), Some(Gid::from_raw(group)), AtFlags::SYMLINK_NOFOLLOW)?;
        // The umask had its say in the call that made it.
        chmodat(&dev, name, everybody, AtFlags::empty())?;
    }
    for (name, target) in LINKS {
        symlinkat(target, &dev, name)?;
    }
    for name in ["pts", "shm"] {
        mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
    }
    Ok(())
}

fn resolver(tree: &Tree) -> io::Result<()> {
    let place = tree.place(Path::new("etc/resolv.conf"), true)?.ok_or(io::ErrorKind::InvalidFilename)?;
    place.clear()?;
    let mut file: File = place.create_file()?;
    file.write_all(RESOLV_CONF)?;
    fchmod(&file, Mode::from_raw_mode(0o644))?;
    Ok(())
}
