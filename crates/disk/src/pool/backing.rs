//! What the pool stands on: the data folder's own btrfs, or a sparse file behind a loop device.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use roost_sys::btrfs;
use roost_sys::loopdev::{self, Access, LoopDevice};
use roost_sys::mount::{self, FsContext, MountAttrFlags, MountEntry};
use rustix::fs::{FlockOperation, Mode};

use super::{OpenError, PoolConfig};

pub(super) const MOUNT_POINT: &str = "pool";
const FILE: &str = "pool.btrfs";
const SMALLEST_DEFAULT: u64 = 8 << 30;

/// Makes sure that the pool is mounted and returns where.
pub(super) fn provide(data_dir: &Path, config: &PoolConfig) -> Result<PathBuf, OpenError> {
    let folder = File::open(data_dir).map_err(OpenError::file("open the data folder", data_dir))?;
    // Two openers at once would make or mount the pool twice; the lock goes with `folder`.
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)
        .map_err(|e| OpenError::file("lock the data folder", data_dir)(e.into()))?;

    let root = data_dir.join(MOUNT_POINT);
    match rustix::fs::mkdir(&root, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(OpenError::file("make the folder", &root)(e.into())),
    }
    let file = data_dir.join(FILE);
    if let Some(entry) = mount::find_mount(&root).map_err(|source| OpenError::Mount { source })? {
        if entry.kind != "btrfs" {
            return Err(OpenError::Foreign { path: root, kind: entry.kind });
        }
        grow(&file, &root, &entry, config.size)?;
        return Ok(root);
    }
    if btrfs::is_btrfs(&folder).map_err(OpenError::file("inspect the data folder", data_dir))? {
        return Ok(root);
    }

    if !file.exists() {
        make(&file, data_dir, config.size)?;
    }
    // A loop device without its mount is what a daemon leaves that was killed between the two.
    let device = match LoopDevice::find(&file).map_err(|source| OpenError::Attach { source })? {
        Some(device) => device,
        None => LoopDevice::attach(&file, Access::ReadWrite).map_err(|source| OpenError::Attach { source })?,
    };
    mount_pool(device.path(), &root).map_err(|source| OpenError::Mount { source })?;
    if let Some(entry) = mount::find_mount(&root).map_err(|source| OpenError::Mount { source })? {
        grow(&file, &root, &entry, config.size)?;
    }
    Ok(root)
}

fn mount_pool(device: &Path, root: &Path) -> Result<(), mount::MountError> {
    FsContext::open("btrfs")?
        .option("source", device)?
        .option("discard", "async")?
        .option("compress", "zstd:1")?
        .create(MountAttrFlags::MOUNT_ATTR_NOATIME)?
        .attach(root)
}

/// Makes the filesystem under another name first, so that a file of the final name is always a whole one.
fn make(file: &Path, data_dir: &Path, size: Option<u64>) -> Result<(), OpenError> {
    let size = match size {
        Some(size) => size,
        None => default_size(data_dir).map_err(OpenError::file("read the free space of", data_dir))?,
    };
    let staging = file.with_extension("btrfs.new");
    let sparse = || -> io::Result<()> {
        let new = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staging)?;
        new.set_len(size)
    };
    sparse().map_err(OpenError::file("make the pool's file", &staging))?;
    let output = Command::new("mkfs.btrfs")
        .args(["--quiet", "--force", "--label", "roost"])
        .arg(&staging)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| OpenError::StartMkfs { source })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(OpenError::Mkfs { path: staging, output: text });
    }
    let publish = || -> io::Result<()> {
        File::open(&staging)?.sync_all()?;
        std::fs::rename(&staging, file)?;
        File::open(data_dir)?.sync_all()
    };
    publish().map_err(OpenError::file("put the pool's file in place at", file))
}

fn default_size(data_dir: &Path) -> io::Result<u64> {
    let host = rustix::fs::statvfs(data_dir)?;
    Ok((host.f_bavail * host.f_frsize / 10 * 9).max(SMALLEST_DEFAULT))
}

/// Grows a mounted loop pool to the size that is now configured.
fn grow(file: &Path, root: &Path, entry: &MountEntry, size: Option<u64>) -> Result<(), OpenError> {
    let (Some(size), Ok(now)) = (size, file.metadata()) else {
        return Ok(());
    };
    if now.len() >= size {
        return Ok(());
    }
    let longer = || OpenOptions::new().write(true).open(file)?.set_len(size);
    longer().map_err(OpenError::file("grow the pool's file", file))?;
    loopdev::update_capacity(&entry.source).map_err(|source| OpenError::Attach { source })?;
    let grown = || btrfs::grow_to_device(File::open(root)?);
    grown().map_err(OpenError::file("grow the pool", root))
}
