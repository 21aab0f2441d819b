//! How much room a filesystem has left for what it keeps about files, which runs out apart from the room for their contents.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use super::MAGIC;

const SPACE_INFO: Opcode = opcode::read_write::<[u64; 2]>(MAGIC, 20);
const DEV_INFO: Opcode = opcode::read_write::<DeviceInfo>(MAGIC, 30);

const METADATA: u64 = 1 << 2;
/// Profiles that keep everything twice: mirrored, or two copies on one device.
const TWICE: u64 = (1 << 4) | (1 << 5);
/// What the filesystem holds back for itself; listed like a kind of its own.
const RESERVED_FOR_ITSELF: u64 = 1 << 49;
/// Data, metadata, system, each in at most a few profiles while it is converted, and the reserve.
const SLOTS: usize = 16;

/// `struct btrfs_ioctl_space_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SpaceInfo {
    flags: u64,
    total: u64,
    used: u64,
}

/// `struct btrfs_ioctl_space_args` with room for its answers behind it.
#[repr(C)]
struct SpaceArgs {
    slots: u64,
    total: u64,
    spaces: [SpaceInfo; SLOTS],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct DeviceInfo {
    id: u64,
    uuid: [u8; 16],
    used: u64,
    total: u64,
    rest: [u8; 4056],
}

const _: () = assert!(size_of::<DeviceInfo>() == 4096);

/// Bytes that can still be written about files and folders, whatever the room for contents; `None` where it cannot be told
/// because the filesystem has other devices than one.
pub fn metadata_room(fd: impl AsFd) -> io::Result<Option<u64>> {
    let Some(unallocated) = unallocated(&fd)? else { return Ok(None) };
    let mut args = SpaceArgs { slots: SLOTS as u64, total: 0, spaces: [SpaceInfo::default(); SLOTS] };
    // SAFETY: the kernel reads the two words and writes at most `slots` answers behind them, which `spaces` holds.
    unsafe { ioctl(fd, Updater::<SPACE_INFO, SpaceArgs>::new(&mut args)) }?;
    let answers = usize::try_from(args.total).unwrap_or(SLOTS).min(SLOTS);
    Ok(Some(room(&args.spaces[..answers], unallocated)))
}

fn room(spaces: &[SpaceInfo], unallocated: u64) -> u64 {
    let held_back: u64 =
        spaces.iter().filter(|space| space.flags & RESERVED_FOR_ITSELF != 0).map(|space| space.total).sum();
    let metadata = || spaces.iter().filter(|space| space.flags & (METADATA | RESERVED_FOR_ITSELF) == METADATA);
    let free: u64 = metadata().map(|space| space.total.saturating_sub(space.used)).sum();
    let copies = if metadata().any(|space| space.flags & TWICE != 0) { 2 } else { 1 };
    free.saturating_sub(held_back) + unallocated / copies
}

/// Bytes of the only device that are not yet set aside for anything.
fn unallocated(fd: impl AsFd) -> io::Result<Option<u64>> {
    let mut args = DeviceInfo { id: 1, uuid: [0; 16], used: 0, total: 0, rest: [0; 4056] };
    // SAFETY: the kernel reads and writes one `btrfs_ioctl_dev_info_args`, which `DeviceInfo` mirrors.
    match unsafe { ioctl(fd, Updater::<DEV_INFO, DeviceInfo>::new(&mut args)) } {
        Ok(()) => Ok(Some(args.total.saturating_sub(args.used))),
        Err(Errno::NODEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_and_what_is_held_back_do_not_count() {
        let space = |flags, total, used| SpaceInfo { flags, total, used };
        let data = space(1, 900, 100);
        let metadata = space(METADATA | (1 << 5), 100, 30);
        let held_back = space(METADATA | RESERVED_FOR_ITSELF, 20, 0);
        assert_eq!(room(&[data, metadata, held_back], 0), 50);
        assert_eq!(room(&[data, metadata, held_back], 40), 70);
        assert_eq!(room(&[data, space(METADATA, 100, 90), held_back], 40), 40);
    }
}
