//! What the machine's death leaves: the pool's file as it is at one moment, opened again elsewhere. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs;
use std::path::Path;

use roost_disk::{Depth, Maker, Pool, Replacement, Staged};
use support::Home;

const LIMIT: u64 = 50 << 20;

fn file(folder: &Path) -> String {
    fs::read_to_string(folder.join("file")).unwrap()
}

fn stage(pool: &Pool) -> Staged {
    let staged = pool.stage().unwrap();
    let memory = staged.memory().unwrap();
    fs::write(memory.join("pages-1.img"), vec![9; 3 << 20]).unwrap();
    for index in 0..20 {
        fs::write(memory.join(format!("core-{index}.img")), format!("process {index}")).unwrap();
    }
    let maker = Maker { engine: "native".into(), version: "1".into(), cpu: String::new() };
    staged.finish_image(&maker).unwrap();
    staged
}

/// Everything that is on the device at this moment, and nothing of what is only in memory.
fn pull_the_plug(home: &Home) -> Home {
    let after = Home::new();
    fs::create_dir(after.data()).unwrap();
    fs::copy(home.data().join("pool.btrfs"), after.data().join("pool.btrfs")).unwrap();
    after
}

#[test]
fn what_is_committed_survives_the_death_of_the_machine() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "old").unwrap();

    stage(&pool).commit_image("img_a").unwrap();
    let with_image = pull_the_plug(&home);

    let staged = stage(&pool);
    staged.snapshot_disk(&pool, "sbx_a").unwrap();
    fs::write(disk.upper.join("file"), "new").unwrap();
    staged.commit_checkpoint("ckp_a").unwrap();
    let with_checkpoint = pull_the_plug(&home);

    pool.replace_disk("sbx_a", "ckp_a", LIMIT).unwrap();
    let with_replacement = pull_the_plug(&home);

    pool.undo_replace("sbx_a").unwrap();
    let unfinished = stage(&pool);
    let with_leftover = pull_the_plug(&home);
    drop(unfinished);
    // Two filesystems of one identity are not mounted side by side.
    pool.close().unwrap();

    let pool = with_image.pool();
    let image = pool.image("img_a").unwrap();
    image.seal().unwrap();
    assert!(image.verify(Depth::Everything).unwrap());
    assert_eq!(fs::read(image.memory().join("pages-1.img")).unwrap(), vec![9; 3 << 20]);
    assert_eq!(fs::read_to_string(image.memory().join("core-7.img")).unwrap(), "process 7");
    pool.close().unwrap();

    let pool = with_checkpoint.pool();
    let checkpoint = pool.checkpoint("ckp_a").unwrap();
    assert_eq!(file(&checkpoint.upper()), "old");
    assert_eq!(fs::read(checkpoint.image().unwrap().unwrap().memory().join("pages-1.img")).unwrap().len(), 3 << 20);
    pool.close().unwrap();

    let pool = with_replacement.pool();
    assert_eq!(pool.replacement("sbx_a").unwrap(), Some(Replacement::Replaced));
    assert_eq!(file(&pool.disk("sbx_a").unwrap().upper), "old");
    pool.close().unwrap();

    let pool = with_leftover.pool();
    assert_eq!(fs::read_dir(pool.root().join("staging")).unwrap().count(), 0);
    assert_eq!(pool.replacement("sbx_a").unwrap(), None);
    assert_eq!((pool.list_images().unwrap().len(), pool.list_checkpoints().unwrap().len()), (1, 1));
    pool.close().unwrap();
}
