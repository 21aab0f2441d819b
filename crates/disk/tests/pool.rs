//! The pool for real: loop file, btrfs, quotas. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use roost_disk::{DiskError, DiskLimits, FullQuotas, Pool, PoolConfig};
use roost_sys::loopdev::{Access, LoopDevice};
use support::Home;

const MIB: u64 = 1 << 20;

/// Writes bytes that do not compress until the disk is full or `most` is reached.
fn fill(path: &Path, most: u64) -> (u64, Option<io::Error>) {
    let mut block = vec![0_u8; MIB as usize];
    let mut file = fs::File::create(path).unwrap();
    let mut random = fs::File::open("/dev/urandom").unwrap();
    let mut written = 0;
    while written < most {
        random.read_exact(&mut block).unwrap();
        if let Err(error) = file.write_all(&block).and_then(|()| file.sync_data()) {
            return (written, Some(error));
        }
        written += MIB;
    }
    (written, None)
}

#[test]
fn disk_holds_its_limit_and_no_more_under_simple_quotas() {
    let home = Home::new();
    let pool = home.pool();
    assert_eq!(pool.disk_limits(), DiskLimits::Simple);
    a_disk_holds_its_limit_and_no_more(pool);
}

/// As on a kernel before 6.7.
#[test]
fn disk_holds_its_limit_and_no_more_under_full_quotas() {
    let home = Home::new();
    let config = PoolConfig { full_quotas: FullQuotas::Always, ..home.pool_config() };
    let pool = Pool::open(&config).unwrap();
    assert!(pool.quotas_are_new());
    drop(pool);
    let pool = Pool::open(&config).unwrap();
    assert_eq!((pool.disk_limits(), pool.quotas_are_new()), (DiskLimits::Full, false));
    a_disk_holds_its_limit_and_no_more(pool);
}

#[test]
fn snapshot_under_full_quotas_has_a_limit_of_its_own() {
    let home = Home::new();
    let pool = Pool::open(&PoolConfig { full_quotas: FullQuotas::Always, ..home.pool_config() }).unwrap();
    let disk = pool.create_disk("sbx_parent", 40 * MIB).unwrap();
    assert!(fill(&disk.upper.join("first"), 10 * MIB).1.is_none());
    let child = pool.snapshot("sbx_parent", "sbx_child", 20 * MIB).unwrap();
    pool.sync().unwrap();
    let usage = pool.usage("sbx_child").unwrap().unwrap();
    assert!(usage.referenced >= 10 * MIB && usage.exclusive < MIB, "{usage:?}");
    let (written, error) = fill(&child.upper.join("more"), 20 * MIB);
    assert_eq!(error.unwrap().kind(), io::ErrorKind::QuotaExceeded);
    assert!(written <= 10 * MIB, "{written}");
    pool.delete_disk("sbx_child").unwrap();
    assert!(fill(&disk.upper.join("second"), 10 * MIB).1.is_none());
    drop(pool.close());
}

fn a_disk_holds_its_limit_and_no_more(pool: Pool) {
    let disk = pool.create_disk("sbx_full", 20 * MIB).unwrap();
    let other = pool.create_disk("sbx_other", 40 * MIB).unwrap();

    let (written, error) = fill(&disk.upper.join("big"), 64 * MIB);
    assert_eq!(error.unwrap().kind(), io::ErrorKind::QuotaExceeded);
    assert!((15 * MIB..=20 * MIB).contains(&written), "{written}");
    assert!(fill(&other.upper.join("big"), 10 * MIB).1.is_none(), "a neighbour is not touched");

    pool.sync().unwrap();
    let usage = pool.usage("sbx_full").unwrap().unwrap();
    assert_eq!(usage.limit, Some(20 * MIB));
    assert!((15 * MIB..=20 * MIB).contains(&usage.exclusive), "{usage:?}");

    fs::remove_file(disk.upper.join("big")).unwrap();
    pool.set_limit("sbx_full", 40 * MIB).unwrap();
    pool.sync().unwrap();
    assert!(fill(&disk.upper.join("again"), 30 * MIB).1.is_none(), "a raised limit is in force");
    drop(pool.close());
}

#[test]
fn a_full_disk_has_room_for_a_start_and_for_nothing_after_it() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_full", 20 * MIB).unwrap();
    let folder = disk.upper.join("folder");
    assert!(!pool.lift_limit("sbx_full", 20 * MIB).unwrap(), "it is empty");

    assert!(fill(&disk.upper.join("big"), 64 * MIB).1.is_some());
    pool.sync().unwrap();
    assert_eq!(fs::create_dir(&folder).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    assert!(pool.lift_limit("sbx_full", 20 * MIB).unwrap());
    fs::create_dir(&folder).unwrap();
    fs::remove_dir(&folder).unwrap();
    pool.set_limit("sbx_full", 20 * MIB).unwrap();
    assert_eq!(fs::create_dir(&folder).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
    drop(pool.close());
}

#[test]
fn a_start_is_refused_where_no_folder_has_room_until_the_pool_grows() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_many", 1 << 30).unwrap();
    pool.check_start_room().unwrap();
    // Contents take all that is not set aside yet, and names what is set aside for them.
    let big = fs::File::create(disk.upper.join("big")).unwrap();
    let mut length = 0;
    while rustix::fs::fallocate(&big, rustix::fs::FallocateFlags::empty(), length, MIB).is_ok() {
        length += MIB;
    }
    let long = "x".repeat(200);
    let full = (0..1_000_000).find_map(|n| fs::create_dir(disk.upper.join(format!("{long}{n}"))).err());
    assert_eq!(full.unwrap().kind(), io::ErrorKind::StorageFull);
    let refused = pool.check_start_room().unwrap_err();
    assert!(refused.to_string().contains("the pool for names and folders"), "{refused}");
    drop(big);
    drop(pool);

    let larger = PoolConfig { size: Some(512 * MIB), ..home.pool_config() };
    Pool::open(&larger).unwrap().check_start_room().unwrap();
}

/// The subvolume's number in the pool, which never comes again.
fn number(subvolume: &Path) -> u64 {
    roost_sys::btrfs::subvolume_id(fs::File::open(subvolume).unwrap()).unwrap()
}

#[test]
fn a_disk_that_held_little_is_used_again_and_nothing_of_it_is_left() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let home = Home::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("stays"), "x").unwrap();
    let pool = home.pool();
    let first = pool.create_disk("sbx_first", 20 * MIB).unwrap();
    let subvolume = number(&first.subvolume);
    fs::create_dir_all(first.upper.join("etc/deep")).unwrap();
    fs::write(first.upper.join("etc/deep/secret"), "first's own").unwrap();
    symlink(outside.path(), first.upper.join("link")).unwrap();
    fs::create_dir(first.work.join("work")).unwrap();
    fs::set_permissions(&first.upper, fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::chown(&first.upper, Some(7), Some(7)).unwrap();
    rustix::fs::setxattr(&first.upper, "user.secret", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    pool.delete_disk("sbx_first").unwrap();
    assert_eq!((pool.disk("sbx_first"), pool.list_disks().unwrap().len()), (None, 0));
    assert!(outside.path().join("stays").exists());

    let second = pool.create_disk("sbx_second", 30 * MIB).unwrap();
    assert_eq!(number(&second.subvolume), subvolume, "it is the same disk");
    for folder in [&second.upper, &second.work] {
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }
    let upper = fs::metadata(&second.upper).unwrap();
    assert_eq!((upper.mode() & 0o7777, upper.uid(), upper.gid()), (0o755, 0, 0));
    let mut names = [0_u8; 64];
    assert_eq!(rustix::fs::listxattr(&second.upper, &mut names).unwrap(), 0);
    pool.sync().unwrap();
    let usage = pool.usage("sbx_second").unwrap().unwrap();
    assert_eq!(usage.limit, Some(30 * MIB));
    assert!(usage.exclusive <= 64 << 10, "{usage:?}");

    // One that held much is dropped, one that a checkpoint still counts on as well, and what waits goes with the pool.
    assert!(fill(&second.upper.join("big"), MIB).1.is_none());
    pool.delete_disk("sbx_second").unwrap();
    let third = pool.create_disk("sbx_third", 20 * MIB).unwrap();
    assert_ne!(number(&third.subvolume), subvolume);
    assert!(fill(&third.upper.join("big"), MIB).1.is_none());
    pool.checkpoint_disk("sbx_third", "cp_third").unwrap();
    fs::remove_file(third.upper.join("big")).unwrap();
    let subvolume = number(&third.subvolume);
    pool.delete_disk("sbx_third").unwrap();
    let fourth = pool.create_disk("sbx_fourth", 20 * MIB).unwrap();
    assert_ne!(number(&fourth.subvolume), subvolume);
    pool.delete_disk("sbx_fourth").unwrap();
    let spares = pool.root().join("spares");
    assert_eq!(fs::read_dir(&spares).unwrap().count(), 1);
    drop(pool);
    let pool = home.pool();
    assert_eq!(fs::read_dir(&spares).unwrap().count(), 0);
    drop(pool.close());
}

#[test]
fn creation_and_deletion_can_be_repeated() {
    let home = Home::new();
    let pool = home.pool();
    let first = pool.create_disk("sbx_a", 20 * MIB).unwrap();
    fs::write(first.upper.join("file"), "kept").unwrap();
    assert_eq!(pool.create_disk("sbx_a", 20 * MIB).unwrap(), first);
    assert_eq!(fs::read(first.upper.join("file")).unwrap(), b"kept");
    assert_eq!(pool.disk("sbx_a"), Some(first));
    // What a creation leaves that was cut short right at its start.
    fs::create_dir(pool.root().join("sandboxes/sbx_b")).unwrap();
    assert_eq!(pool.list_disks().unwrap(), ["sbx_a", "sbx_b"]);
    assert_eq!(pool.disk("sbx_b"), None);

    for id in ["sbx_a", "sbx_b", "sbx_a", "sbx_never"] {
        pool.delete_disk(id).unwrap();
    }
    assert!(pool.list_disks().unwrap().is_empty());
    assert!(matches!(pool.usage("sbx_a"), Err(DiskError::NotFound { .. })));
    for id in ["", ".", "..", "a/b", "../x", "a\0b", &"x".repeat(65)] {
        assert!(matches!(pool.create_disk(id, MIB), Err(DiskError::InvalidId { .. })), "{id:?}");
        assert!(matches!(pool.delete_disk(id), Err(DiskError::InvalidId { .. })), "{id:?}");
    }
}

#[test]
fn a_snapshot_is_a_disk_of_its_own() {
    let home = Home::new();
    let pool = home.pool();
    let parent = pool.create_disk("sbx_p", 40 * MIB).unwrap();
    fill(&parent.upper.join("data"), 10 * MIB);
    fs::create_dir_all(parent.work.join("work/incompat")).unwrap();

    let child = pool.snapshot("sbx_p", "sbx_c", 20 * MIB).unwrap();
    assert_eq!(fs::read(child.upper.join("data")).unwrap(), fs::read(parent.upper.join("data")).unwrap());
    assert_eq!(fs::read_dir(&child.work).unwrap().count(), 0);
    fs::write(child.upper.join("data"), "changed").unwrap();
    assert_eq!(fs::metadata(parent.upper.join("data")).unwrap().len(), 10 * MIB);
    pool.sync().unwrap();
    let usage = pool.usage("sbx_c").unwrap().unwrap();
    assert_eq!(usage.limit, Some(20 * MIB));
    assert!(usage.exclusive < MIB, "it does not pay for what its parent wrote: {usage:?}");
    let (_, error) = fill(&child.upper.join("more"), 40 * MIB);
    assert_eq!(error.unwrap().kind(), io::ErrorKind::QuotaExceeded);

    assert!(matches!(pool.snapshot("sbx_p", "sbx_c", MIB), Err(DiskError::Exists { .. })));
    assert!(matches!(pool.snapshot("sbx_none", "sbx_d", MIB), Err(DiskError::NotFound { .. })));
    pool.delete_disk("sbx_p").unwrap();
    assert_eq!(fs::read(child.upper.join("data")).unwrap(), b"changed");
}

#[test]
fn a_pool_is_found_again_and_leaves_no_device() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", 20 * MIB).unwrap();
    fs::write(disk.upper.join("file"), "kept").unwrap();
    // As after a kill: nothing is unmounted.
    drop(pool);
    let pool = home.pool();
    assert_eq!(pool.list_disks().unwrap(), ["sbx_a"]);
    let held = fs::File::open(disk.upper.join("file")).unwrap();
    assert!(Pool::unmount(&home.data()).is_err(), "a pool in use is not unmounted");
    drop(held);
    pool.close().unwrap();
    let file = home.data().join("pool.btrfs");
    assert!(LoopDevice::find(&file).unwrap().is_none(), "the loop device is gone with the mount");
    Pool::unmount(&home.data()).unwrap();

    // As after a kill between attaching and mounting.
    let attached = LoopDevice::attach(&file, Access::ReadWrite).unwrap();
    let grown = PoolConfig { size: Some(512 * MIB), ..home.pool_config() };
    let pool = Pool::open(&grown).unwrap();
    drop(attached);
    assert_eq!(fs::read(disk.upper.join("file")).unwrap(), b"kept");
    assert_eq!(pool.space().unwrap().total, 512 * MIB);
    assert!(pool.quotas());
    pool.close().unwrap();
    assert!(LoopDevice::find(&file).unwrap().is_none());
}

#[test]
fn a_data_folder_on_btrfs_is_its_own_pool() {
    let home = Home::new();
    let outer = home.pool();
    let config = PoolConfig { data_dir: outer.root().join("data"), ..home.pool_config() };
    let inner = Pool::open(&config).unwrap();
    inner.create_disk("sbx_a", 20 * MIB).unwrap();
    assert!(!config.data_dir.join("pool.btrfs").exists());
    assert!(outer.root().join("data/pool/sandboxes/sbx_a/disk/root").is_dir());
    assert!(inner.quotas(), "it takes the quotas it finds");
    inner.delete_disk("sbx_a").unwrap();
    inner.close().unwrap();
}

#[test]
fn quotas_that_are_off_in_a_foreign_btrfs_are_named_as_the_reason() {
    let home = Home::new();
    let outer = home.pool();
    let off = std::process::Command::new("btrfs").args(["quota", "disable"]).arg(outer.root()).status().unwrap();
    assert!(off.success());
    let config = PoolConfig { data_dir: outer.root().join("data"), ..home.pool_config() };
    let inner = Pool::open(&config).unwrap();
    assert_eq!((inner.disk_limits(), inner.quotas()), (DiskLimits::OffInForeign, false));
    inner.create_disk("sbx_a", 20 * MIB).unwrap();
    inner.delete_disk("sbx_a").unwrap();
    inner.close().unwrap();
}

#[test]
fn room_is_refused_before_the_host_is_full() {
    let home = Home::new();
    home.pool().check_room().unwrap();
    let greedy = Pool::open(&PoolConfig { reserve: u64::MAX, ..home.pool_config() }).unwrap();
    let full = greedy.check_room().unwrap_err();
    assert_eq!((full.which, full.reserve), ("the host's filesystem", u64::MAX));
}
