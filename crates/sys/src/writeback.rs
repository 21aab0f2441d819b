//! Starting to write a file out before anybody waits for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Begins to write out the dirty pages of a range, without waiting for them and without any promise of durability.
pub fn start(file: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: a plain system call on a descriptor that is open for as long as the borrow lasts.
    let result =
        unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
