//! Sandboxes, checkpoints, forks, restores and deletions in random order, against a model. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use roost_disk::{Maker, Pool, Replacement};
use support::Home;

const LIMIT: u64 = 50 << 20;
const FILES: [&str; 4] = ["a", "b", "c", "d"];

type Files = BTreeMap<String, String>;

/// The numbers choose among what there is at the time; what there is nothing for is not done.
#[derive(Debug, Clone)]
enum Deed {
    Create,
    Write(usize, usize, u16),
    Remove(usize, usize),
    Fork(usize),
    Checkpoint(usize, bool),
    /// A checkpoint of a sandbox with the memory of another checkpoint, as of one that sleeps in it.
    CheckpointAsleep(usize, usize),
    FromCheckpoint(usize),
    /// With how it ends: discarded, undone, or cut short at the first or second rename and then carried on.
    Restore(usize, usize, u8),
    DeleteSandbox(usize),
    DeleteCheckpoint(usize),
    Reopen,
}

fn deed() -> impl Strategy<Value = Deed> {
    let one = || 0_usize..64;
    prop_oneof![
        2 => Just(Deed::Create),
        8 => (one(), 0..FILES.len(), any::<u16>()).prop_map(|(who, file, text)| Deed::Write(who, file, text)),
        2 => (one(), 0..FILES.len()).prop_map(|(who, file)| Deed::Remove(who, file)),
        2 => one().prop_map(Deed::Fork),
        4 => (one(), any::<bool>()).prop_map(|(who, memory)| Deed::Checkpoint(who, memory)),
        2 => (one(), one()).prop_map(|(who, memory)| Deed::CheckpointAsleep(who, memory)),
        2 => one().prop_map(Deed::FromCheckpoint),
        4 => (one(), one(), 0_u8..4).prop_map(|(who, to, end)| Deed::Restore(who, to, end)),
        1 => one().prop_map(Deed::DeleteSandbox),
        2 => one().prop_map(Deed::DeleteCheckpoint),
        1 => Just(Deed::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    sandboxes: BTreeMap<String, Files>,
    /// With the memory, if it has any.
    checkpoints: BTreeMap<String, (Files, Option<String>)>,
    next: usize,
}

impl Model {
    fn name(&mut self, prefix: &str) -> String {
        self.next += 1;
        format!("{prefix}_{:05}", self.next)
    }

    fn sandbox(&self, index: usize) -> Option<String> {
        self.sandboxes.keys().nth(index % self.sandboxes.len().max(1)).cloned()
    }

    fn checkpoint(&self, index: usize) -> Option<String> {
        self.checkpoints.keys().nth(index % self.checkpoints.len().max(1)).cloned()
    }
}

fn contents(upper: &Path) -> Files {
    fs::read_dir(upper)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

fn check(home: &Home, pool: &Pool, model: &Model) {
    assert_eq!(pool.list_disks().unwrap(), model.sandboxes.keys().cloned().collect::<Vec<_>>());
    assert_eq!(pool.list_checkpoints().unwrap(), model.checkpoints.keys().cloned().collect::<Vec<_>>());
    for (id, files) in &model.sandboxes {
        assert_eq!(&contents(&pool.disk(id).unwrap().upper), files, "{id}");
        assert_eq!(fs::read_dir(pool.root().join("sandboxes").join(id)).unwrap().count(), 1);
    }
    for (id, (files, memory)) in &model.checkpoints {
        let checkpoint = pool.checkpoint(id).unwrap();
        assert_eq!(&contents(&checkpoint.upper()), files, "{id}");
        let found = checkpoint.image().unwrap().map(|image| fs::read_to_string(image.memory().join("pages")).unwrap());
        assert_eq!(&found, memory, "{id}");
    }
    let with_memory = model.checkpoints.iter().filter(|(_, (_, memory))| memory.is_some());
    assert_eq!(pool.list_images().unwrap(), with_memory.map(|(id, _)| id.clone()).collect::<Vec<_>>());
    for staging in [pool.root().join("staging"), home.images().join(".staging")] {
        assert_eq!(fs::read_dir(staging).unwrap().count(), 0);
    }
}

fn checkpoint(pool: &Pool, sandbox: &str, id: &str, memory: Option<&str>) {
    let mut staged = pool.stage().unwrap();
    if let Some(text) = memory {
        fs::write(staged.memory().unwrap().join("pages"), text).unwrap();
    }
    staged.snapshot_disk(pool, sandbox).unwrap();
    if memory.is_some() {
        let maker = Maker { engine: "fake".into(), version: "1".into(), cpu: String::new() };
        staged.finish_image(&maker).unwrap();
    }
    staged.commit_checkpoint(id).unwrap();
}

/// Restores, with a kill at one of its steps if `end` says so; true if the sandbox went back in the end.
fn restore(pool: &Pool, sandbox: &str, to: &str, end: u8) -> bool {
    pool.replace_disk(sandbox, to, LIMIT).unwrap();
    let folder = pool.root().join("sandboxes").join(sandbox);
    match end {
        0 => pool.discard_replaced(sandbox).unwrap(),
        1 => pool.undo_replace(sandbox).unwrap(),
        2 => {
            fs::rename(folder.join("disk"), folder.join("disk.next")).unwrap();
            assert_eq!(pool.replacement(sandbox).unwrap(), Some(Replacement::Halfway));
            pool.discard_replaced(sandbox).unwrap();
        }
        _ => {
            fs::rename(folder.join("disk"), folder.join("disk.next")).unwrap();
            fs::rename(folder.join("disk.replaced"), folder.join("disk")).unwrap();
            assert_eq!(pool.replacement(sandbox).unwrap(), Some(Replacement::Prepared));
            pool.undo_replace(sandbox).unwrap();
        }
    }
    end.is_multiple_of(2)
}

fn act(home: &Home, pool: &mut Pool, model: &mut Model, deed: &Deed) -> Option<()> {
    match *deed {
        Deed::Create => {
            let id = model.name("sbx");
            pool.create_disk(&id, LIMIT).unwrap();
            model.sandboxes.insert(id, Files::new());
        }
        Deed::Write(who, file, text) => {
            let id = model.sandbox(who)?;
            fs::write(pool.disk(&id)?.upper.join(FILES[file]), text.to_string()).unwrap();
            model.sandboxes.get_mut(&id)?.insert(FILES[file].to_owned(), text.to_string());
        }
        Deed::Remove(who, file) => {
            let id = model.sandbox(who)?;
            model.sandboxes.get_mut(&id)?.remove(FILES[file])?;
            fs::remove_file(pool.disk(&id)?.upper.join(FILES[file])).unwrap();
        }
        Deed::Fork(who) => {
            let (id, child) = (model.sandbox(who)?, model.name("sbx"));
            pool.flush_ahead(&id).unwrap();
            pool.snapshot(&id, &child, LIMIT).unwrap();
            model.sandboxes.insert(child, model.sandboxes.get(&id)?.clone());
        }
        Deed::Checkpoint(who, memory) => {
            let (id, name) = (model.sandbox(who)?, model.name("ckp"));
            let memory = memory.then(|| format!("memory of {name}"));
            checkpoint(pool, &id, &name, memory.as_deref());
            model.checkpoints.insert(name, (model.sandboxes.get(&id)?.clone(), memory));
        }
        Deed::CheckpointAsleep(who, from) => {
            let (id, from, name) = (model.sandbox(who)?, model.checkpoint(from)?, model.name("ckp"));
            let image = pool.checkpoint(&from).unwrap().image().unwrap()?;
            let mut staged = pool.stage().unwrap();
            staged.copy_image(&image).unwrap();
            staged.snapshot_disk(pool, &id).unwrap();
            staged.commit_checkpoint(&name).unwrap();
            let memory = model.checkpoints.get(&from)?.1.clone();
            model.checkpoints.insert(name, (model.sandboxes.get(&id)?.clone(), memory));
        }
        Deed::FromCheckpoint(from) => {
            let (from, id) = (model.checkpoint(from)?, model.name("sbx"));
            pool.disk_from_checkpoint(&from, &id, LIMIT).unwrap();
            model.sandboxes.insert(id, model.checkpoints.get(&from)?.0.clone());
        }
        Deed::Restore(who, to, end) => {
            let (id, to) = (model.sandbox(who)?, model.checkpoint(to)?);
            if restore(pool, &id, &to, end) {
                model.sandboxes.insert(id, model.checkpoints.get(&to)?.0.clone());
            }
        }
        Deed::DeleteSandbox(who) => {
            let id = model.sandbox(who)?;
            pool.delete_disk(&id).unwrap();
            model.sandboxes.remove(&id);
        }
        Deed::DeleteCheckpoint(which) => {
            let id = model.checkpoint(which)?;
            pool.delete_checkpoint(&id).unwrap();
            model.checkpoints.remove(&id);
        }
        Deed::Reopen => *pool = home.pool(),
    }
    Some(())
}

#[test]
fn contents_are_always_as_the_model_says() {
    let home = Home::new();
    let config = ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(deeds in prop::collection::vec(deed(), 1..60))| {
        let mut pool = home.pool();
        let mut model = Model::default();
        for deed in &deeds {
            // A deed that finds nothing to work on is none.
            act(&home, &mut pool, &mut model, deed);
        }
        check(&home, &pool, &model);
        pool.close().unwrap();
        let pool = home.pool();
        check(&home, &pool, &model);
        for id in model.sandboxes.keys() {
            pool.delete_disk(id).unwrap();
        }
        for id in model.checkpoints.keys() {
            pool.delete_checkpoint(id).unwrap();
        }
        check(&home, &pool, &Model::default());
    });
}
