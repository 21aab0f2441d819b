//! Which quotas the pool has: they limit what a disk may hold.
//!
//! A pool of our own gets simple quotas, which cost nothing that can be measured, and full qgroups on kernels before 6.7,
//! which have no others. The quotas of a filesystem that is not ours are its owner's choice.

use std::fs::File;
use std::io;
use std::path::Path;

use roost_sys::btrfs::{self, QuotaMode};

/// How the size of a disk is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskLimits {
    /// By simple quotas: the first writer pays.
    Simple,
    /// By full qgroups: a disk pays for all that it refers to, shared or not.
    Full,
    /// Not at all: quotas are off in the filesystem of the data folder, which is not the pool's own.
    OffInForeign,
    /// Not at all: the kernel has no simple quotas, and full ones are off or refused.
    Off,
}

/// When full qgroups are turned on in a pool that has no quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullQuotas {
    /// On kernels that have no simple quotas.
    WithoutSimple,
    /// Never: on such kernels disks have no limit.
    Never,
    /// As on a kernel without simple quotas, for tests.
    Always,
}

/// The quotas of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quotas {
    pub(super) mode: QuotaMode,
    /// Whether the filesystem is the pool's own.
    pub(super) ours: bool,
    /// Whether they were turned on just now.
    pub(super) new: bool,
}

impl Quotas {
    /// Turns quotas on in a pool of our own; in somebody else's filesystem only looks.
    pub(super) fn enable(pool: &File, data_dir: &Path, full: FullQuotas) -> io::Result<Self> {
        let mode = btrfs::quota_mode(pool)?;
        let ours = !btrfs::is_btrfs(File::open(data_dir)?)?;
        if mode != QuotaMode::Off || !ours {
            return Ok(Self { mode, ours, new: false });
        }
        if full != FullQuotas::Always {
            match btrfs::enable_simple_quotas(pool) {
                Ok(()) => return Ok(Self { mode: QuotaMode::Simple, ours, new: true }),
                Err(error) => tracing::info!(%error, "this kernel has no simple quotas"),
            }
        }
        let enabled = match full {
            FullQuotas::Never => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "full qgroups are off in the settings"))
            }
            FullQuotas::WithoutSimple | FullQuotas::Always => btrfs::enable_full_quotas(pool),
        };
        match enabled {
            Ok(()) => Ok(Self { mode: QuotaMode::Full, ours, new: true }),
            Err(error) => {
                tracing::warn!(%error, "disks of sandboxes are not limited");
                Ok(Self { mode: QuotaMode::Off, ours, new: false })
            }
        }
    }
}
