//! Diffs of checkpoints against what real overlays showed. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use roost_disk::{DiffSide, DiskPaths, Pool};
use roost_model::{ChangeKind, FileChange};
use roost_sys::mount::{FsContext, MountAttrFlags, UnmountFlags, unmount};
use support::Home;

const LIMIT: u64 = 200 << 20;
const MANY: usize = 10_000;

/// A template, and the roots of sandboxes on top of it.
struct Stage {
    home: Home,
    pool: Pool,
}

impl Stage {
    fn new() -> Self {
        let home = Home::new();
        let pool = home.pool();
        let stage = Self { home, pool };
        for folder in ["a/b/c", "d/e", "f", "mnt"] {
            fs::create_dir_all(stage.lower().join(folder)).unwrap();
        }
        for file in ["a/one", "a/b/two", "a/b/c/three", "d/e/four", "d/five", "six"] {
            fs::write(stage.lower().join(file), format!("template's {file}")).unwrap();
        }
        symlink("six", stage.lower().join("link")).unwrap();
        stage
    }

    fn lower(&self) -> PathBuf {
        self.home.path().join("lower")
    }

    /// Works in the root of a sandbox as it is seen from inside.
    fn inside<T>(&self, disk: &DiskPaths, work: impl FnOnce(&Path) -> T) -> T {
        let merged = self.home.path().join("merged");
        fs::create_dir_all(&merged).unwrap();
        FsContext::open("overlay")
            .and_then(|context| context.option("lowerdir", self.lower()))
            .and_then(|context| context.option("upperdir", &disk.upper))
            .and_then(|context| context.option("workdir", &disk.work))
            .and_then(|context| context.option("index", "off"))
            .and_then(|context| context.option("redirect_dir", "on"))
            .and_then(|context| context.option("metacopy", "off"))
            .and_then(|context| context.option("xino", "on"))
            .and_then(|context| context.create(MountAttrFlags::empty()))
            .and_then(|mount| mount.attach(&merged))
            .unwrap();
        let result = work(&merged);
        unmount(&merged, UnmountFlags::empty()).unwrap();
        result
    }

    fn diff(&self, from: Option<&str>, to: Option<&str>) -> Vec<(String, ChangeKind)> {
        let lower = self.lower();
        let side = |checkpoint| DiffSide { checkpoint, lower: &lower };
        let diff = self.pool.diff(side(from), side(to), MANY).unwrap();
        assert!(!diff.truncated);
        assert!(diff.files.is_sorted_by(|a, b| a.path < b.path));
        diff.files.into_iter().map(|change: FileChange| (change.path, change.kind)).collect()
    }
}

/// All that somebody inside can see of a root, times apart.
fn look(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let kind = data.file_type();
            let content = if kind.is_dir() {
                folders.push(path.clone());
                String::new()
            } else if kind.is_symlink() {
                fs::read_link(&path).unwrap().to_string_lossy().into_owned()
            } else if kind.is_fifo() {
                "fifo".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let name = format!("/{}", path.strip_prefix(root).unwrap().display());
            seen.insert(name, format!("{:o} {} {content}", data.mode(), data.uid()));
        }
    }
    seen
}

fn expected(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Vec<(String, ChangeKind)> {
    let mut changes = BTreeMap::new();
    for (path, before) in from {
        match to.get(path) {
            None => drop(changes.insert(path.clone(), ChangeKind::Removed)),
            Some(after) if after != before => drop(changes.insert(path.clone(), ChangeKind::Changed)),
            Some(_) => {}
        }
    }
    changes.extend(to.keys().filter(|path| !from.contains_key(*path)).map(|path| (path.clone(), ChangeKind::Added)));
    changes.into_iter().collect()
}

/// Something done inside; the numbers choose among paths, and what cannot be done is not.
#[derive(Debug, Clone)]
enum Deed {
    Write(usize, u8),
    Rewrite(usize),
    MakeFolder(usize),
    Remove(usize),
    Move(usize, usize),
    Mode(usize, u32),
    Link(usize, usize),
    Fifo(usize),
    /// Another moment is saved.
    Save,
}

const PATHS: [&str; 20] = [
    "a",
    "a/one",
    "a/b",
    "a/b/two",
    "a/b/c",
    "a/b/c/three",
    "d",
    "d/e",
    "d/e/four",
    "d/five",
    "f",
    "six",
    "link",
    "new",
    "new/x",
    "new/x/y",
    "a/new",
    "a/b/new",
    "f/moved",
    "f/moved/b",
];

fn deed() -> impl Strategy<Value = Deed> {
    let path = || 0..PATHS.len();
    prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, text)| Deed::Write(path, text)),
        1 => path().prop_map(Deed::Rewrite),
        2 => path().prop_map(Deed::MakeFolder),
        3 => path().prop_map(Deed::Remove),
        3 => (path(), path()).prop_map(|(from, to)| Deed::Move(from, to)),
        1 => (path(), 0_u32..4).prop_map(|(path, mode)| Deed::Mode(path, mode)),
        1 => (path(), path()).prop_map(|(path, target)| Deed::Link(path, target)),
        1 => path().prop_map(Deed::Fifo),
        2 => Just(Deed::Save),
    ]
}

fn act(root: &Path, deed: &Deed) {
    let at = |index: &usize| root.join(PATHS[*index]);
    let ignored = match deed {
        Deed::Write(path, text) => {
            let path = at(path);
            if path.symlink_metadata().is_ok_and(|data| !data.is_file()) {
                Ok(())
            } else {
                fs::write(path, format!("{text}"))
            }
        }
        Deed::Rewrite(path) => {
            let path = at(path);
            match path.symlink_metadata() {
                Ok(data) if data.is_file() => fs::read(&path).and_then(|content| fs::write(&path, content)),
                _ => Ok(()),
            }
        }
        Deed::MakeFolder(path) => fs::create_dir(at(path)),
        Deed::Remove(path) => {
            let path = at(path);
            if path.symlink_metadata().is_ok_and(|data| data.is_dir()) {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            }
        }
        Deed::Move(from, to) => fs::rename(at(from), at(to)),
        Deed::Mode(path, mode) => {
            let path = at(path);
            if path.is_symlink() { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(0o700 + mode)) }
        }
        Deed::Link(path, target) => symlink(PATHS[*target], at(path)),
        Deed::Fifo(path) => {
            rustix::fs::mknodat(rustix::fs::CWD, at(path), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
                .map_err(Into::into)
        }
        Deed::Save => Ok(()),
    };
    drop(ignored);
}

#[test]
fn a_diff_is_what_somebody_inside_would_see() {
    let stage = Stage::new();
    let case = std::cell::Cell::new(0);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(deeds in prop::collection::vec(deed(), 1..40))| {
        case.set(case.get() + 1);
        let id = format!("sbx_{}", case.get());
        let disk = stage.pool.create_disk(&id, LIMIT).unwrap();
        let mut moments = vec![(None, stage.inside(&disk, look))];
        for part in deeds.split_inclusive(|deed| matches!(deed, Deed::Save)) {
            let seen = stage.inside(&disk, |root| {
                part.iter().for_each(|deed| act(root, deed));
                look(root)
            });
            let checkpoint = format!("ckp_{}_{}", case.get(), moments.len());
            stage.pool.checkpoint_disk(&id, &checkpoint).unwrap();
            moments.push((Some(checkpoint), seen));
        }
        for (from, before) in &moments {
            for (to, after) in &moments {
                prop_assert_eq!(
                    stage.diff(from.as_deref(), to.as_deref()), expected(before, after), "{:?} {:?}", from, to
                );
            }
        }
        for checkpoint in moments.iter().filter_map(|(checkpoint, _)| checkpoint.as_deref()) {
            stage.pool.delete_checkpoint(checkpoint).unwrap();
        }
        stage.pool.delete_disk(&id).unwrap();
    });
}

#[test]
fn forks_that_write_the_same_moment_are_told_apart() {
    let stage = Stage::new();
    let disk = stage.pool.create_disk("sbx_a", LIMIT).unwrap();
    for index in 0..50 {
        fs::write(disk.upper.join(format!("file{index}")), "0").unwrap();
    }
    let fork = stage.pool.snapshot("sbx_a", "sbx_b", LIMIT).unwrap();
    // The same inode, the same size, the same tick of the clock, as likely as it can be made.
    for index in 0..50 {
        fs::write(disk.upper.join(format!("file{index}")), "1").unwrap();
        fs::write(fork.upper.join(format!("file{index}")), "2").unwrap();
    }
    stage.pool.checkpoint_disk("sbx_a", "ckp_a").unwrap();
    stage.pool.checkpoint_disk("sbx_b", "ckp_b").unwrap();
    assert_eq!(stage.diff(Some("ckp_a"), Some("ckp_b")).len(), 50);
}

#[test]
fn a_diff_has_an_end() {
    let stage = Stage::new();
    let disk = stage.pool.create_disk("sbx_a", LIMIT).unwrap();
    stage.pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    fs::create_dir(disk.upper.join("many")).unwrap();
    for index in 0..5000 {
        fs::write(disk.upper.join(format!("many/{index:04}")), "content").unwrap();
    }
    stage.pool.checkpoint_disk("sbx_a", "ckp_2").unwrap();
    fs::write(disk.upper.join("many/0100"), "changed").unwrap();
    stage.pool.checkpoint_disk("sbx_a", "ckp_3").unwrap();
    let lower = stage.lower();
    let side = |checkpoint| DiffSide { checkpoint: Some(checkpoint), lower: &lower };
    let some = stage.pool.diff(side("ckp_1"), side("ckp_2"), 100).unwrap();
    assert!(some.truncated);
    assert_eq!((some.files.len(), some.files[1].size), (100, 7));
    let all = stage.pool.diff(side("ckp_1"), side("ckp_2"), 5001).unwrap();
    assert_eq!((all.truncated, all.files.len()), (false, 5001));
    let one = stage.pool.diff(side("ckp_2"), side("ckp_3"), 100).unwrap();
    assert_eq!(one.files, [FileChange { path: "/many/0100".into(), kind: ChangeKind::Changed, size: 7 }]);
    // A path longer than any path can be.
    let mut deep = rustix::fs::open(&disk.upper, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    let name = "x".repeat(200);
    for _ in 0..40 {
        rustix::fs::mkdirat(&deep, &name, rustix::fs::Mode::RWXU).unwrap();
        deep = rustix::fs::openat(&deep, &name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    stage.pool.checkpoint_disk("sbx_a", "ckp_4").unwrap();
    let deep = stage.pool.diff(side("ckp_3"), side("ckp_4"), 100).unwrap();
    assert!(deep.truncated && deep.files.len() >= 19, "{}", deep.files.len());
}
