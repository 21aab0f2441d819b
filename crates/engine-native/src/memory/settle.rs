//! Brings a frozen sandbox to a point at which it can be saved, and finds what stands in the way.
//!
//! - A process that waits in `vfork` for its child to execute cannot be stopped where it is. It goes on for a moment, until
//!   it is frozen elsewhere.
//! - A file of the template that was removed or replaced while it is open, as every upgrade of a library does, still counts
//!   a name: the one in the template. CRIU finds out that it has none when it tries to give it one, which it has to be
//!   allowed to. A file that really has another name would get one as well, which is gone before the disk is saved: that
//!   one cannot be saved.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use roost_model::SavedProcess;
use roost_sys::cgroup::Group;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::contents::saved_process;

/// A program that does nothing else than start others is stopped between two of them within this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it goes on each time: a child executes well within it.
const MOMENT: Duration = Duration::from_millis(2);
/// Where the kernel says a process sleeps that waits in `vfork`.
const IN_VFORK: [&str; 2] = ["kernel_clone", "wait_for_vfork_done"];
const DELETED: &str = " (deleted)";
/// The unit in which the kernel counts blocks of a file, in bytes.
const BLOCK: u64 = 512;
/// In the sandbox's root, for the moment between two system calls.
const TRIAL_NAME: &str = ".roost-trial-of-a-link";

/// Freezes the group at a moment at which nobody in it waits in `vfork`; or says who never stopped doing so.
pub(super) fn leave_vfork(group: &Group) -> io::Result<Option<SavedProcess>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = group.pids().map_err(io::Error::other)?;
        let Some(waiting) = pids.into_iter().find(|pid| waits_in_vfork(*pid)) else { return Ok(None) };
        if Instant::now() > deadline {
            return Ok(saved_process(waiting));
        }
        group.thaw().map_err(io::Error::other)?;
        std::thread::sleep(MOMENT);
        group.freeze().map_err(io::Error::other)?;
    }
}

fn waits_in_vfork(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let place = fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
        IN_VFORK.iter().any(|name| place.starts_with(name))
    })
}

/// What is open without a name although the filesystem counts one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Nameless {
    /// Nothing is.
    None,
    /// Only files of the template.
    OfTemplate,
    /// Something that has another name, in the hands of this process (the host's number).
    Linked(u32),
}

/// Looks through the files that the processes have open. Returns the bytes of those that were deleted, too.
pub(super) fn nameless_files(first: u32, processes: impl Iterator<Item = u32>) -> io::Result<(Nameless, u64)> {
    let root = PathBuf::from(format!("/proc/{first}/root"));
    let device = fs::metadata(&root)?.dev();
    let (mut seen, mut nameless, mut bytes) = (BTreeSet::new(), Nameless::None, 0_u64);
    for pid in processes {
        for path in deleted_files(pid) {
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.dev() != device || !found.is_file() || !seen.insert(found.ino()) {
                continue;
            }
            // Blocks that are shared with another file are copied all the same; holes are not.
            bytes = bytes.saturating_add(found.blocks().saturating_mul(BLOCK));
            if found.nlink() > 0 {
                if can_be_linked(&path, &root)? {
                    return Ok((Nameless::Linked(pid), bytes));
                }
                nameless = Nameless::OfTemplate;
            }
        }
    }
    Ok((nameless, bytes))
}

/// Whether the kernel gives an open file another name, which it does not when there is none left.
fn can_be_linked(file: &Path, root: &Path) -> io::Result<bool> {
    let file = rustix::fs::openat(CWD, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let root = rustix::fs::openat(CWD, root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::fs::linkat(&file, "", &root, TRIAL_NAME, AtFlags::EMPTY_PATH) {
        Ok(()) => {
            rustix::fs::unlinkat(&root, TRIAL_NAME, AtFlags::empty())?;
            Ok(true)
        }
        Err(Errno::NOENT) => Ok(false),
        // Left by a daemon that was killed at this very point.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(&root, TRIAL_NAME, AtFlags::empty())?;
            Ok(true)
        }
        Err(e) => Err(e.into()),
    }
}

/// What a process has open or mapped, or is, that has no name any more; by the kernel's own links to it.
fn deleted_files(pid: u32) -> Vec<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut links = vec![process.join("exe")];
    if let Ok(open) = fs::read_dir(process.join("fd")) {
        links.extend(open.flatten().map(|entry| entry.path()));
    }
    links.retain(|link| is_deleted(link));
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    links.extend(maps.lines().filter(|line| line.ends_with(DELETED)).filter_map(|line| {
        let (range, _) = line.split_once(' ')?;
        Some(process.join("map_files").join(unpadded(range)?))
    }));
    links
}

fn is_deleted(link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|target| target.to_string_lossy().ends_with(DELETED))
}

/// A range of addresses as the kernel names it in `map_files`: without the zeros that `maps` puts before short ones.
fn unpadded(range: &str) -> Option<String> {
    let (from, to) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(format!("{:x}-{:x}", number(from)?, number(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_files_of_a_process_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let held = fs::File::open(&path).unwrap();
        let inode = held.metadata().unwrap().ino();
        let has_it = || {
            let found = deleted_files(std::process::id());
            found.iter().any(|link| fs::metadata(link).is_ok_and(|file| file.ino() == inode))
        };
        assert!(!has_it());
        fs::remove_file(&path).unwrap();
        assert!(has_it());
    }

    #[test]
    fn ranges_are_named_as_the_kernel_does() {
        assert_eq!(unpadded("00400000-00452000").as_deref(), Some("400000-452000"));
        assert_eq!(unpadded("nonsense"), None);
    }
}
