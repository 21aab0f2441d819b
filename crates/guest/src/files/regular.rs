//! Opening files that a path of a call names.
//!
//! A path may lead to anything: a pipe, whose opening waits for its other side, or a terminal, which never ends. A call reads
//! regular files only. It writes devices too, but nothing that has another side.

use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use roost_wire::{ErrorCode, Failure};
use rustix::fs::OFlags;

use crate::failure::{bad_request, failed_on};

/// Opens a regular file to read, without waiting for anything.
pub(super) fn open(path: &Path) -> Result<(File, Metadata), Failure> {
    // The opening of a device can do things already, so the path is looked at first.
    let metadata = fs::metadata(path).map_err(|error| failed_on("open", path, &error))?;
    check(path, &metadata)?;
    let file = OpenOptions::new().read(true).custom_flags(no_waiting()).open(path);
    let file = file.map_err(|error| failed_on("open", path, &error))?;
    // Another file may be there since.
    let metadata = file.metadata().map_err(|error| failed_on("look at", path, &error))?;
    check(path, &metadata)?;
    Ok((file, metadata))
}

/// Refuses to write folders, pipes and sockets.
pub(super) fn check_writable(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    let kind = metadata.file_type();
    if kind.is_char_device() || kind.is_block_device() { Ok(()) } else { check(path, metadata) }
}

/// The flags by which an opening waits for nothing, and makes no terminal the guest's own.
pub(super) fn no_waiting() -> i32 {
    (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed()
}

/// Refuses folders, pipes, sockets and devices.
fn check(path: &Path, metadata: &Metadata) -> Result<(), Failure> {
    if metadata.is_dir() {
        return Err(Failure::new(ErrorCode::IsADirectory, format!("`{}` is a folder", path.display())));
    }
    if metadata.is_file() {
        return Ok(());
    }
    Err(bad_request(format!("`{}` is a pipe, a socket or a device, not a regular file", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [file, pipe, socket, link] = ["file", "pipe", "socket", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "text").unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink("/dev/ptmx", &link).unwrap();
        assert!(open(&file).is_ok());
        assert!(open(Path::new("/proc/self/status")).is_ok());
        for path in [pipe.as_path(), &socket, &link, Path::new("/dev/ptmx"), Path::new("/dev/zero")] {
            assert_eq!(open(path).unwrap_err().code, ErrorCode::BadRequest, "{}", path.display());
        }
        for (path, writable) in
            [(pipe.as_path(), false), (&socket, false), (&file, true), (Path::new("/dev/null"), true)]
        {
            assert_eq!(check_writable(path, &fs::metadata(path).unwrap()).is_ok(), writable, "{}", path.display());
        }
        assert_eq!(open(folder.path()).unwrap_err().code, ErrorCode::IsADirectory);
        assert_eq!(open(&folder.path().join("none")).unwrap_err().code, ErrorCode::PathNotFound);
    }
}
