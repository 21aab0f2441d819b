//! Memory images for real: whole or absent, verified, refused. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use roost_disk::{Depth, Image, ImageError, Maker, Pool};
use roost_sys::btrfs;
use support::Home;

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
    let staged = pool.stage().unwrap();
    dump(&staged.memory().unwrap());
    staged.finish_image(&maker()).unwrap();
    staged.commit_image(id).unwrap()
}

fn staging_is_empty(pool: &Pool) -> bool {
    fs::read_dir(pool.root().join("staging")).unwrap().next().is_none()
}

#[test]
fn an_image_is_found_again_as_it_was_saved() {
    let home = Home::new();
    let pool = home.pool();
    let saved = save(&pool, "img_a");
    assert_eq!(saved.bytes(), 2 * MIB + 9);
    assert!(staging_is_empty(&pool));
    pool.close().unwrap();

    let pool = home.pool();
    assert_eq!(pool.list_images().unwrap(), ["img_a"]);
    let image = pool.image("img_a").unwrap();
    assert_eq!((image.bytes(), image.maker(), image.created_at()), (saved.bytes(), &maker(), saved.created_at()));
    assert_eq!(fs::read(image.memory().join("core-1.img")).unwrap(), b"registers");
    image.check_maker(&maker()).unwrap();

    let taken = pool.stage().unwrap();
    dump(&taken.memory().unwrap());
    taken.finish_image(&maker()).unwrap();
    assert!(matches!(taken.commit_image("img_a"), Err(ImageError::Exists { .. })));
    assert!(staging_is_empty(&pool));

    for _ in 0..2 {
        pool.delete_image("img_a").unwrap();
    }
    assert!(matches!(pool.image("img_a"), Err(ImageError::NotFound { .. })));
    assert!(pool.list_images().unwrap().is_empty() && staging_is_empty(&pool));
    assert!(matches!(pool.image("../img_a"), Err(ImageError::InvalidId { .. })));
    assert!(matches!(pool.delete_image(".."), Err(ImageError::InvalidId { .. })));
}

#[test]
fn what_is_not_committed_is_gone() {
    let home = Home::new();
    let pool = home.pool();
    let dropped = pool.stage().unwrap();
    dump(&dropped.memory().unwrap());
    drop(dropped);
    assert!(staging_is_empty(&pool));

    let unfinished = pool.stage().unwrap();
    dump(&unfinished.memory().unwrap());
    assert!(unfinished.commit_image("img_a").is_err(), "nothing describes it");
    let strange = pool.stage().unwrap();
    fs::create_dir(strange.memory().unwrap().join("folder")).unwrap();
    assert!(strange.finish_image(&maker()).is_err(), "an engine writes plain files");
    drop(strange);
    assert!(staging_is_empty(&pool) && pool.list_images().unwrap().is_empty());

    // What a kill leaves in mid-dump, in mid-flush and in mid-deletion; and somebody who is still at it.
    pool.create_disk("sbx_a", 20 * MIB).unwrap();
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
    let alive = pool.stage().unwrap();
    dump(&alive.memory().unwrap());
    let again = home.pool();
    assert!(!leftover.exists(), "a sweep takes what nobody holds");
    alive.finish_image(&maker()).unwrap();
    alive.commit_image("img_alive").unwrap();
    assert_eq!(again.list_images().unwrap(), ["img_alive"]);
    assert!(staging_is_empty(&pool));
}

#[test]
fn damage_is_named() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    assert!(!image.is_sealed());
    assert!(!image.verify(Depth::Everything).unwrap(), "nothing to compare with yet");
    for _ in 0..2 {
        image.seal().unwrap();
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

    let manifest = pool.root().join("images/img_a/manifest.json");
    fs::write(&manifest, r#"{"format": 1, "engine""#).unwrap();
    assert!(matches!(pool.image("img_a"), Err(ImageError::Damaged { .. })));
    fs::write(&manifest, r#"{"format": 7, "anything": "else"}"#).unwrap();
    let refused = pool.image("img_a").unwrap_err();
    assert_eq!(refused.to_string(), "`img_a` has format 7, this program reads 1");
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
fn a_full_pool_keeps_nothing_half_made() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", 200 * MIB).unwrap();
    fs::write(disk.upper.join("file"), "kept").unwrap();
    let staged = pool.stage().unwrap();
    let mut pages = fs::File::create(staged.memory().unwrap().join("pages-1.img")).unwrap();
    let mut random = io::Read::take(fs::File::open("/dev/urandom").unwrap(), 1 << 30);
    let full = io::copy(&mut random, &mut pages).and_then(|_| pages.flush()).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    // An engine that does not say so does not get through either, or gets through whole.
    if staged.finish_image(&maker()).is_ok() {
        let size = pages.metadata().unwrap().len();
        assert_eq!(staged.commit_image("img_a").unwrap().bytes(), size);
        pool.delete_image("img_a").unwrap();
    } else {
        drop(staged);
    }
    drop(pages);
    assert!(staging_is_empty(&pool) && pool.list_images().unwrap().is_empty());
    // The space of a deleted subvolume comes back a few commits later.
    let deadline = Instant::now() + Duration::from_secs(60);
    while pool.space().unwrap().free < 100 * MIB {
        assert!(Instant::now() < deadline, "the space comes back");
        pool.sync().unwrap();
    }
    save(&pool, "img_b");
    assert_eq!(fs::read(disk.upper.join("file")).unwrap(), b"kept");
}

#[test]
fn a_dump_that_is_followed_is_as_whole_as_any() {
    let home = Home::new();
    let pool = home.pool();
    let staged = pool.stage().unwrap();
    let memory = staged.memory().unwrap();
    staged.write_behind().unwrap();
    let mut pages = fs::File::create(memory.join("pages-1.img")).unwrap();
    for byte in 0..40 {
        pages.write_all(&vec![byte; MIB as usize]).unwrap();
    }
    // A file that shrinks again is nothing to follow, and nothing to stumble over.
    dump(&memory);
    staged.finish_image(&maker()).unwrap();
    assert_eq!(staged.commit_image("img_a").unwrap().bytes(), 2 * MIB + 9);

    // Whoever gives up in mid-dump leaves nobody behind.
    let dropped = pool.stage().unwrap();
    dump(&dropped.memory().unwrap());
    dropped.write_behind().unwrap();
    drop(dropped);
    assert!(staging_is_empty(&pool));
}

#[test]
fn pages_are_not_compressed() {
    let home = Home::new();
    let pool = home.pool();
    let image = save(&pool, "img_a");
    let pages = fs::File::open(image.memory().join("pages-1.img")).unwrap();
    let mut compressed = false;
    btrfs::for_each_item(&pages, |item| {
        // Behind generation and size: how the extent is packed.
        compressed |= item.kind == btrfs::ItemKind::Extent && item.data[16] != 0;
    })
    .unwrap();
    assert!(!compressed);
}
