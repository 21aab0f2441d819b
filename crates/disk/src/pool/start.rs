//! Room that a start needs on a disk before anybody can remove anything from it.
//!
//! The overlay of a sandbox makes its work folder anew each time it is mounted. On a disk that is full to its limit it cannot,
//! and would leave the sandbox read-only: nobody inside could ever make room again. So the limit is lifted a little until it
//! runs. What it finds there is the overlay's own and goes with the next start, so nobody gains by it.
//!
//! In a pool that has no room left for folders at all, a start is refused while nothing is changed yet.

use super::{DiskError, HostFull, Pool};
use roost_sys::btrfs;

/// Enough for several starts at once: btrfs sets 4 MiB aside to make a single folder, and finds none where less is left.
const POOL_ROOM: u64 = 16 << 20;
/// The same for one overlay, on the disk of its sandbox.
const DISK_ROOM: u64 = 4 << 20;

impl Pool {
    /// Refuses when the pool has no room for what a start does to a disk; where that cannot be read nothing is refused.
    pub fn check_start_room(&self) -> Result<(), HostFull> {
        match btrfs::metadata_room(&self.sandboxes) {
            Ok(Some(free)) if free < POOL_ROOM => {
                Err(HostFull { which: "the pool for names and folders", free, reserve: POOL_ROOM })
            }
            _ => Ok(()),
        }
    }

    /// Lifts the limit of a disk that is full, or as good as, and says whether it did; `set_limit` sets it back.
    pub fn lift_limit(&self, id: &str, limit: u64) -> Result<bool, DiskError> {
        if !self.quotas() {
            return Ok(false);
        }
        let disk = self.open_disk(id)?;
        let lift = || -> std::io::Result<bool> {
            let usage = btrfs::usage(&disk, btrfs::subvolume_id(&disk)?)?;
            let full = usage.is_some_and(|usage| usage.referenced.saturating_add(DISK_ROOM) > limit);
            if full {
                self.limit_open_disk(&disk, limit.saturating_add(DISK_ROOM))?;
            }
            Ok(full)
        };
        lift().map_err(DiskError::failed("lift the limit of", id))
    }
}
