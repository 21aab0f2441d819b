//! What the machine's death leaves: its disk as it is at one moment, opened again elsewhere. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use roost_disk::{Image, Maker, Pool, PoolConfig, Replacement};
use support::{Home, Machine};

const LIMIT: u64 = 50 << 20;

fn file(folder: &Path) -> String {
    fs::read_to_string(folder.join("file")).unwrap()
}

fn maker() -> Maker {
    Maker { engine: "native".into(), version: "1".into(), cpu: String::new() }
}

/// What each file of an image holds tells which image it is of.
fn expected(image: &str) -> Vec<(String, Vec<u8>)> {
    let pages = image.bytes().cycle().take(3 << 20).collect();
    let small = (0..20).map(|index| (format!("core-{index}.img"), format!("process {index} of {image}").into_bytes()));
    small.chain([("pages-1.img".to_owned(), pages)]).collect()
}

fn dump(memory: &Path, image: &str) {
    for (name, content) in expected(image) {
        fs::write(memory.join(name), content).unwrap();
    }
}

fn assert_whole(image: &Image, name: &str) {
    for (file, content) in expected(name) {
        assert!(fs::read(image.memory().join(&file)).unwrap() == content, "`{file}` of `{name}`");
    }
}

fn checkpoint(pool: &Pool, id: &str) {
    let mut staged = pool.stage().unwrap();
    dump(&staged.memory().unwrap(), id);
    staged.snapshot_disk(pool, "sbx_a").unwrap();
    staged.finish_image(&maker()).unwrap();
    staged.commit_checkpoint(id).unwrap();
}

/// Everything that is on the device at this moment, and nothing of what is only in memory.
fn pull_the_plug(home: &Home) -> Home {
    let after = Home::new();
    fs::create_dir(after.data()).unwrap();
    fs::copy(home.data().join("pool.btrfs"), after.data().join("pool.btrfs")).unwrap();
    after
}

#[test]
fn a_replacement_survives_the_death_of_the_machine() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "old").unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_a").unwrap();
    fs::write(disk.upper.join("file"), "new").unwrap();
    let with_checkpoint = pull_the_plug(&home);
    pool.replace_disk("sbx_a", "ckp_a", LIMIT).unwrap();
    let with_replacement = pull_the_plug(&home);
    pool.undo_replace("sbx_a").unwrap();
    let unfinished = pool.stage().unwrap();
    unfinished.snapshot_disk(&pool, "sbx_a").unwrap();
    let with_leftover = pull_the_plug(&home);
    drop(unfinished);
    // Two filesystems of one identity are not mounted side by side.
    pool.close().unwrap();

    let pool = with_checkpoint.pool();
    assert_eq!(file(&pool.checkpoint("ckp_a").unwrap().upper()), "old");
    pool.close().unwrap();

    let pool = with_replacement.pool();
    assert_eq!(pool.replacement("sbx_a").unwrap(), Some(Replacement::Replaced));
    assert_eq!(file(&pool.disk("sbx_a").unwrap().upper), "old");
    pool.close().unwrap();

    let pool = with_leftover.pool();
    assert_eq!(fs::read_dir(pool.root().join("staging")).unwrap().count(), 0);
    assert_eq!(pool.replacement("sbx_a").unwrap(), None);
    assert_eq!(pool.list_checkpoints().unwrap(), ["ckp_a"]);
    pool.close().unwrap();
}

/// One thing that was done, with its place in the order of all that was begun and done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Saved,
    Deleting,
}

/// The device as it was at one moment between two lengths of the diary.
struct Death {
    device: PathBuf,
    before: usize,
    after: usize,
}

/// Saves, copies and deletes, writing down what is done when it is done and what goes before it goes.
fn live(pool: &Pool, diary: &Mutex<Vec<(Step, String)>>) {
    let write = |step, what: &str| diary.lock().unwrap().push((step, what.to_owned()));
    for round in 0..6 {
        let (image, moment) = (format!("img_{round}"), format!("ckp_{round}"));
        let mut staged = pool.stage_image().unwrap();
        dump(&staged.memory(), &image);
        staged.finish(&maker()).unwrap();
        staged.commit(&image).unwrap();
        write(Step::Saved, &image);
        checkpoint(pool, &moment);
        write(Step::Saved, &moment);
        if round % 2 == 1 {
            for old in [format!("img_{}", round - 1), format!("ckp_{}", round - 1)] {
                write(Step::Deleting, &old);
                pool.delete_checkpoint(&old).unwrap();
            }
        }
    }
}

/// Everything that must be there, given how far the diary had certainly and how far it had possibly got.
fn must_be_there(diary: &[(Step, String)], death: &Death) -> BTreeSet<String> {
    let of =
        |step, upto: usize| diary[..upto].iter().filter(move |entry| entry.0 == step).map(|(_, what)| what.clone());
    let going: BTreeSet<String> = of(Step::Deleting, death.after).collect();
    of(Step::Saved, death.before).filter(|what| !going.contains(what)).collect()
}

fn look_after(home: &Home, kind: &str, death: &Death, diary: &[(Step, String)]) {
    let machine = Machine::start(home, &death.device, kind);
    let pool = machine.pool();
    let mut found = BTreeSet::new();
    for name in pool.list_images().unwrap() {
        assert_whole(&pool.image(&name).unwrap(), &name);
        found.extend(name.starts_with("img").then_some(name));
    }
    for name in pool.list_checkpoints().unwrap() {
        let checkpoint = pool.checkpoint(&name).unwrap();
        assert_eq!(file(&checkpoint.upper()), "files");
        assert_whole(&checkpoint.image().unwrap().unwrap(), &name);
        found.insert(name);
    }
    let missing: Vec<_> = must_be_there(diary, death).difference(&found).cloned().collect();
    assert!(missing.is_empty(), "{missing:?} were saved and are gone after entry {}", death.before);
    for staging in [pool.root().join("staging"), machine.data().join("images/.staging")] {
        assert_eq!(fs::read_dir(staging).unwrap().count(), 0);
    }
    machine.stop(pool);
}

/// Lets the machine die at many moments while images and checkpoints come and go.
fn dies_anywhere(kind: &str) {
    const MOST: usize = 10;
    let home = Home::new();
    // Only as a filesystem that copies a file at once.
    let outer = Pool::open(&PoolConfig { size: Some(2 << 30), ..home.pool_config() }).unwrap();
    let device = outer.root().join("device");
    Machine::format(&device, kind, 320 << 20);
    let machine = Machine::start(&home, &device, kind);
    let pool = machine.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "files").unwrap();

    let diary = Mutex::new(Vec::new());
    let mut deaths = Vec::new();
    std::thread::scope(|scope| {
        let life = scope.spawn(|| live(&pool, &diary));
        loop {
            let last = life.is_finished();
            let copy = outer.root().join(format!("device-{}", deaths.len()));
            let before = diary.lock().unwrap().len();
            rustix::fs::ioctl_ficlone(File::create(&copy).unwrap(), File::open(&device).unwrap()).unwrap();
            deaths.push(Death { device: copy, before, after: diary.lock().unwrap().len() });
            if last {
                break;
            }
        }
        life.join().unwrap();
    });
    // Filesystems of one identity are not mounted side by side.
    machine.stop(pool);
    let diary = diary.into_inner().unwrap();
    let apart = deaths.len().div_ceil(MOST);
    for death in deaths.iter().rev().step_by(apart) {
        look_after(&home, kind, death, &diary);
    }
}

/// A sandbox of another daemon that starts at this moment copies the host's mounts into a namespace of its own.
#[test]
fn machine_unmounts_while_another_namespace_copies_the_hosts_mounts() {
    // Started in the host's namespace; copies it when told to.
    let mut copier = Command::new("sh")
        .args(["-c", "read _; exec unshare --mount sh -c 'echo ready; read _'"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = copier.stdin.take().unwrap();

    let home = Home::new();
    let device = home.path().join("device");
    Machine::format(&device, "ext4", 320 << 20);
    let machine = Machine::start(&home, &device, "ext4");
    writeln!(orders, "copy").unwrap();
    let mut ready = String::new();
    BufReader::new(copier.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    let pool = machine.pool();
    machine.stop(pool);
    let backing = format!("{}", device.display());
    let attached = fs::read_dir("/sys/block")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path().join("loop/backing_file")).ok());
    assert!(!attached.into_iter().any(|file| file.trim() == backing), "the file system is still mounted somewhere");
    drop(orders);
    copier.wait().unwrap();
}

#[test]
fn whoever_dies_anywhere_on_ext4_finds_images_whole_or_absent() {
    dies_anywhere("ext4");
}

#[test]
fn whoever_dies_anywhere_on_btrfs_finds_images_whole_or_absent() {
    dies_anywhere("btrfs");
}
