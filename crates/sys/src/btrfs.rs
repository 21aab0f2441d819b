//! Btrfs by ioctl: subvolumes, snapshots, simple quotas, syncs and online growth.
//!
//! Every call takes a descriptor of a folder of the filesystem, so nothing here resolves a path twice. A
//! subvolume is named by one path component below an open parent folder.

mod search;
mod space;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::ioctl::{Getter, NoArg, Opcode, Setter, Updater, ioctl, opcode};

pub use search::{Item, ItemKind, for_each_item};
pub use space::metadata_room;

const MAGIC: u8 = 0x94;
/// `statfs` type of a btrfs filesystem.
pub const FS_MAGIC: u64 = 0x9123_683e;
/// Inode number of the root folder of every subvolume.
const FIRST_FREE_OBJECTID: u64 = 256;
const QUOTA_TREE: u64 = 8;
const QGROUP_STATUS_KEY: u32 = 240;
const QGROUP_INFO_KEY: u32 = 242;
const QGROUP_LIMIT_KEY: u32 = 244;
const SUBVOLUME_READ_ONLY: u64 = 1 << 1;

const RESIZE: Opcode = opcode::write::<VolArgs>(MAGIC, 3);
const SYNC: Opcode = opcode::none(MAGIC, 8);
const TREE_SEARCH_V2: Opcode = opcode::read_write::<SearchHead>(MAGIC, 17);
const INO_LOOKUP: Opcode = opcode::read_write::<InoLookup>(MAGIC, 18);
const WAIT_SYNC: Opcode = opcode::write::<u64>(MAGIC, 22);
const SNAP_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 23);
const START_SYNC: Opcode = opcode::read::<u64>(MAGIC, 24);
const SUBVOL_CREATE_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 24);
const QUOTA_CTL: Opcode = opcode::read_write::<QuotaCtl>(MAGIC, 40);
const QGROUP_LIMIT: Opcode = opcode::read::<QgroupLimit>(MAGIC, 43);
const SNAP_DESTROY_V2: Opcode = opcode::write::<VolArgsV2>(MAGIC, 63);

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

/// `struct btrfs_ioctl_vol_args_v2`, with its unions as we use them.
#[repr(C)]
struct VolArgsV2 {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct InoLookup {
    treeid: u64,
    objectid: u64,
    name: [u8; 4080],
}

/// `struct btrfs_ioctl_quota_ctl_args`.
#[repr(C)]
struct QuotaCtl {
    cmd: u64,
    status: u64,
}

/// `struct btrfs_ioctl_qgroup_limit_args`.
#[repr(C)]
struct QgroupLimit {
    qgroupid: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    rsv_referenced: u64,
    rsv_exclusive: u64,
}

/// `struct btrfs_ioctl_search_args_v2` without its trailing buffer: the size the ioctl number carries.
#[repr(C)]
struct SearchHead {
    tree_id: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    nr_items: u32,
    unused: u32,
    unused_more: [u64; 4],
    buf_size: u64,
}

/// The head with room for one small item behind it, as the kernel expects them in memory.
#[repr(C)]
struct SearchOne {
    head: SearchHead,
    buffer: [u8; SearchOne::ROOM],
}

impl SearchOne {
    /// A header of 32 bytes and the largest item we read, 40 bytes, with some slack.
    const ROOM: usize = 128;
    const ITEM_AT: usize = 32;
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<VolArgsV2>() == 4096);
const _: () = assert!(size_of::<InoLookup>() == 4096 && size_of::<SearchHead>() == 112);

/// What a subvolume's quota group holds and may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QgroupUsage {
    /// Bytes charged to the subvolume.
    pub referenced: u64,
    /// Bytes that only this subvolume accounts for; equal to `referenced` under simple quotas.
    pub exclusive: u64,
}

/// How a filesystem accounts for its subvolumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaMode {
    /// No accounting, no limits.
    Off,
    /// Simple quotas: the first writer pays, at no measurable cost.
    Simple,
    /// Full qgroups: who refers to an extent pays, and removing a snapshot is dear.
    Full,
}

/// Whether the descriptor is on a btrfs filesystem.
pub fn is_btrfs(fd: impl AsFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(fd)?.f_type as u64 == FS_MAGIC)
}

/// Makes an empty subvolume `name` in `parent`.
pub fn create_subvolume(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    vol_args_v2::<SUBVOL_CREATE_V2>(parent.as_fd(), name, 0, 0)
}

/// Makes `name` in `parent` a writable snapshot of the subvolume whose root folder is `source`.
pub fn create_snapshot(source: impl AsFd, parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    let source = i64::from(source.as_fd().as_raw_fd());
    vol_args_v2::<SNAP_CREATE_V2>(parent.as_fd(), name, source, 0)
}

/// Makes `name` in `parent` a snapshot of the subvolume whose root folder is `source` that nobody can change.
pub fn create_read_only_snapshot(source: impl AsFd, parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    let source = i64::from(source.as_fd().as_raw_fd());
    vol_args_v2::<SNAP_CREATE_V2>(parent.as_fd(), name, source, SUBVOLUME_READ_ONLY)
}

/// Deletes the subvolume `name` in `parent`; its space comes back in the background.
pub fn destroy_subvolume(parent: impl AsFd, name: &OsStr) -> io::Result<()> {
    vol_args_v2::<SNAP_DESTROY_V2>(parent.as_fd(), name, 0, 0)
}

fn vol_args_v2<const OPCODE: Opcode>(parent: BorrowedFd<'_>, name: &OsStr, fd: i64, flags: u64) -> io::Result<()> {
    let mut args = VolArgsV2 { fd, transid: 0, flags, unused: [0; 4], name: [0; 4040] };
    fill_name(&mut args.name, name)?;
    // SAFETY: the opcodes used with this function all read one `btrfs_ioctl_vol_args_v2`, whose layout and
    // size `VolArgsV2` has.
    unsafe { ioctl(parent, Setter::<OPCODE, VolArgsV2>::new(args)) }?;
    Ok(())
}

/// Copies a name and leaves at least one NUL behind it.
fn fill_name(field: &mut [u8], name: &OsStr) -> io::Result<()> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() > 255 || bytes.contains(&0) {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    field[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// The number of the subvolume that the descriptor is in.
pub fn subvolume_id(fd: impl AsFd) -> io::Result<u64> {
    let mut args = InoLookup { treeid: 0, objectid: FIRST_FREE_OBJECTID, name: [0; 4080] };
    // SAFETY: the kernel reads and writes one `btrfs_ioctl_ino_lookup_args`, which `InoLookup` mirrors.
    unsafe { ioctl(fd, Updater::<INO_LOOKUP, InoLookup>::new(&mut args)) }?;
    Ok(args.treeid)
}

/// Whether the folder is the root of a subvolume, rather than a folder in one.
pub fn is_subvolume_root(fd: impl AsFd) -> io::Result<bool> {
    let fd = fd.as_fd();
    Ok(is_btrfs(fd)? && rustix::fs::fstat(fd)?.st_ino == FIRST_FREE_OBJECTID)
}

/// Commits what is dirty and starts the cleaner, so that the space of deleted subvolumes comes back.
pub fn sync(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: `BTRFS_IOC_SYNC` takes no argument.
    unsafe { ioctl(fd, NoArg::<SYNC>::new()) }?;
    Ok(())
}

/// Starts a commit without waiting and returns its number for [`wait_sync`].
pub fn start_sync(fd: impl AsFd) -> io::Result<u64> {
    // SAFETY: the kernel writes one `u64`.
    Ok(unsafe { ioctl(fd, Getter::<START_SYNC, u64>::new()) }?)
}

/// Waits until the commit of that number is on disk; 0 waits for the current one.
pub fn wait_sync(fd: impl AsFd, transaction: u64) -> io::Result<()> {
    // SAFETY: the kernel reads one `u64`.
    unsafe { ioctl(fd, Setter::<WAIT_SYNC, u64>::new(transaction)) }?;
    Ok(())
}

/// Turns simple quotas on; kernels before 6.7 answer `EINVAL`.
pub fn enable_simple_quotas(fd: impl AsFd) -> io::Result<()> {
    const ENABLE_SIMPLE: u64 = 4;
    control_quotas(fd, ENABLE_SIMPLE)
}

/// Turns full qgroups on, which count what is there in the background.
pub fn enable_full_quotas(fd: impl AsFd) -> io::Result<()> {
    const ENABLE: u64 = 1;
    control_quotas(fd, ENABLE)
}

fn control_quotas(fd: impl AsFd, cmd: u64) -> io::Result<()> {
    let mut args = QuotaCtl { cmd, status: 0 };
    // SAFETY: the kernel reads and writes one `btrfs_ioctl_quota_ctl_args`, which `QuotaCtl` mirrors.
    unsafe { ioctl(fd, Updater::<QUOTA_CTL, QuotaCtl>::new(&mut args)) }?;
    Ok(())
}

/// Which kind of quotas the filesystem has.
pub fn quota_mode(fd: impl AsFd) -> io::Result<QuotaMode> {
    let Some(item) = quota_item::<4>(fd.as_fd(), QGROUP_STATUS_KEY, 0)? else {
        return Ok(QuotaMode::Off);
    };
    let [_version, _generation, flags, _rescan] = item;
    Ok(match (flags & 1 != 0, flags & (1 << 3) != 0) {
        (false, _) => QuotaMode::Off,
        (true, true) => QuotaMode::Simple,
        (true, false) => QuotaMode::Full,
    })
}

/// Limits what the subvolume of that number may hold; `None` lifts the limit.
pub fn set_limit(fd: impl AsFd, subvolume: u64, bytes: Option<u64>) -> io::Result<()> {
    const MAX_REFERENCED: u64 = 1;
    let args = QgroupLimit {
        qgroupid: subvolume,
        flags: MAX_REFERENCED,
        // All ones clears a limit.
        max_referenced: bytes.unwrap_or(u64::MAX),
        max_exclusive: 0,
        rsv_referenced: 0,
        rsv_exclusive: 0,
    };
    // SAFETY: the kernel reads one `btrfs_ioctl_qgroup_limit_args`, which `QgroupLimit` mirrors; the number
    // says "read" by a mistake of old that is now its name.
    unsafe { ioctl(fd, Setter::<QGROUP_LIMIT, QgroupLimit>::new(args)) }?;
    Ok(())
}

/// What the subvolume of that number holds as of the last commit, or `None` without quotas.
pub fn usage(fd: impl AsFd, subvolume: u64) -> io::Result<Option<QgroupUsage>> {
    let item = quota_item::<5>(fd.as_fd(), QGROUP_INFO_KEY, subvolume)?;
    Ok(item.map(|[_generation, referenced, _, exclusive, _]| QgroupUsage { referenced, exclusive }))
}

/// The limit of the subvolume of that number, if it has one.
pub fn limit(fd: impl AsFd, subvolume: u64) -> io::Result<Option<u64>> {
    let item = quota_item::<5>(fd.as_fd(), QGROUP_LIMIT_KEY, subvolume)?;
    Ok(item.and_then(|[flags, max_referenced, ..]| {
        (flags & 1 != 0 && max_referenced != u64::MAX).then_some(max_referenced)
    }))
}

/// Reads the first `N` little-endian words of the one quota item with this key.
fn quota_item<const N: usize>(fd: BorrowedFd<'_>, kind: u32, offset: u64) -> io::Result<Option<[u64; N]>> {
    let mut search = SearchOne {
        head: SearchHead {
            tree_id: QUOTA_TREE,
            min_objectid: 0,
            max_objectid: 0,
            min_offset: offset,
            max_offset: offset,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: kind,
            max_type: kind,
            nr_items: 1,
            unused: 0,
            unused_more: [0; 4],
            buf_size: SearchOne::ROOM as u64,
        },
        buffer: [0; SearchOne::ROOM],
    };
    // SAFETY: the kernel reads the head and writes at most `buf_size` bytes behind it, which `buffer` holds:
    // `SearchHead` has no tail padding, so `buffer` follows it directly.
    let result = unsafe { ioctl(fd, Updater::<TREE_SEARCH_V2, SearchOne>::new(&mut search)) };
    match result {
        Ok(()) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    }
    if search.head.nr_items == 0 {
        return Ok(None);
    }
    let mut words = [0_u64; N];
    let bytes = search.buffer[SearchOne::ITEM_AT..].as_chunks::<8>().0;
    for (word, chunk) in words.iter_mut().zip(bytes) {
        *word = u64::from_le_bytes(*chunk);
    }
    Ok(Some(words))
}

/// Grows the mounted filesystem to all of its (only) device.
pub fn grow_to_device(fd: impl AsFd) -> io::Result<()> {
    let mut args = VolArgs { fd: 0, name: [0; 4088] };
    fill_name(&mut args.name, OsStr::new("1:max"))?;
    // SAFETY: the kernel reads one `btrfs_ioctl_vol_args`, which `VolArgs` mirrors.
    unsafe { ioctl(fd, Setter::<RESIZE, VolArgs>::new(args)) }?;
    Ok(())
}
