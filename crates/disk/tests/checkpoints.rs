//! Checkpoints, restores in place and promoted templates for real. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs;
use std::io::Read;
use std::path::Path;

use roost_disk::{
    Depth, DiskError, DiskOf, Existing, ImageError, ImportError, ImportSource, Maker, Pool, Promotion, Replacement,
    Retaining, TemplateError,
};
use roost_model::{Name, Tag, TemplateDefaults, TemplateId, TemplateRef};
use support::Home;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 100 * MIB;

fn random(bytes: u64) -> Vec<u8> {
    let mut content = Vec::new();
    fs::File::open("/dev/urandom").unwrap().take(bytes).read_to_end(&mut content).unwrap();
    content
}

fn read(folder: &Path) -> String {
    fs::read_to_string(folder.join("file")).unwrap()
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// A checkpoint with memory, as a daemon makes it.
fn checkpoint_with_memory(pool: &Pool, sandbox: &str, checkpoint: &str, memory: &str) {
    let mut staged = pool.stage().unwrap();
    fs::write(staged.memory().unwrap().join("pages-1.img"), memory).unwrap();
    staged.snapshot_disk(pool, sandbox).unwrap();
    let maker = Maker { engine: "native".into(), version: "1".into(), cpu: String::new() };
    staged.finish_image(&maker).unwrap();
    staged.commit_checkpoint(checkpoint).unwrap();
}

#[test]
fn a_checkpoint_outlives_its_sandbox_and_its_copies() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "one").unwrap();
    fs::create_dir(disk.work.join("leftover")).unwrap();
    pool.flush_ahead("sbx_a").unwrap();
    assert_eq!(entries(&pool.root().join("sandboxes/sbx_a")), ["disk"]);
    let one = pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    assert!(!one.has_image() && one.image().unwrap().is_none());
    assert!(fs::write(one.upper().join("file"), "x").is_err(), "nobody changes a checkpoint");
    fs::write(disk.upper.join("file"), "two").unwrap();
    checkpoint_with_memory(&pool, "sbx_a", "ckp_2", "pages");
    assert!(matches!(pool.checkpoint_disk("sbx_a", "ckp_1"), Err(ImageError::Exists { .. })));
    assert!(matches!(pool.checkpoint_disk("sbx_none", "ckp_3"), Err(ImageError::Disk(DiskError::NotFound { .. }))));
    assert_eq!(pool.list_checkpoints().unwrap(), ["ckp_1", "ckp_2"]);

    pool.delete_disk("sbx_a").unwrap();
    let child = pool.disk_from_checkpoint("ckp_1", "sbx_b", LIMIT).unwrap();
    assert_eq!(read(&child.upper), "one");
    assert!(entries(&child.work).is_empty());
    assert_eq!(pool.usage("sbx_b").unwrap().unwrap().limit, Some(LIMIT));
    fs::write(child.upper.join("file"), "mine").unwrap();
    pool.disk_from_checkpoint("ckp_1", "sbx_b", LIMIT).unwrap();
    assert_eq!(read(&child.upper), "mine", "a creation that is repeated keeps what is there");

    for _ in 0..2 {
        pool.delete_checkpoint("ckp_1").unwrap();
    }
    assert!(matches!(pool.checkpoint("ckp_1"), Err(ImageError::NotFound { .. })));
    assert!(matches!(pool.disk_from_checkpoint("ckp_1", "sbx_c", LIMIT), Err(DiskError::NotFound { .. })));
    assert_eq!(pool.list_disks().unwrap(), ["sbx_b"], "nothing is left of a creation that was refused");
    let two = pool.checkpoint("ckp_2").unwrap();
    assert_eq!(read(&two.upper()), "two");
    let image = two.image().unwrap().unwrap();
    assert_eq!(fs::read_to_string(image.memory().join("pages-1.img")).unwrap(), "pages");

    // The memory of a checkpoint put to sleep in, and back into a checkpoint.
    image.seal(&|| true).unwrap();
    let staged = pool.stage_image().unwrap();
    staged.copy(&image).unwrap();
    let asleep = staged.commit("img_b").unwrap();
    assert!(asleep.is_sealed() && asleep.verify(Depth::Everything).unwrap());
    let mut staged = pool.stage().unwrap();
    staged.copy_image(&asleep).unwrap();
    staged.snapshot_disk(&pool, "sbx_b").unwrap();
    pool.delete_checkpoint("ckp_2").unwrap();
    pool.delete_image("img_b").unwrap();
    assert!(pool.list_images().unwrap().is_empty());
    let three = staged.commit_checkpoint("ckp_3").unwrap();
    assert_eq!(fs::read_to_string(three.image().unwrap().unwrap().memory().join("pages-1.img")).unwrap(), "pages");
    assert_eq!(read(&three.upper()), "mine");
    assert!(three.image().unwrap().unwrap().verify(Depth::Everything).unwrap());
    assert!(entries(&pool.root().join("staging")).is_empty());
    assert_eq!(entries(&home.images()), [".staging", "ckp_3"]);
    assert!(entries(&home.images().join(".staging")).is_empty());
}

#[test]
fn a_checkpoint_of_the_first_format_is_read_with_the_image_inside() {
    let home = Home::new();
    let pool = home.pool();
    pool.create_disk("sbx_a", LIMIT).unwrap();
    checkpoint_with_memory(&pool, "sbx_a", "ckp_1", "pages");
    // As it was: the image is a subvolume of the checkpoint's folder, and images of the suspended have one in the pool.
    let folder = pool.root().join("checkpoints/ckp_1");
    roost_sys::btrfs::create_subvolume(fs::File::open(&folder).unwrap(), "image".as_ref()).unwrap();
    let inside = folder.join("image");
    fs::create_dir(inside.join("memory")).unwrap();
    fs::write(inside.join("memory/pages-1.img"), "old pages").unwrap();
    let described = r#"{"format": 1, "engine": "native", "version": "1", "created_at": "2025-01-02T03:04:05Z",
        "files": {"pages-1.img": 9}}"#;
    fs::write(inside.join("manifest.json"), described).unwrap();
    fs::write(folder.join("checkpoint.json"), r#"{"format": 1, "created_at": "2025-01-02T03:04:05Z"}"#).unwrap();
    pool.delete_image("ckp_1").unwrap();
    fs::create_dir(pool.root().join("images")).unwrap();
    drop(pool);

    let pool = home.pool();
    assert!(!pool.root().join("images").exists());
    let old = pool.checkpoint("ckp_1").unwrap().image().unwrap().unwrap();
    // It is on another filesystem than images are now.
    let staged = pool.stage_image().unwrap();
    staged.copy(&old).unwrap();
    let copy = staged.commit("img_a").unwrap();
    assert_eq!(fs::read_to_string(copy.memory().join("pages-1.img")).unwrap(), "old pages");
    assert_eq!(copy.created_at(), old.created_at());
    pool.delete_checkpoint("ckp_1").unwrap();
    assert!(entries(&pool.root().join("checkpoints")).is_empty());
    assert!(entries(&pool.root().join("staging")).is_empty());
}

#[test]
fn a_checkpoint_whose_memory_is_gone_keeps_its_files() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "kept").unwrap();
    checkpoint_with_memory(&pool, "sbx_a", "ckp_1", "pages");
    pool.delete_image("ckp_1").unwrap();
    let checkpoint = pool.checkpoint("ckp_1").unwrap();
    assert_eq!(checkpoint.image().unwrap_err().to_string(), "`memory` of `ckp_1` is damaged: it is missing");
    assert_eq!(read(&pool.disk_from_checkpoint("ckp_1", "sbx_b", LIMIT).unwrap().upper), "kept");
}

#[test]
fn a_checkpoint_of_another_format_is_refused() {
    let home = Home::new();
    let pool = home.pool();
    pool.create_disk("sbx_a", LIMIT).unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    fs::write(pool.root().join("checkpoints/ckp_1/checkpoint.json"), r#"{"format": 9}"#).unwrap();
    assert!(matches!(pool.checkpoint("ckp_1"), Err(ImageError::Format { found: 9, .. })));
    pool.delete_checkpoint("ckp_1").unwrap();
    // No disk, no checkpoint.
    assert!(matches!(pool.stage().unwrap().commit_checkpoint("ckp_2"), Err(ImageError::Damaged { .. })));
    assert!(pool.list_checkpoints().unwrap().is_empty());
    assert!(entries(&pool.root().join("staging")).is_empty());
}

/// A sandbox that says `new` whose checkpoint says `old`.
fn changed_sandbox(pool: &Pool, id: &str) {
    let disk = pool.create_disk(id, LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "old").unwrap();
    pool.checkpoint_disk(id, &format!("ckp_{id}")).unwrap();
    fs::write(disk.upper.join("file"), "new").unwrap();
    fs::create_dir(disk.work.join("leftover")).unwrap();
}

#[test]
fn going_back_keeps_what_it_replaces_until_told() {
    let home = Home::new();
    let pool = home.pool();
    changed_sandbox(&pool, "sbx_a");
    let disk = pool.replace_disk("sbx_a", "ckp_sbx_a", LIMIT).unwrap();
    assert_eq!(read(&disk.upper), "old");
    assert!(entries(&disk.work).is_empty());
    assert_eq!(pool.usage("sbx_a").unwrap().unwrap().limit, Some(LIMIT));
    assert_eq!(pool.replacement("sbx_a").unwrap(), Some(Replacement::Replaced));
    assert!(matches!(pool.replace_disk("sbx_a", "ckp_sbx_a", LIMIT), Err(DiskError::Replacing { .. })));
    for _ in 0..2 {
        pool.undo_replace("sbx_a").unwrap();
        assert_eq!(read(&disk.upper), "new");
    }
    pool.replace_disk("sbx_a", "ckp_sbx_a", LIMIT).unwrap();
    for _ in 0..2 {
        pool.discard_replaced("sbx_a").unwrap();
        assert_eq!(read(&disk.upper), "old");
    }
    assert_eq!(entries(&pool.root().join("sandboxes/sbx_a")), ["disk"]);
    assert!(matches!(pool.replace_disk("sbx_a", "ckp_none", LIMIT), Err(DiskError::NotFound { .. })));
    assert_eq!(read(&disk.upper), "old");
    pool.replace_disk("sbx_a", "ckp_sbx_a", LIMIT).unwrap();
    pool.delete_disk("sbx_a").unwrap();
    assert!(pool.list_disks().unwrap().is_empty(), "what was set aside goes too");
}

#[test]
fn a_replacement_stopped_anywhere_goes_either_way() {
    let home = Home::new();
    // The steps by which one disk takes the other's place, each as a kill would leave it.
    let stops: [(Replacement, &[(&str, &str)]); 3] = [
        (Replacement::Prepared, &[("disk", "disk.next"), ("disk.replaced", "disk")]),
        (Replacement::Halfway, &[("disk", "disk.next")]),
        (Replacement::Replaced, &[]),
    ];
    for (index, (stop, renames)) in stops.into_iter().enumerate() {
        for forward in [true, false] {
            let pool = home.pool();
            let id = format!("sbx_{index}{forward}");
            changed_sandbox(&pool, &id);
            pool.replace_disk(&id, &format!("ckp_{id}"), LIMIT).unwrap();
            let folder = pool.root().join("sandboxes").join(&id);
            for (from, to) in renames {
                fs::rename(folder.join(from), folder.join(to)).unwrap();
            }
            drop(pool);
            let pool = home.pool();
            assert_eq!(pool.replacement(&id).unwrap(), Some(stop));
            let expected = match (forward, stop) {
                (true, Replacement::Prepared) => {
                    assert!(matches!(pool.discard_replaced(&id), Err(DiskError::NotReplaced { .. })));
                    // A second try starts over.
                    pool.replace_disk(&id, &format!("ckp_{id}"), LIMIT).unwrap();
                    pool.discard_replaced(&id).unwrap();
                    "old"
                }
                (true, _) => {
                    pool.discard_replaced(&id).unwrap();
                    "old"
                }
                (false, _) => {
                    pool.undo_replace(&id).unwrap();
                    "new"
                }
            };
            assert_eq!(read(&pool.disk(&id).unwrap().upper), expected, "{stop:?} forward: {forward}");
            assert_eq!(pool.replacement(&id).unwrap(), None);
            assert_eq!(entries(&folder), ["disk"]);
        }
    }
}

#[test]
fn leftovers_of_a_kill_are_in_nobodys_way() {
    let home = Home::new();
    let pool = home.pool();
    changed_sandbox(&pool, "sbx_a");
    // What a flush leaves that was cut short, and a preparation.
    let cut_short = pool.root().join("staging/flushing");
    fs::create_dir(&cut_short).unwrap();
    for (folder, name) in [(cut_short.clone(), "flush"), (pool.root().join("sandboxes/sbx_a"), "disk.next")] {
        roost_sys::btrfs::create_subvolume(fs::File::open(folder).unwrap(), name.as_ref()).unwrap();
    }
    drop(pool);
    let pool = home.pool();
    assert!(!cut_short.exists());
    pool.flush_ahead("sbx_a").unwrap();
    pool.replace_disk("sbx_a", "ckp_sbx_a", LIMIT).unwrap();
    pool.undo_replace("sbx_a").unwrap();
    assert_eq!(entries(&pool.root().join("sandboxes/sbx_a")), ["disk"]);
}

#[test]
fn sizes_tell_what_a_deletion_gives_back() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("shared"), random(4 * MIB)).unwrap();
    fs::write(disk.upper.join("first"), random(2 * MIB)).unwrap();
    fs::write(disk.upper.join("small"), "tiny").unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    fs::remove_file(disk.upper.join("first")).unwrap();
    fs::write(disk.upper.join("second"), random(MIB)).unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_2").unwrap();

    let all = [DiskOf::Checkpoint("ckp_1"), DiskOf::Checkpoint("ckp_2"), DiskOf::Sandbox("sbx_a")];
    let sizes = pool.sizes(&all).unwrap();
    assert_eq!((sizes[0].referenced, sizes[0].exclusive), (6 * MIB + 4, 2 * MIB));
    assert_eq!((sizes[1].referenced, sizes[1].exclusive), (5 * MIB + 4, 0));
    assert_eq!(sizes[2], sizes[1]);
    let without_sandbox = pool.sizes(&all[..2]).unwrap();
    assert_eq!(without_sandbox[1].exclusive, MIB);
    assert!(matches!(pool.sizes(&[DiskOf::Checkpoint("ckp_9")]), Err(DiskError::NotFound { .. })));
}

#[test]
fn content_of_several_checkpoints_is_retained_by_the_last_that_stays() {
    let home = Home::new();
    let pool = home.pool();
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("kept"), random(4 * MIB)).unwrap();
    for (number, mib) in [(1, 1), (2, 2), (3, 3)] {
        fs::write(disk.upper.join(format!("file{number}")), random(mib * MIB)).unwrap();
        pool.checkpoint_disk("sbx_a", &format!("ckp_{number}")).unwrap();
    }
    let retained = |stays: [bool; 3]| {
        let checkpoints = ["ckp_1", "ckp_2", "ckp_3"].into_iter().zip(stays);
        let checkpoints: Vec<_> = checkpoints.map(|(id, stays)| Retaining { id, stays }).collect();
        pool.retained("sbx_a", &checkpoints).unwrap()
    };
    assert_eq!(retained([false; 3]), [0, 0, 0], "the disk still holds all of it");
    for number in 1..=3 {
        fs::remove_file(disk.upper.join(format!("file{number}"))).unwrap();
    }
    assert_eq!(retained([false; 3]), [0, 0, 6 * MIB]);
    assert_eq!(retained([false, true, false]), [0, 3 * MIB, 3 * MIB]);
    assert_eq!(retained([true, true, false]), [0, 3 * MIB, 3 * MIB]);
    assert_eq!(retained([true, false, false]), [MIB, 0, 5 * MIB]);
}

#[test]
fn a_promoted_template_stands_on_its_own() {
    let home = Home::new();
    let (pool, templates) = (home.pool(), home.templates());
    let base: Name = "base".parse().unwrap();
    fs::create_dir_all(home.path().join("tree/etc")).unwrap();
    let source = ImportSource::folder(home.path().join("tree")).unwrap();
    let base = templates.import(&base, source, TemplateDefaults::default(), Existing::Refuse, &|_| {}).unwrap();
    assert!(base.changes.is_none() && !base.memory);
    let disk = pool.create_disk("sbx_a", LIMIT).unwrap();
    fs::write(disk.upper.join("file"), "warm").unwrap();
    checkpoint_with_memory(&pool, "sbx_a", "ckp_1", "pages");

    let name: Name = "warm".parse().unwrap();
    let tags = [Tag::default()];
    let promotion = |existing, memory| Promotion {
        id: TemplateId::generate(),
        name: &name,
        tags: &tags,
        checkpoint: "ckp_1",
        digest: &base.digest,
        memory,
        defaults: TemplateDefaults::default(),
        origin: Some(serde_json::json!({"generation": 3})),
        existing,
    };
    let first = templates.promote(&pool, promotion(Existing::Refuse, true)).unwrap();
    assert!(matches!(templates.promote(&pool, promotion(Existing::Refuse, true)), Err(ImportError::Exists { .. })));
    assert!(matches!(
        templates.promote(&pool, Promotion { digest: "0000", ..promotion(Existing::Replace, true) }),
        Err(ImportError::NoBase { .. })
    ));
    assert!(matches!(
        templates.promote(&pool, Promotion { checkpoint: "ckp_9", ..promotion(Existing::Replace, true) }),
        Err(ImportError::Checkpoint { .. })
    ));
    assert_eq!(templates.get(&name).unwrap().as_ref(), Some(&first));
    assert_eq!((first.memory, &first.digest), (true, &base.digest));

    // Everything it was made from goes, in the worst order.
    pool.delete_checkpoint("ckp_1").unwrap();
    templates.remove(&base.name.clone().into(), &|_| false).unwrap();
    pool.delete_disk("sbx_a").unwrap();
    templates.sweep_seeds(&pool).unwrap();
    templates.sweep(&|_| false).unwrap();
    let seed = first.changes.clone().unwrap();
    assert_eq!(entries(&pool.root().join("templates")), std::slice::from_ref(&seed));
    assert_eq!(pool.list_images().unwrap(), std::slice::from_ref(&seed));
    let image = pool.seed(&seed).unwrap().image().unwrap().unwrap();
    assert_eq!(fs::read_to_string(image.memory().join("pages-1.img")).unwrap(), "pages");
    let child = pool.disk_from_seed(&seed, "sbx_b", LIMIT).unwrap();
    assert_eq!(read(&child.upper), "warm");
    let found = home.templates().find_digest(&base.digest).unwrap().unwrap();
    assert_eq!(found, first);
    assert!(templates.mount(&found).unwrap().join("dev").is_dir());

    // Replaced: the old one's disk goes, sandboxes made from it do not notice.
    pool.checkpoint_disk("sbx_b", "ckp_1").unwrap();
    let second = templates.promote(&pool, promotion(Existing::Replace, false)).unwrap();
    assert!(!second.memory);
    templates.sweep_seeds(&pool).unwrap();
    let in_use = |digest: &str| digest == base.digest;
    templates.sweep(&in_use).unwrap();
    assert_eq!(entries(&pool.root().join("templates")), [second.changes.clone().unwrap()]);
    assert!(pool.list_images().unwrap().is_empty(), "the memory goes with the disk");
    templates.remove(&name.clone().into(), &in_use).unwrap();
    templates.sweep_seeds(&pool).unwrap();
    assert!(entries(&pool.root().join("templates")).is_empty());
    assert!(templates.find_digest(&base.digest).unwrap().is_some(), "a sandbox still stands on the image");
    assert_eq!(read(&child.upper), "warm");
    templates.sweep(&|_| false).unwrap();
    assert!(entries(&home.data().join("templates")).is_empty());
}

#[test]
fn tags_keep_versions_of_a_template() {
    let home = Home::new();
    let (pool, templates) = (home.pool(), home.templates());
    fs::create_dir_all(home.path().join("tree/etc")).unwrap();
    let source = ImportSource::folder(home.path().join("tree")).unwrap();
    let base: Name = "base".parse().unwrap();
    let base = templates.import(&base, source, TemplateDefaults::default(), Existing::Refuse, &|_| {}).unwrap();
    pool.create_disk("sbx_a", LIMIT).unwrap();
    pool.checkpoint_disk("sbx_a", "ckp_1").unwrap();
    let name: Name = "web".parse().unwrap();
    let tag = |text: &str| text.parse::<Tag>().unwrap();
    let named = |text: &str| text.parse::<TemplateRef>().unwrap();
    let promote = |tags: &[Tag]| {
        let promotion = Promotion {
            id: TemplateId::generate(),
            name: &name,
            tags,
            checkpoint: "ckp_1",
            digest: &base.digest,
            memory: false,
            defaults: TemplateDefaults::default(),
            origin: None,
            existing: Existing::Replace,
        };
        templates.promote(&pool, promotion).unwrap()
    };
    let first = promote(&[tag("v1"), tag("stable")]);
    assert!(templates.get(&name).unwrap().is_none(), "a tag alone is no default");
    let second = promote(&[tag("default"), tag("stable")]);
    assert_eq!(templates.find(&named("web:v1")).unwrap().unwrap().id, first.id);
    assert_eq!(templates.find(&named("web:stable")).unwrap().unwrap().id, second.id);
    assert_eq!(templates.find(&named("web")).unwrap().unwrap().id, second.id);
    assert_eq!(templates.tag(&named("web:v1"), &[tag("old"), tag("stable")]).unwrap(), first.id);
    assert!(matches!(templates.tag(&named("web:none"), &[tag("x")]), Err(TemplateError::NotFound { .. })));
    let tags = templates.tags(&name).unwrap();
    let told: Vec<_> = tags.iter().map(|known| (known.tag.as_str(), known.template == first.id)).collect();
    assert_eq!(told, [("default", false), ("old", true), ("stable", true), ("v1", true)]);

    // What a tag means stays, also when nothing else does.
    templates.sweep_seeds(&pool).unwrap();
    templates.sweep(&|_| false).unwrap();
    assert_eq!(entries(&pool.root().join("templates")).len(), 2);
    for gone in ["web:v1", "web:old"] {
        templates.remove(&named(gone), &|_| false).unwrap();
    }
    assert!(matches!(templates.remove(&named("web:v1"), &|_| false), Err(TemplateError::NotFound { .. })));
    templates.sweep_seeds(&pool).unwrap();
    pool.disk_from_seed(first.id.as_str(), "sbx_b", LIMIT).unwrap();
    templates.remove(&named("web"), &|_| false).unwrap();
    assert!(templates.tags(&name).unwrap().is_empty(), "the tags go with the name");
    templates.sweep_seeds(&pool).unwrap();
    assert!(entries(&pool.root().join("templates")).is_empty());
}
