//! Reading a file.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use roost_wire::frame::{HEADER_LEN, Kind};
use roost_wire::{ErrorCode, Failure, FileStat, ReadFile, Reply, StreamEnd};

use super::stat::describe;
use super::{Caller, regular};
use crate::conn::{Conn, ConnError};
use crate::failure::failed_on;
use crate::guest::Guest;

/// Bytes of a frame.
const CHUNK: u64 = 128 * 1024;
/// Most bytes of a file that does not say how many it has; some of `/proc` have as many as there are addresses.
const MOST_UNSIZED: u64 = 64 << 20;

/// Sends a file.
pub(crate) fn read(guest: &Guest, conn: &mut Conn, request: &ReadFile) -> Result<(), ConnError> {
    let (file, stat) = match open(guest, request) {
        Ok(opened) => opened,
        Err(failure) => return conn.answer(Err(failure)),
    };
    let size = stat.size;
    let mut left = most(size, request.offset, request.len);
    // A small file needs a small buffer.
    let room = left.clamp(1, CHUNK);
    conn.queue(Kind::Reply, &Reply::Stat(stat))?;
    let mut buffer = Vec::new();
    let mut count = 0;
    while left > 0 {
        buffer.clear();
        buffer.resize(HEADER_LEN, 0);
        match (&file).take(left.min(room)).read_to_end(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                conn.send_prefixed(Kind::FileData, &mut buffer)?;
                count += length as u64;
                left -= length as u64;
            }
            Err(error) => {
                let failure = unread("read", Path::new(&request.path), size, &error);
                return conn.answer(Err(failure));
            }
        }
    }
    conn.send(Kind::End, &StreamEnd { count, abort: false })
}

fn open(guest: &Guest, request: &ReadFile) -> Result<(File, FileStat), Failure> {
    let caller = Caller::new(guest, request.user.as_deref())?;
    let path = caller.place.resolve(&request.path)?;
    let (mut file, metadata) = regular::open(&path)?;
    let stat = describe(&caller.users, &path, &metadata);
    if request.offset > 0 {
        file.seek(SeekFrom::Start(request.offset)).map_err(|error| unread("seek in", &path, stat.size, &error))?;
    }
    Ok((file, stat))
}

/// How much of a file is read: all that it has now, since a file that grows has no end.
///
/// A file that claims to be empty may be one of `/proc`, whose content is made as it is read.
fn most(size: u64, offset: u64, wanted: Option<u64>) -> u64 {
    let there = if size == 0 { MOST_UNSIZED } else { size.saturating_sub(offset) };
    wanted.map_or(there, |wanted| wanted.min(there))
}

/// Whatever the kernel says about a file of `/proc` or `/sys` is the answer of that file, not a failure of the guest.
fn unread(attempt: &str, path: &Path, size: u64, error: &io::Error) -> Failure {
    let failure = failed_on(attempt, path, error);
    let code = if size == 0 && failure.code == ErrorCode::Internal { ErrorCode::BadRequest } else { failure.code };
    Failure { code, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsized_files_are_bounded_and_others_end_where_they_ended() {
        assert_eq!(most(0, 0, None), MOST_UNSIZED);
        assert_eq!(most(0, 10, Some(5)), 5);
        assert_eq!(most(100, 0, None), 100);
        assert_eq!(most(100, 90, Some(50)), 10);
        assert_eq!(most(100, 200, None), 0);
    }

    #[test]
    fn errors_of_files_without_a_size_are_those_of_the_caller() {
        let error = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        assert_eq!(unread("read", Path::new("/proc/1/mem"), 0, &error).code, ErrorCode::BadRequest);
        assert_eq!(unread("read", Path::new("/file"), 7, &error).code, ErrorCode::Internal);
    }
}
