//! Paths of what is watched by inotify.
//!
//! The kernel tells of a watch by device and inode only, and CRIU cannot open an inode of an overlay by its number. So the
//! paths are searched for before it is asked to save them, near the watching processes first.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::launch::WatchedPath;

/// A sandbox is not kept frozen longer than this for the sake of its watches.
const TIME: Duration = Duration::from_secs(10);
/// Where people work, after the folders that the watching processes are in.
const LIKELY: [&str; 5] = ["/home", "/root", "/srv", "/tmp", "/etc"];

/// Finds the paths of everything on the root that the processes (the host's numbers) watch.
pub(super) fn watched_paths(first: u32, processes: impl Iterator<Item = u32>) -> io::Result<Vec<WatchedPath>> {
    let root = PathBuf::from(format!("/proc/{first}/root"));
    let device = fs::metadata(&root)?.dev();
    let mut wanted = BTreeSet::new();
    let mut places = Vec::new();
    for pid in processes {
        let before = wanted.len();
        wanted.extend(watches(pid, device));
        if wanted.len() > before {
            places.extend(fs::read_link(format!("/proc/{pid}/cwd")));
        }
    }
    places.extend(LIKELY.map(PathBuf::from));
    places.push("/".into());
    Ok(Search { root, device, wanted, found: Vec::new(), deadline: Instant::now() + TIME }.run(&places))
}

/// Inodes on `device` that a process watches.
fn watches(pid: u32, device: u64) -> Vec<u64> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let mut inodes = Vec::new();
    for descriptor in descriptors.flatten() {
        if !fs::read_link(descriptor.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:inotify") {
            continue;
        }
        let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(descriptor.file_name());
        let info = fs::read_to_string(info).unwrap_or_default();
        inodes.extend(info.lines().filter_map(parse_watch).filter(|(at, _)| *at == device).map(|(_, inode)| inode));
    }
    inodes
}

/// Device and inode of a line such as `inotify wd:1 ino:1f4 sdev:31 mask:100 …`.
fn parse_watch(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("inotify ")?;
    let field = |name: &str| {
        let value = rest.split_whitespace().find_map(|field| field.strip_prefix(name))?;
        u64::from_str_radix(value, 16).ok()
    };
    // The kernel's own encoding here: 20 bits of minor number.
    let number = field("sdev:")?;
    let (major, minor) = (u32::try_from(number >> 20).ok()?, u32::try_from(number & 0xf_ffff).ok()?);
    Some((rustix::fs::makedev(major, minor), field("ino:")?))
}

struct Search {
    root: PathBuf,
    device: u64,
    wanted: BTreeSet<u64>,
    found: Vec<WatchedPath>,
    deadline: Instant,
}

impl Search {
    fn run(mut self, places: &[PathBuf]) -> Vec<WatchedPath> {
        for place in places {
            if self.wanted.is_empty() {
                break;
            }
            self.look(place);
            self.descend(place.clone());
        }
        self.found
    }

    /// Breadth first: what is watched is seldom deep.
    fn descend(&mut self, from: PathBuf) {
        let mut folders = VecDeque::from([from]);
        while let Some(folder) = folders.pop_front() {
            if self.wanted.is_empty() || Instant::now() > self.deadline {
                return;
            }
            let Ok(entries) = fs::read_dir(self.outside(&folder)) else { continue };
            for entry in entries.flatten() {
                let path = folder.join(entry.file_name());
                if self.look(&path) {
                    folders.push_back(path);
                }
            }
        }
    }

    /// Whether it is a folder on the root's own filesystem; a symlink is none.
    fn look(&mut self, path: &Path) -> bool {
        let Ok(found) = fs::symlink_metadata(self.outside(path)) else { return false };
        if found.dev() != self.device {
            return false;
        }
        if self.wanted.remove(&found.ino())
            && let Some(text) = path.to_str()
        {
            let (major, minor) = (rustix::fs::major(self.device), rustix::fs::minor(self.device));
            self.found.push(WatchedPath { device: major << 20 | minor, inode: found.ino(), path: text.to_owned() });
        }
        found.is_dir()
    }

    fn outside(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        let line =
            "inotify wd:1 ino:1f4 sdev:100031 mask:100 ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:00";
        assert_eq!(parse_watch(line), Some((rustix::fs::makedev(1, 0x31), 0x1f4)));
        assert_eq!(parse_watch("pos:\t0"), None);
    }

    #[test]
    fn paths_are_found_by_inode() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        fs::write(folder.path().join("a/b/file"), "x").unwrap();
        let (root, device) = (folder.path().to_owned(), fs::metadata(folder.path()).unwrap().dev());
        let inode = |path: &str| fs::metadata(folder.path().join(path)).unwrap().ino();
        let wanted = BTreeSet::from([inode("a/b"), inode("a/b/file"), u64::MAX]);
        let search = Search { root, device, wanted, found: Vec::new(), deadline: Instant::now() + TIME };
        let mut paths: Vec<String> = search.run(&["/".into()]).into_iter().map(|found| found.path).collect();
        paths.sort();
        assert_eq!(paths, ["/a/b", "/a/b/file"]);
    }
}
