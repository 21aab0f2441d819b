//! The log of hooks: one file and the one before it, neither larger than a limit.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::exec::now_ms;

const NAME: &str = "roost-hooks.log";
const OLD_NAME: &str = "roost-hooks.log.1";
const LIMIT: u64 = 256 * 1024;

/// Where hooks are written about.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    old_path: PathBuf,
}

impl Log {
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join(NAME), old_path: folder.join(OLD_NAME) }
    }

    /// Writes a heading with time and duration, and below it what a hook wrote.
    pub(super) fn add(&self, heading: &str, took: Duration, output: &[u8]) -> io::Result<()> {
        // `date -d` reads the time.
        let mut entry = format!("@{} {heading} in {} ms\n", now_ms() / 1000, took.as_millis()).into_bytes();
        entry.extend_from_slice(output);
        if !entry.ends_with(b"\n") {
            entry.push(b'\n');
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let length = fs::metadata(&self.path).map_or(0, |found| found.len());
        if length > 0 && length + entry.len() as u64 > LIMIT {
            fs::rename(&self.path, &self.old_path)?;
        }
        OpenOptions::new().create(true).append(true).open(&self.path)?.write_all(&entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_small() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::new(&folder.path().join("log"));
        for number in 0..100 {
            log.add(&format!("hook {number}"), Duration::from_millis(7), &[b'x'; 10_000]).unwrap();
        }
        let text = fs::read_to_string(&log.path).unwrap();
        assert!(text.contains(" hook 99 in 7 ms\nxxx"));
        for path in [&log.path, &log.old_path] {
            assert!(fs::metadata(path).unwrap().len() <= LIMIT);
        }
        assert_eq!(fs::read_dir(log.path.parent().unwrap()).unwrap().count(), 2);
    }
}
