//! Memory images for real: whole or absent, verified, refused. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::cell::Cell;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Barrier;

use roost_disk::{Depth, Image, ImageError, Maker, Pool, PoolConfig, Staged};
use roost_sys::btrfs;
use rustix::fs::{Mode, OFlags, openat};
use support::{Home, Machine};

const MIB: u64 = 1 << 20;

fn maker() -> Maker {
    Maker { engine: "native".into(), version: "1".into(), cpu: "avx".into() }
}

/// A small dump: a description and a file of pages.
fn dump(memory: &Path) {
    fs::write(memory.join("core-1.img"), "registers").unwrap();
    fs::write(memory.join("pages-1.img"), vec![7_u8; 2 * MIB as usize]).unwrap();
}

fn save(pool: &Pool, id: &str) -> Image {
    let mut staged = pool.stage_image().unwrap();
    dump(&staged.memory());
    staged.finish(&maker()).unwrap();
    staged.commit(id).unwrap()
}

fn staging_is_empty(home: &Home) -> bool {
    [home.images().join(".staging"), home.data().join("pool/staging")]
        .iter()
        .all(|staging| fs::read_dir(staging).unwrap().next().is_none())
}

#[test]
fn an_image_is_found_again_as_it_was_saved() {
    let home = Home::new();
    let pool = home.pool();
    let saved = save(&pool, "img_a");
    assert_eq!(saved.bytes(), 2 * MIB + 9);
    assert!(staging_is_empty(&home));
    pool.close().unwrap();

    let pool = home.pool();
    assert_eq!(pool.list_images().unwrap(), ["img_a"]);
    let image = pool.image("img_a").unwrap();
    assert_eq!((image.bytes(), image.maker(), image.created_at()), (saved.bytes(), &maker(), saved.created_at()));
    assert_eq!(fs::read(image.memory().join("core-1.img")).unwrap(), b"registers");
    image.check_maker(&maker()).unwrap();

    let mut taken = pool.stage_image().unwrap();
    dump(&taken.memory());
    taken.finish(&maker()).unwrap();
    assert!(matches!(taken.commit("img_a"), Err(ImageError::Exists { .. })));
    assert!(staging_is_empty(&home));

    for _ in 0..2 {
        pool.delete_image("img_a").unwrap();
    }
    assert!(matches!(pool.image("img_a"), Err(ImageError::NotFound { .. })));
    assert!(pool.list_images().unwrap().is_empty() && staging_is_empty(&home));
    assert!(matches!(pool.image("../img_a"), Err(ImageError::InvalidId { .. })));
    assert!(matches!(pool.delete_image(".."), Err(ImageError::InvalidId { .. })));
}

#[test]
fn what_is_not_committed_is_gone() {
    let home = Home::new();
    let pool = home.pool();
    let dropped = pool.stage_image().unwrap();
    dump(&dropped.memory());
    drop(dropped);
    assert!(staging_is_empty(&home));

    let unfinished = pool.stage_image().unwrap();
    dump(&unfinished.memory());
    assert!(unfinished.commit("img_a").is_err(), "nothing describes it");
    let mut strange = pool.stage_image().unwrap();
    fs::create_dir(strange.memory().join("folder")).unwrap();
    assert!(strange.finish(&maker()).is_err(), "an engine writes plain files");
    drop(strange);
    assert!(staging_is_empty(&home) && pool.list_images().unwrap().is_empty());
}

#[test]
fn what_a_kill_leaves_is_swept_unless_somebody_is_at_it() {
    let home = Home::new();
    let pool = home.pool();
    pool.create_disk("sbx_a", 20 * MIB).unwrap();
    let mut alive = pool.stage_image().unwrap();
    dump(&alive.memory());
    // In mid-dump, right before the rename, and in mid-deletion.
    let staging = home.images().join(".staging");
    fs::create_dir_all(staging.join("dumping/memory")).unwrap();
    fs::write(staging.join("dumping/memory/half"), "x").unwrap();
    save(&pool, "img_a");
    fs::rename(home.images().join("img_a"), staging.join("described")).unwrap();
    save(&pool, "img_b");
    fs::rename(home.images().join("img_b"), staging.join("doomed")).unwrap();
    fs::remove_file(staging.join("doomed/manifest.json")).unwrap();
    // In the pool: in mid-snapshot and in mid-deletion, of this version and of those that kept images there.
    let leftover = pool.root().join("staging/killed");
    fs::create_dir_all(leftover.join("doomed")).unwrap();
    let folder = fs::File::open(&leftover).unwrap();
    let doomed = fs::File::open(leftover.join("doomed")).unwrap();
    btrfs::create_subvolume(&folder, "image".as_ref()).unwrap();
    fs::write(leftover.join("image/half"), "x").unwrap();
    let image = fs::File::open(leftover.join("image")).unwrap();
    btrfs::create_read_only_snapshot(&image, &folder, "flush".as_ref()).unwrap();
    btrfs::create_read_only_snapshot(&image, &doomed, "disk".as_ref()).unwrap();
    fs::write(leftover.join("doomed/checkpoint.json"), "{}").unwrap();
    drop((folder, doomed, image));

    let again = home.pool();
    assert!(!leftover.exists(), "a sweep takes what nobody holds");
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 1, "and leaves what somebody does");
    alive.finish(&maker()).unwrap();
    alive.commit("img_alive").unwrap();
    assert_eq!(again.list_images().unwrap(), ["img_alive"]);
    assert!(staging_is_empty(&home));
}

#[test]
fn a_dump_that_goes_on_after_its_daemon_ends_with_its_folder() {
    let home = Home::new();
    drop(home.pool());
    for round in 0..20 {
        let memory = home.images().join(format!(".staging/killed-{round}/memory"));
        fs::create_dir_all(&memory).unwrap();
        let folder = fs::File::open(&memory).unwrap();
        let begun = Barrier::new(2);
        let made = std::thread::scope(|scope| {
            let dump = scope.spawn(|| {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                let make = |index: &u32| openat(&folder, format!("core-{index}.img"), flags, Mode::RUSR).is_ok();
                begun.wait();
                (0..3000).take_while(make).count()
            });
            begun.wait();
            home.pool();
            dump.join().unwrap()
        });
        assert!(!memory.exists(), "{made} files were made meanwhile");
        assert!(staging_is_empty(&home));
    }
}

/// A dump that would be a checkpoint if it were not stopped.
fn stage_moment(pool: &Pool) -> Staged {
    let mut staged = pool.stage().unwrap();
    dump(&staged.memory().unwrap());
    staged.snapshot_disk(pool, "sbx_a").unwrap();
    staged.finish_image(&maker()).unwrap();
    staged
}

#[test]
fn a_checkpoint_that_is_refused_takes_its_image_back() {
    let home = Home::new();
    let pool = home.pool();
    pool.create_disk("sbx_a", 20 * MIB).unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    assert!(matches!(stage_moment(&pool).commit_checkpoint("ckp_1"), Err(ImageError::Exists { .. })));
    assert!(pool.list_images().unwrap().is_empty() && staging_is_empty(&home));
    assert!(pool.checkpoint("ckp_1").unwrap().image().unwrap().is_none(), "the one that was there is as it was");
    // As a kill between the two halves leaves it: an image that a deletion by that id takes.
    save(&pool, "ckp_2");
    assert!(matches!(stage_moment(&pool).commit_checkpoint("ckp_2"), Err(ImageError::Exists { .. })));
    assert!(matches!(pool.checkpoint("ckp_2"), Err(ImageError::NotFound { .. })));
    pool.delete_checkpoint("ckp_2").unwrap();
    assert!(pool.list_images().unwrap().is_empty() && staging_is_empty(&home));
}

#[test]
fn what_is_made_for_a_moment_does_not_outlive_the_machines_run() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", 20 * MIB).unwrap();
    fs::write(disk.upper.join("file"), "kept").unwrap();
    let mut staged = pool.stage_transient().unwrap();
    dump(&staged.memory().unwrap());
    staged.snapshot_disk(&pool, "sbx_a").unwrap();
    staged.finish_image(&maker()).unwrap();
    let image = staged.commit_checkpoint("ckp_fork").unwrap().image().unwrap().unwrap();
    assert!(image.is_transient());
    assert!(!image.seal(&|| true).unwrap() && !image.is_sealed(), "nobody will ever verify it");
    // A copy of it that shall stay does so.
    let copy = pool.stage_image().unwrap();
    copy.copy(&image).unwrap();
    assert!(!copy.commit("img_a").unwrap().is_transient());

    let manifest = home.images().join("ckp_fork/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(text.contains(boot.trim()), "{text}");
    // Written anew: the file may be shared.
    fs::remove_file(&manifest).unwrap();
    fs::write(&manifest, text.replace(boot.trim(), "another boot")).unwrap();
    let checkpoint = pool.checkpoint("ckp_fork").unwrap();
    let refused = checkpoint.image().unwrap_err();
    assert!(matches!(&refused, ImageError::Damaged { why, .. } if why.contains("started again")), "{refused}");
    // Nor does anything break of which the machine's death left less.
    for lost in ["memory/pages-1.img", "memory", "manifest.json"] {
        let path = home.images().join("ckp_fork").join(lost);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        assert!(checkpoint.image().is_err());
    }
    fs::write(pool.root().join("checkpoints/ckp_fork/checkpoint.json"), "").unwrap();
    assert!(matches!(pool.checkpoint("ckp_fork"), Err(ImageError::Damaged { .. })));
    drop(pool);
    let pool = home.pool();
    pool.delete_checkpoint("ckp_fork").unwrap();
    assert_eq!(pool.list_images().unwrap(), ["img_a"]);
    assert_eq!(fs::read(pool.image("img_a").unwrap().memory().join("core-1.img")).unwrap(), b"registers");
    assert!(pool.list_checkpoints().unwrap().is_empty() && staging_is_empty(&home));
}

#[test]
fn a_copy_shares_the_files_and_nothing_else() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    let staged = pool.stage_image().unwrap();
    staged.copy(&image).unwrap();
    let copy = staged.commit("img_b").unwrap();
    let inode = |image: &Image| image.memory().join("pages-1.img").metadata().unwrap().ino();
    assert_eq!(inode(&image), inode(&copy));
    // Sealed later, and only the one.
    image.seal(&|| true).unwrap();
    assert!(!copy.is_sealed());
    pool.delete_image("img_a").unwrap();
    assert!(copy.seal(&|| true).unwrap() && copy.verify(Depth::Everything).unwrap());
    assert_eq!(fs::read(copy.memory().join("core-1.img")).unwrap(), b"registers");
}

#[test]
fn sealing_stops_when_told_and_when_the_image_goes() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    let asked = Cell::new(0);
    let thrice = || asked.replace(asked.get() + 1) < 3;
    assert!(!image.seal(&thrice).unwrap());
    assert_eq!(asked.get(), 4, "it is asked between the pieces of a large file too");
    assert!(!image.is_sealed());
    // Deleted in mid-work, with a copy that keeps the files readable.
    let staged = pool.stage_image().unwrap();
    staged.copy(&image).unwrap();
    staged.commit("img_b").unwrap();
    let delete = || pool.delete_image("img_a").is_ok();
    assert!(!image.seal(&delete).unwrap());
    assert!(!image.seal(&|| true).unwrap(), "nor afterwards");
    assert_eq!(pool.list_images().unwrap(), ["img_b"]);
    assert!(staging_is_empty(&home));
}

#[test]
fn damage_is_named() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    assert!(!image.is_sealed());
    assert!(!image.verify(Depth::Everything).unwrap(), "nothing to compare with yet");
    for _ in 0..2 {
        assert!(image.seal(&|| true).unwrap());
    }
    assert!(pool.image("img_a").unwrap().is_sealed());
    assert!(image.verify(Depth::Everything).unwrap());

    let pages = image.memory().join("pages-1.img");
    let file = fs::File::options().write(true).open(&pages).unwrap();
    file.write_all_at(b"!", MIB).unwrap();
    assert!(image.verify(Depth::Description).unwrap(), "pages are not read for a glance");
    let damaged = image.verify(Depth::Everything).unwrap_err();
    assert_eq!(damaged.to_string(), "`pages-1.img` of `img_a` is damaged: its checksum is another one");

    file.set_len(5).unwrap();
    let damaged = pool.image("img_a").unwrap_err();
    assert_eq!(damaged.to_string(), "`pages-1.img` of `img_a` is damaged: 5 bytes instead of 2097152");
    fs::remove_file(&pages).unwrap();
    assert!(matches!(pool.image("img_a"), Err(ImageError::Damaged { .. })));

    let manifest = home.images().join("img_a/manifest.json");
    fs::write(&manifest, r#"{"format": 1, "engine""#).unwrap();
    assert!(matches!(pool.image("img_a"), Err(ImageError::Damaged { .. })));
    fs::write(&manifest, r#"{"format": 7, "anything": "else"}"#).unwrap();
    let refused = pool.image("img_a").unwrap_err();
    assert_eq!(refused.to_string(), "`img_a` has format 7, this program reads up to 2");
    pool.delete_image("img_a").unwrap();
}

#[test]
fn another_maker_is_refused_by_name() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    for (here, text) in [
        (Maker { engine: "gvisor".into(), ..maker() }, "`img_a` was saved with engine `native`, here is `gvisor`"),
        (Maker { version: "2".into(), ..maker() }, "`img_a` was saved with version `1`, here is `2`"),
        (Maker { cpu: "sse".into(), ..maker() }, "`img_a` was saved with processor `avx`, here is `sse`"),
    ] {
        assert_eq!(image.check_maker(&here).unwrap_err().to_string(), text);
    }
}

#[test]
fn a_full_filesystem_keeps_nothing_half_made() {
    let home = Home::new();
    // Images are beside the pool, so it is the data folder that runs full: here, a small one of its own.
    let device = home.path().join("device");
    Machine::format(&device, "ext4", 320 * MIB);
    let machine = Machine::start(&home, &device, "ext4");
    let pool = machine.pool();
    let disk = pool.create_disk("sbx_a", 50 * MIB).unwrap();
    fs::write(disk.upper.join("file"), "kept").unwrap();
    pool.sync().unwrap();
    assert!(pool.image_room().unwrap() < 320 * MIB);
    let mut staged = pool.stage_image().unwrap();
    let mut pages = fs::File::create(staged.memory().join("pages-1.img")).unwrap();
    let mut random = io::Read::take(fs::File::open("/dev/urandom").unwrap(), 1 << 30);
    let full = io::copy(&mut random, &mut pages).and_then(|_| pages.flush()).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(pool.image_room().unwrap() < MIB);
    // An engine that does not say so does not get through either, or gets through whole.
    let size = pages.metadata().unwrap().len();
    match staged.finish(&maker()).and_then(|()| staged.commit("img_a")) {
        Ok(image) => {
            assert_eq!(image.bytes(), size);
            pool.delete_image("img_a").unwrap();
        }
        Err(error) => assert!(error.is_full(), "{error:?}"),
    }
    drop(pages);
    assert!(pool.list_images().unwrap().is_empty());
    assert_eq!(fs::read_dir(machine.data().join("images/.staging")).unwrap().count(), 0);
    save(&pool, "img_b");
    assert_eq!(fs::read(disk.upper.join("file")).unwrap(), b"kept");
}

#[test]
fn a_dump_that_is_followed_is_as_whole_as_any() {
    let home = Home::new();
    let pool = home.pool();
    let mut staged = pool.stage_image().unwrap();
    staged.write_behind().unwrap();
    let mut pages = fs::File::create(staged.memory().join("pages-1.img")).unwrap();
    for byte in 0..40 {
        pages.write_all(&vec![byte; MIB as usize]).unwrap();
    }
    // A file that shrinks again is nothing to follow, and nothing to stumble over.
    dump(&staged.memory());
    staged.finish(&maker()).unwrap();
    assert_eq!(staged.commit("img_a").unwrap().bytes(), 2 * MIB + 9);

    // Whoever gives up in mid-dump leaves nobody behind.
    let mut dropped = pool.stage_image().unwrap();
    dump(&dropped.memory());
    dropped.write_behind().unwrap();
    drop(dropped);
    assert!(staging_is_empty(&home));
}

#[test]
fn pages_are_not_compressed_where_the_data_folder_is_btrfs() {
    let home = Home::new();
    let outer = home.pool();
    let config = PoolConfig { data_dir: outer.root().join("data"), ..home.pool_config() };
    let pool = Pool::open(&config).unwrap();
    let image = save(&pool, "img_a");
    let pages = fs::File::open(image.memory().join("pages-1.img")).unwrap();
    let inode = pages.metadata().unwrap().ino();
    let mut packed = Vec::new();
    btrfs::for_each_item(&pages, |item| {
        if item.kind == btrfs::ItemKind::Extent && item.inode == inode {
            // Behind generation and size: how the extent is packed.
            packed.push(item.data[16]);
        }
    })
    .unwrap();
    assert!(!packed.is_empty() && packed.iter().all(|how| *how == 0), "{packed:?}");
    assert!(config.data_dir.join("images/img_a/manifest.json").is_file());
}
