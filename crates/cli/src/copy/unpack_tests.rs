use std::fs as std_fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tar::{Builder, Header};

use super::*;

/// An archive whose names are written as given, also where a well-behaved program would refuse to.
struct Hostile {
    builder: Builder<Vec<u8>>,
}

impl Hostile {
    fn new() -> Self {
        Self { builder: Builder::new(Vec::new()) }
    }

    fn add(mut self, kind: EntryType, name: &str, link: &str, content: &[u8], mode: u32) -> Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.builder.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str, content: &[u8]) -> Self {
        self.add(EntryType::Regular, name, "", content, 0o644)
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, b"", 0o777)
    }

    fn unpack(self, root: &Path) -> Result<Unpacked, UnpackError> {
        let bytes = self.builder.into_inner().unwrap();
        unpack(bytes.as_slice(), root)
    }
}

/// A destination beside a folder that nothing may be written to.
fn ground() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    std_fs::create_dir(&root).unwrap();
    std_fs::create_dir(&outside).unwrap();
    (folder, root, outside)
}

fn is_empty(folder: &Path) -> bool {
    std_fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn a_tree_arrives_with_modes_and_links() {
    let (_folder, root, _) = ground();
    let done = Hostile::new()
        .add(EntryType::Directory, "./", "", b"", 0o700)
        .add(EntryType::Directory, "a/", "", b"", 0o555)
        .file("a/b/c", b"deep")
        .add(EntryType::Regular, "run", "", b"#!", 0o4755)
        .link("here", "a/b/c")
        .add(EntryType::Link, "hard", "run", b"", 0)
        .add(EntryType::Char, "null", "", b"", 0o666)
        .unpack(&root)
        .unwrap();
    assert_eq!(done, Unpacked { entries: 5, left_out: vec![PathBuf::from("null")] });
    assert_eq!(std_fs::read(root.join("here")).unwrap(), b"deep");
    let mode = |name: &str| std_fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("a"), mode("run"), mode("a/b/c")), (0o555, 0o755, 0o644));
    let run = std_fs::metadata(root.join("run")).unwrap();
    assert_eq!((run.mtime(), run.nlink()), (1_000_000_000, 2));
}

#[test]
fn names_that_lead_out_are_refused() {
    for name in ["../outside/x", "a/../../outside/x", "/tmp/roost-unpack-escape"] {
        let (_folder, root, outside) = ground();
        let error = Hostile::new().file(name, b"x").unpack(&root).unwrap_err();
        assert!(matches!(error, UnpackError::Escapes { .. }), "{name}: {error}");
        assert!(is_empty(&outside), "{name}");
        assert!(!Path::new("/tmp/roost-unpack-escape").exists());
    }
}

#[test]
fn links_in_the_archive_lead_nothing_out() {
    let (_folder, root, outside) = ground();
    let out = outside.to_str().unwrap().to_owned();
    // The classic: a link to the outside, then a file below it.
    let error = Hostile::new().link("d", &out).file("d/x", b"x").unpack(&root).unwrap_err();
    assert!(matches!(error, UnpackError::ThroughLink { .. }), "{error}");
    // The same by steps that are each inside.
    let error = Hostile::new()
        .link("up", "..")
        .link("d2", "up/outside")
        .add(EntryType::Directory, "d2/", "", b"", 0o755)
        .file("d2/x", b"x")
        .unpack(&root)
        .unwrap_err();
    assert!(matches!(error, UnpackError::ThroughLink { .. }), "{error}");
    assert!(is_empty(&outside));
}

#[test]
fn nothing_is_written_through_a_link_or_hard_link() {
    let (_folder, root, outside) = ground();
    let victim = outside.join("victim");
    std_fs::write(&victim, b"safe").unwrap();
    // A file in the place of a link replaces the link.
    Hostile::new().link("f", victim.to_str().unwrap()).file("f", b"evil").unpack(&root).unwrap();
    assert_eq!(std_fs::read(root.join("f")).unwrap(), b"evil");
    // A link that was there before is replaced as well.
    symlink(&victim, root.join("g")).unwrap();
    Hostile::new().file("g", b"evil").unpack(&root).unwrap();
    // A hard link cannot be made through a link or to the outside.
    let error = Hostile::new()
        .link("d", outside.to_str().unwrap())
        .add(EntryType::Link, "h", "d/victim", b"", 0)
        .unpack(&root)
        .unwrap_err();
    assert!(matches!(error, UnpackError::ThroughLink { .. }), "{error}");
    let out = Hostile::new().add(EntryType::Link, "h", "../outside/victim", b"", 0).unpack(&root).unwrap_err();
    assert!(matches!(out, UnpackError::Escapes { .. }), "{out}");
    // A hard link to a link, overwritten: the link goes, its target stays.
    Hostile::new()
        .link("l", victim.to_str().unwrap())
        .add(EntryType::Link, "l2", "l", b"", 0)
        .file("l2", b"evil")
        .unpack(&root)
        .unwrap();
    assert_eq!(std_fs::read(&victim).unwrap(), b"safe");
    assert_eq!(std_fs::metadata(&victim).unwrap().nlink(), 1);
}

#[test]
fn modes_are_not_given_through_a_link_that_replaced_a_folder() {
    let (_folder, root, outside) = ground();
    std_fs::set_permissions(&outside, std_fs::Permissions::from_mode(0o700)).unwrap();
    // A folder entry cannot be replaced by a link while it is there; the mode of the outside stays in any case.
    let result = Hostile::new()
        .add(EntryType::Directory, "d/", "", b"", 0o777)
        .link("d", outside.to_str().unwrap())
        .unpack(&root);
    assert!(matches!(result, Err(UnpackError::Write { .. })));
    assert_eq!(std_fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_cut_archive_is_an_error() {
    let (_folder, root, _) = ground();
    let bytes = Hostile::new().file("a", &[7; 5000]).builder.into_inner().unwrap();
    assert!(unpack(&bytes[..3000], &root).is_err());
}
