//! The pool: a btrfs filesystem that holds every sandbox's disk.
//!
//! ```text
//! <data>/pool.btrfs                     sparse file, unless the data folder is btrfs itself
//! <data>/pool/                          where it is mounted
//! <data>/pool/sandboxes/<id>/disk       the sandbox's subvolume: all that it changed
//! <data>/pool/sandboxes/<id>/disk/root  upper layer of its root
//! <data>/pool/sandboxes/<id>/disk/work  overlayfs's own
//! <data>/pool/sandboxes/<id>/disk.*     on the way in or out, see `replace`
//! <data>/pool/checkpoints/<id>/disk     a read-only snapshot of a sandbox's subvolume
//! <data>/pool/templates/<id>/           the disk of a promoted template, alike
//! <data>/pool/spares/<id>/              an empty disk for the next sandbox, see `spares`; swept likewise
//! <data>/pool/staging/<random>/         being made or unmade; swept at the next open unless its maker lives
//! <data>/images/                        memory images, beside the pool, see `image`
//! ```
//!
//! Each snapshot has a folder of its own because snapshots into one shared folder wait for each other. Whatever is
//! kept under an id appears and goes by one rename to or from `staging`, so it is whole or absent. A snapshot holds
//! all it needs: sandboxes, checkpoints and templates can be deleted in any order.

mod backing;
mod checkpoints;
mod disks;
mod folders;
mod images;
mod quotas;
mod replace;
mod seeds;
mod sizes;
mod spares;
mod staged;
mod start;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use roost_sys::btrfs::{self, QuotaMode};
use roost_sys::loopdev::LoopError;
use roost_sys::mount::{self, UnmountFlags};

use self::quotas::Quotas;
use self::spares::Spares;
use crate::aside::provide_folder;
use crate::image::Images;

pub use checkpoints::Checkpoint;
pub use disks::{DiskError, DiskPaths, DiskUsage};
pub(crate) use folders::{
    ids_in, is_full, is_id, open_folder, remove_tree, rename_new, stage_in, sweep_in, sync_folder,
};
pub use quotas::{DiskLimits, FullQuotas};
pub use replace::Replacement;
pub use sizes::{DiskOf, DiskSizes, Retaining};
pub use staged::Staged;

/// Where the pool is and how large it may be.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The daemon's data folder; made if it is missing.
    pub data_dir: PathBuf,
    /// Size of the loop file: nine tenths of the free space and at least 8 GiB if absent. A pool grows to a larger
    /// size when it is opened; it never shrinks.
    pub size: Option<u64>,
    /// Free bytes below which new work is refused.
    pub reserve: u64,
    /// When disks are limited by full qgroups.
    pub full_quotas: FullQuotas,
}

impl PoolConfig {
    /// The reserve unless one is configured.
    pub const DEFAULT_RESERVE: u64 = 1 << 30;

    /// A pool in `data_dir` with the default size and reserve.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            size: None,
            reserve: Self::DEFAULT_RESERVE,
            full_quotas: FullQuotas::WithoutSimple,
        }
    }
}

/// Why the pool could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A folder or file of the pool could not be made, opened or changed.
    #[error("failed to {attempt} `{}`", path.display())]
    File { attempt: &'static str, path: PathBuf, source: io::Error },
    /// `mkfs.btrfs` could not be started.
    #[error("failed to start `mkfs.btrfs` (package btrfs-progs)")]
    StartMkfs { source: io::Error },
    /// `mkfs.btrfs` refused.
    #[error("`mkfs.btrfs` failed on `{}`: {output}", path.display())]
    Mkfs { path: PathBuf, output: String },
    /// The file could not become a block device.
    #[error("failed to attach the pool")]
    Attach { source: LoopError },
    /// The filesystem could not be mounted.
    #[error("failed to mount the pool")]
    Mount { source: mount::MountError },
    /// A filesystem that is not ours is mounted where the pool belongs.
    #[error("`{}` is a mounted {kind}, not btrfs", path.display())]
    Foreign { path: PathBuf, kind: String },
}

impl OpenError {
    fn file(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { attempt, path, source }
    }
}

/// The pool could not be unmounted, most likely because something in it is still in use.
#[derive(Debug, thiserror::Error)]
#[error("failed to unmount the pool")]
pub struct UnmountError {
    source: mount::MountError,
}

/// Too little space is left to begin anything new.
#[derive(Debug, thiserror::Error)]
#[error("{free} bytes are free on {which}, {reserve} are kept in reserve")]
pub struct HostFull {
    /// What is full, in words.
    pub which: &'static str,
    /// Bytes left there.
    pub free: u64,
    /// Bytes that must be left.
    pub reserve: u64,
}

/// Bytes of the pool and of the filesystem it stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Size of the pool.
    pub total: u64,
    /// Free in the pool.
    pub free: u64,
    /// Free on the host's filesystem; a sparse pool can promise more than that.
    pub host_free: u64,
}

/// An opened btrfs pool.
#[derive(Debug)]
pub struct Pool {
    data_dir: PathBuf,
    root: PathBuf,
    reserve: u64,
    quotas: Quotas,
    sandboxes: File,
    spares: Spares,
    images: Images,
}

const SANDBOXES: &str = "sandboxes";
/// Where images were, in subvolumes, before they left the pool.
const OLD_IMAGES: &str = "images";
const CHECKPOINTS: &str = "checkpoints";
const SEEDS: &str = "templates";
const SPARES: &str = "spares";
const STAGING: &str = "staging";

impl Pool {
    /// Opens the pool, making and mounting it where needed.
    ///
    /// A pool that is mounted already, for instance by a daemon that was killed, is used as it is.
    pub fn open(config: &PoolConfig) -> Result<Self, OpenError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&config.data_dir);
        made.map_err(OpenError::file("make the data folder", &config.data_dir))?;
        let data_dir =
            config.data_dir.canonicalize().map_err(OpenError::file("resolve the data folder", &config.data_dir))?;
        let root = backing::provide(&data_dir, config)?;

        let folder = File::open(&root).map_err(OpenError::file("open the pool", &root))?;
        let quotas = Quotas::enable(&folder, &data_dir, config.full_quotas)
            .map_err(OpenError::file("read the quotas of", &root))?;
        for name in [SANDBOXES, CHECKPOINTS, SEEDS, SPARES, STAGING] {
            let path = root.join(name);
            provide_folder(&root, &path, 0o700).map_err(OpenError::file("make the folder", &path))?;
        }
        for name in [SPARES, STAGING] {
            folders::sweep_in(&root, &root.join(name), staged::remove);
        }
        remove_old_images(&root.join(OLD_IMAGES));
        let images = Images::open(&data_dir).map_err(OpenError::file("open the images in", &data_dir))?;
        let sandboxes_path = root.join(SANDBOXES);
        let sandboxes = File::open(&sandboxes_path).map_err(OpenError::file("open", &sandboxes_path))?;
        Ok(Self { data_dir, root, reserve: config.reserve, quotas, sandboxes, spares: Spares::default(), images })
    }

    /// Closes the pool and unmounts it; its loop device goes with the mount.
    pub fn close(self) -> Result<(), UnmountError> {
        let data_dir = self.data_dir.clone();
        drop(self);
        Self::unmount(&data_dir)
    }

    /// Unmounts the pool of a data folder that nobody has open; without one mounted there it does nothing.
    pub fn unmount(data_dir: &Path) -> Result<(), UnmountError> {
        let Ok(data_dir) = data_dir.canonicalize() else {
            return Ok(());
        };
        let root = data_dir.join(backing::MOUNT_POINT);
        let mounted = mount::find_mount(&root).map_err(|source| UnmountError { source })?;
        if mounted.is_none() {
            return Ok(());
        }
        mount::unmount(&root, UnmountFlags::empty()).map_err(|source| UnmountError { source })
    }

    /// The mounted pool.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the size of a disk can be limited here.
    pub fn quotas(&self) -> bool {
        self.quotas.mode != QuotaMode::Off
    }

    /// How the size of a disk is limited here, or why it is not.
    pub fn disk_limits(&self) -> DiskLimits {
        match self.quotas {
            Quotas { mode: QuotaMode::Simple, .. } => DiskLimits::Simple,
            Quotas { mode: QuotaMode::Full, .. } => DiskLimits::Full,
            Quotas { ours: false, .. } => DiskLimits::OffInForeign,
            Quotas { ours: true, .. } => DiskLimits::Off,
        }
    }

    /// Whether opening the pool turned its quotas on: disks that were there have no limit yet.
    pub fn quotas_are_new(&self) -> bool {
        self.quotas.new
    }

    /// Space in the pool and below it.
    pub fn space(&self) -> io::Result<Space> {
        let pool = rustix::fs::statvfs(&self.root)?;
        let host = rustix::fs::statvfs(&self.data_dir)?;
        Ok(Space {
            total: pool.f_blocks * pool.f_frsize,
            free: pool.f_bavail * pool.f_frsize,
            host_free: host.f_bavail * host.f_frsize,
        })
    }

    /// Refuses when so little space is left that new work could take the pool down.
    ///
    /// A loop pool whose host runs full accepts writes and then turns read-only, with everybody's data in it. Where
    /// the space cannot be read there is nothing to refuse by.
    pub fn check_room(&self) -> Result<(), HostFull> {
        let Ok(space) = self.space() else { return Ok(()) };
        // A small pool would never be allowed to do anything under a reserve meant for the host's disk.
        let pool_reserve = self.reserve.min(space.total / 16);
        for (which, free, reserve) in
            [("the host's filesystem", space.host_free, self.reserve), ("the pool", space.free, pool_reserve)]
        {
            if free < reserve {
                return Err(HostFull { which, free, reserve });
            }
        }
        self.check_start_room()
    }

    /// Commits what is written and begins to take back the space of deleted disks.
    pub fn sync(&self) -> io::Result<()> {
        btrfs::sync(&self.sandboxes)
    }
}

/// Removes the folder that older versions kept images in; what is in it can be used no more, but that is told first.
fn remove_old_images(path: &Path) {
    match std::fs::remove_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "memory saved by an older version cannot be used any more");
        }
        _ => {}
    }
}
