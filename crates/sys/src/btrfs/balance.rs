//! Contents moved together, out of pieces of the filesystem that are almost empty.
//!
//! Btrfs gives room away in large pieces, each for contents or for what it keeps about files. A piece comes back only when
//! nothing at all is left in it.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Updater, ioctl, opcode};

use super::MAGIC;

const BALANCE: Opcode = opcode::read_write::<BalanceArgs>(MAGIC, 32);
const BALANCE_CTL: Opcode = opcode::write::<i32>(MAGIC, 33);
const CANCEL: usize = 2;

const ONLY_DATA: u64 = 1;
const BY_USAGE: u64 = 1 << 1;
const AT_MOST: u64 = 1 << 5;

/// `struct btrfs_balance_args`: which pieces of a kind are moved.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Pieces {
    profiles: u64,
    usage: u64,
    places: [u64; 6],
    flags: u64,
    limit: u64,
    stripes: u64,
    unused: [u64; 6],
}

/// `struct btrfs_ioctl_balance_args`.
#[repr(C)]
struct BalanceArgs {
    flags: u64,
    state: u64,
    data: Pieces,
    metadata: Pieces,
    system: Pieces,
    expected: u64,
    considered: u64,
    completed: u64,
    unused: [u64; 72],
}

const _: () = assert!(size_of::<BalanceArgs>() == 1024);

/// Empties at most `most` pieces of which less than `usage` percent hold contents, and says how many it has emptied.
///
/// That takes as long as what is moved takes to be written. None are emptied where somebody else is moving contents,
/// or where there is no room to move them to.
pub fn empty_pieces(fd: impl AsFd, usage: u8, most: u32) -> io::Result<u64> {
    let data = Pieces { usage: usage.into(), flags: BY_USAGE | AT_MOST, limit: most.into(), ..Pieces::default() };
    let mut args = BalanceArgs {
        flags: ONLY_DATA,
        state: 0,
        data,
        metadata: Pieces::default(),
        system: Pieces::default(),
        expected: 0,
        considered: 0,
        completed: 0,
        unused: [0; 72],
    };
    // SAFETY: the kernel reads and writes one `btrfs_ioctl_balance_args`, which `BalanceArgs` mirrors.
    match unsafe { ioctl(fd, Updater::<BALANCE, BalanceArgs>::new(&mut args)) } {
        Ok(()) | Err(Errno::CANCELED) => Ok(args.completed),
        Err(Errno::INPROGRESS | Errno::NOSPC) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Ends what `empty_pieces` is doing, whoever began it, and waits until it has ended; what was moved so far stays moved.
pub fn stop_emptying(fd: impl AsFd) -> io::Result<()> {
    // SAFETY: the argument is a number and not the place of one.
    match unsafe { ioctl(fd, IntegerSetter::<BALANCE_CTL>::new_usize(CANCEL)) } {
        Ok(()) | Err(Errno::NOTCONN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
