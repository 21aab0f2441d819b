//! Making many files durable at once.
//!
//! Each sync of a file costs a commit of the filesystem's journal or, right after one, a flush of the device. Asked for
//! side by side they share both. An image of 64 MiB in a hundred files, written out behind the dump, on ext4: 17 ms one
//! after the other, 12 with all write-out begun before, 9 with that and eight at a time; sixteen are no quicker.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use roost_sys::writeback;

const AT_A_TIME: usize = 8;

/// Makes these files and folders durable; says which could not be.
pub(super) fn sync_all(paths: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
    let mut open = Vec::with_capacity(paths.len());
    for path in paths {
        let file = File::open(path).map_err(|error| (path.clone(), error))?;
        // A help, no duty: a folder has nothing to write out, and the sync below says what is wrong.
        drop(writeback::start(&file, 0, 0));
        open.push((path.as_path(), file));
    }
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || work_off(&open, &next, &failed);
    std::thread::scope(|scope| {
        for _ in 1..AT_A_TIME.min(open.len()) {
            // Without a thread more it only takes longer.
            drop(std::thread::Builder::new().name("image-sync".to_owned()).spawn_scoped(scope, work));
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(()),
        Some(failure) => Err(failure),
    }
}

fn work_off(open: &[(&Path, File)], next: &AtomicUsize, failed: &Mutex<Option<(PathBuf, io::Error)>>) {
    while let Some((path, file)) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
        if let Err(error) = file.sync_all() {
            failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| (path.to_path_buf(), error));
        }
    }
}
