//! Sandboxes on the real thing: an EROFS template below, a btrfs pool with quotas above.

use std::path::PathBuf;

use roost_disk::{Existing, Pool, PoolConfig, Templates, build_mini};
use roost_engine::{DiskSource, Engine, UID_RANGES};

use crate::support::Bench;

const LIMIT: u64 = 48 << 20;

/// Unmounts everything, also when a test fails.
struct Disks {
    pool: Option<Pool>,
    lower: PathBuf,
    folder: tempfile::TempDir,
}

impl Disks {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let data = folder.path().join("data");
        let config = PoolConfig { size: Some(512 << 20), reserve: 0, ..PoolConfig::new(&data) };
        let pool = Pool::open(&config).unwrap();
        let mut disks = Self { pool: Some(pool), lower: PathBuf::new(), folder };
        let templates = Templates::open(&data, &disks.folder.path().join("run")).unwrap();
        let mini = build_mini(&templates, &"mini".parse().unwrap(), Existing::Refuse, &|_| {}).unwrap();
        disks.lower = templates.mount(&mini).unwrap();
        disks
    }

    fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        drop(self.pool.take());
        Templates::unmount_all(&self.folder.path().join("run")).ok();
        // A process that another test is just starting holds a copy of the pool's descriptors until it executes.
        let unmounted = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            Pool::unmount(&self.folder.path().join("data")).is_ok()
        });
        assert!(unmounted || std::thread::panicking(), "the pool stays mounted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_of_erofs_and_btrfs() {
    let disks = Disks::new();
    let bench = Bench::new().await;
    let mut spec = bench.spec();
    let id = spec.id.clone();
    let disk = disks.pool().create_disk(id.as_str(), LIMIT).unwrap();
    spec.disk = DiskSource::Layers { lower: disks.lower.clone(), subvolume: disk.subvolume };
    bench.engine.start(spec.clone()).await.unwrap();

    // Changing, removing and renaming what the template brought; owners are right on both layers.
    let (code, output) = bench
        .shell(&id, "set -e; rm /etc/profile; echo x >> /etc/hosts; mv /home /house; stat -c %u /house/user /etc/hosts; chown user /etc/hosts; su user -c 'echo y >> /etc/hosts'; stat -c %u /etc/hosts")
        .await;
    assert_eq!((code, output.as_str()), (0, "1000\n0\n1000\n"));

    // One device and no inode number twice, or programs take two files for one.
    let (_, numbers) = bench
        .shell(&id, "for i in 1 2 3 4 5 6 7 8; do touch /root/$i; done; stat -c '%d:%i' /root/* /etc/* /bin/sh")
        .await;
    let mut unique: Vec<&str> = numbers.lines().collect();
    let all = unique.len();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), all, "{numbers}");

    if disks.pool().quotas() {
        let (code, output) = bench.shell(&id, "dd if=/dev/urandom of=/root/big bs=1M count=100").await;
        assert_ne!(code, 0, "the quota holds: {output}");
        assert_eq!(bench.shell(&id, "rm /root/big && echo alive").await.1, "alive\n");
    }

    bench.engine.kill(&id).await.unwrap();
    spec.uid_range = (spec.uid_range + 1) % UID_RANGES;
    bench.engine.start(spec).await.unwrap();
    let (code, output) =
        bench.shell(&id, "test -d /house/user && test ! -e /etc/profile && tail -n 1 /etc/hosts").await;
    assert_eq!((code, output.as_str()), (0, "y\n"));
    bench.engine.kill(&id).await.unwrap();
    disks.pool().delete_disk(id.as_str()).unwrap();
    bench.finish().await;
}
