//! Trees of strangers: deep, wide, unreadable, and changed while they are walked or removed.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;
use roost_sys::tree::{self, At, Descent, Visitor};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, mkdirat, mknodat, openat, renameat_with};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LEVELS: usize = 20_000;

fn open(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Makes folders within one another, deeper than any path, each with a file in it.
fn make_deep(top: &Path, levels: usize) {
    let mut folder = open(top);
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        folder = openat(&folder, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

/// Collects the paths of all entries.
#[derive(Default)]
struct Collect {
    found: Vec<PathBuf>,
    left: Vec<PathBuf>,
    deepest: usize,
}

impl Visitor for Collect {
    type Error = io::Error;

    fn entry(&mut self, at: &At<'_>) -> io::Result<bool> {
        if at.depth < 100 {
            self.found.push(at.path());
        }
        self.deepest = self.deepest.max(at.depth);
        Ok(at.kind == FileType::Directory)
    }

    fn left(&mut self, at: &At<'_>) -> io::Result<()> {
        if at.depth < 100 {
            self.left.push(at.path());
        }
        Ok(())
    }

    fn fault(&mut self, _path: &Path, error: io::Error) -> io::Error {
        error
    }
}

#[test]
fn deep_tree_is_walked_and_removed_with_a_small_stack_and_few_descriptors() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let top = home.path().join("top");
    fs::create_dir(&top).unwrap();
    make_deep(&top, LEVELS);
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
    let visit = move || {
        let mut collect = Collect::default();
        tree::walk(open(&top), &mut collect).unwrap();
        assert_eq!(collect.deepest, LEVELS - 1);
        tree::remove(&top).unwrap();
        assert!(!top.exists());
    };
    thread::Builder::new().stack_size(64 * 1024).spawn(visit).unwrap().join().unwrap();
}

#[test]
fn unreadable_folder_is_removed_by_root() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let top = home.path().join("top");
    fs::create_dir_all(top.join("shut/inner")).unwrap();
    fs::write(top.join("shut/inner/file"), "").unwrap();
    fs::set_permissions(top.join("shut"), fs::Permissions::from_mode(0o000)).unwrap();
    tree::remove(&top).unwrap();
    assert!(!top.exists());
}

#[test]
fn link_is_removed_and_its_target_stays() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (kept, top) = (home.path().join("kept"), home.path().join("top"));
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "kept").unwrap();
    fs::create_dir(&top).unwrap();
    symlink(&kept, top.join("link")).unwrap();
    symlink(&kept, home.path().join("direct")).unwrap();
    tree::remove(&top).unwrap();
    tree::remove(&home.path().join("direct")).unwrap();
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"kept");
    assert_eq!(tree::remove(&top).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn emptied_folder_stays() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::create_dir_all(home.path().join("a/b/c")).unwrap();
    fs::write(home.path().join("a/b/file"), "").unwrap();
    tree::empty(File::open(home.path()).unwrap()).unwrap();
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn mounted_filesystem_is_not_entered() {
    let mut descent = Descent::new(open(Path::new("/"))).unwrap();
    let error = descent.enter(OsStr::new("proc")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::XDEV.raw_os_error()));
    assert!(descent.leave().is_err(), "nothing is above the top");
}

#[test]
fn folder_that_was_moved_away_is_not_left_into_another() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::create_dir_all(home.path().join("top/inner")).unwrap();
    let mut descent = Descent::new(open(&home.path().join("top"))).unwrap();
    descent.enter(OsStr::new("inner")).unwrap();
    fs::rename(home.path().join("top/inner"), home.path().join("elsewhere")).unwrap();
    assert!(descent.leave().is_err());
}

#[test]
fn swapped_folder_leads_no_removal_out_of_the_tree() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let (kept, top, link) = (home.path().join("kept"), home.path().join("top"), home.path().join("link"));
    fs::create_dir_all(kept.join("inner")).unwrap();
    fs::write(kept.join("inner/file"), "kept").unwrap();
    symlink(&kept, &link).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Fails whenever the removal was quicker.
                renameat_with(CWD, &link, CWD, top.join("victim"), RenameFlags::EXCHANGE).ok();
            }
        });
        for _ in 0..300 {
            if link.symlink_metadata().is_ok_and(|link| link.is_dir()) {
                tree::remove(&link).ok();
            }
            if link.symlink_metadata().is_err() {
                symlink(&kept, &link).unwrap();
            }
            fs::create_dir_all(top.join("victim/inner")).ok();
            fs::write(top.join("victim/file"), "").ok();
            tree::remove(&top).ok();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read(kept.join("inner/file")).unwrap(), b"kept");
}

#[derive(Debug, Clone)]
enum Node {
    File,
    Link,
    Fifo,
    Folder(u32, Vec<Node>),
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let leaf = prop_oneof![Just(Node::File), Just(Node::Link), Just(Node::Fifo)];
    let node = leaf.prop_recursive(6, 64, 8, |inner| {
        let mode = prop_oneof![Just(0), Just(0o500), Just(0o755)];
        (mode, prop::collection::vec(inner, 0..8)).prop_map(|(mode, below)| Node::Folder(mode, below))
    });
    prop::collection::vec(node, 0..8)
}

/// Makes the nodes and returns their paths.
fn make(top: &Path, below: &Path, nodes: &[Node], kept: &Path, paths: &mut BTreeSet<PathBuf>) {
    for (number, node) in nodes.iter().enumerate() {
        let name = below.join(format!("{}{number}", "n".repeat(number * 30)));
        let path = top.join(&name);
        match node {
            Node::File => fs::write(&path, "x").unwrap(),
            Node::Link => symlink(kept, &path).unwrap(),
            Node::Fifo => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            Node::Folder(mode, inner) => {
                fs::create_dir(&path).unwrap();
                make(top, &name, inner, kept, paths);
                fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
        paths.insert(name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_tree_is_walked_once_and_removed_whole(nodes in nodes()) {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let (kept, top) = (home.path().join("kept"), home.path().join("top"));
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
        fs::create_dir(&top).unwrap();
        let mut paths = BTreeSet::new();
        make(&top, Path::new(""), &nodes, &kept, &mut paths);

        let mut collect = Collect::default();
        tree::walk(open(&top), &mut collect).unwrap();
        prop_assert_eq!(collect.found.len(), paths.len());
        prop_assert_eq!(collect.found.iter().cloned().collect::<BTreeSet<_>>(), paths);
        for path in &collect.left {
            prop_assert!(top.join(path).is_dir());
        }

        tree::remove(&top).unwrap();
        prop_assert!(top.symlink_metadata().is_err());
        prop_assert_eq!(fs::read(kept.join("file")).unwrap(), b"kept");
    }
}
