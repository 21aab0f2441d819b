//! Reading a file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use roost_wire::frame::{HEADER_LEN, Kind};
use roost_wire::{ErrorCode, Failure, FileStat, ReadFile, Reply, StreamEnd};

use super::Caller;
use super::stat::describe;
use crate::conn::{Conn, ConnError};
use crate::failure::{bad_request, failed_on};
use crate::guest::Guest;

/// Bytes of a frame.
const CHUNK: u64 = 128 * 1024;

/// Sends a file.
pub(crate) fn read(guest: &Guest, conn: &mut Conn, request: &ReadFile) -> Result<(), ConnError> {
    let (file, stat) = match open(guest, request) {
        Ok(opened) => opened,
        Err(failure) => return conn.answer(Err(failure)),
    };
    let mut left = request.len.unwrap_or(u64::MAX);
    // A small file needs a small buffer; one that claims to be empty may be a file of `/proc`.
    let guess = if stat.size == 0 { CHUNK } else { stat.size.saturating_sub(request.offset) };
    let room = left.min(guess).clamp(1, CHUNK);
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
                let failure = failed_on("read", std::path::Path::new(&request.path), &error);
                return conn.answer(Err(failure));
            }
        }
    }
    conn.send(Kind::End, &StreamEnd { count, abort: false })
}

fn open(guest: &Guest, request: &ReadFile) -> Result<(File, FileStat), Failure> {
    let caller = Caller::new(guest, request.user.as_deref())?;
    let path = caller.place.resolve(&request.path)?;
    let metadata = std::fs::metadata(&path).map_err(|error| failed_on("open", &path, &error))?;
    let stat = describe(&caller.users, &path, &metadata);
    if metadata.is_dir() {
        return Err(Failure::new(ErrorCode::IsADirectory, format!("`{}` is a folder", path.display())));
    }
    use std::os::unix::fs::FileTypeExt;
    if metadata.file_type().is_fifo() || metadata.file_type().is_socket() {
        // Opening a pipe waits for its other side, which may never come.
        return Err(bad_request(format!("`{}` is a pipe or a socket", path.display())));
    }
    let mut file = File::open(&path).map_err(|error| failed_on("open", &path, &error))?;
    if request.offset > 0 {
        file.seek(SeekFrom::Start(request.offset)).map_err(|error| failed_on("seek in", &path, &error))?;
    }
    Ok((file, stat))
}
