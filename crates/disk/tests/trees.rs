//! Archives and folders of strangers: deep, long-named, large, and leftovers that cannot be removed. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use roost_disk::{Existing, ImportError, ImportSource, Template, Templates, TreeLimit, count_aside};
use rustix::fs::{IFlags, Mode, OFlags, ioctl_setflags, mkdirat, openat};
use support::archive::{Tar, import};

/// What a blocking thread of the daemon has.
const STACK: usize = 2 << 20;

fn refused(imported: Result<Template, ImportError>) -> TreeLimit {
    match imported {
        Err(ImportError::Beyond { limit, .. }) => limit,
        other => panic!("{other:?}"),
    }
}

/// Imports on a thread like those of the daemon; nothing but finished templates may be left.
fn import_all(home: &Path, source: impl FnOnce() -> ImportSource + Send) -> Result<Template, ImportError> {
    let templates = Templates::open(home, home).unwrap();
    let imported = thread::scope(|scope| {
        let work = || import(&templates, "t", source(), Existing::Refuse);
        thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).unwrap().join().unwrap()
    });
    let staged = fs::read_dir(home.join("templates")).unwrap().flatten();
    assert!(!staged.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with('.')));
    imported
}

/// An archive of folders within one another, each stretch of them reached by a link to the end of the one before.
fn deep(stretches: usize, length: usize) -> Vec<u8> {
    let mut tar = Tar::default();
    let stretch = "d/".repeat(length);
    for number in 0..stretches {
        let before = if number == 0 { String::new() } else { format!("link{}/", number - 1) };
        tar.folder(&format!("{before}{stretch}"));
        tar.link(&format!("link{number}"), format!("{before}{stretch}").trim_end_matches('/'));
    }
    tar.finish()
}

fn make_deep(top: &Path, levels: usize) {
    let mut folder = OwnedFd::from(File::open(top).unwrap());
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        folder = openat(&folder, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

fn tar_source(bytes: Vec<u8>) -> impl FnOnce() -> ImportSource + Send {
    move || ImportSource::Tar(Box::new(io::Cursor::new(bytes)))
}

#[test]
fn deep_archives_are_refused_and_leave_nothing() {
    for (stretches, length) in [(1, 1500), (2, 1500), (36, 1900)] {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        assert_eq!(refused(import_all(home.path(), tar_source(deep(stretches, length)))), TreeLimit::Depth);
    }
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    assert_eq!(refused(import_all(home.path(), tar_source(deep(1, 100_000)))), TreeLimit::Path);
}

#[test]
fn deep_folder_is_refused() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    make_deep(&source, 20_000);
    let open = || ImportSource::folder(source.clone()).unwrap();
    assert_eq!(refused(import_all(home.path(), open)), TreeLimit::Depth);
    roost_sys::tree::remove(&source).unwrap();
}

#[test]
fn tree_at_the_limits_is_imported() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tar = Tar::default();
    tar.folder(&"d/".repeat(1000));
    let long = "n".repeat(254);
    tar.file(&[long.as_str(); 15].join("/"), "text");
    let templates = Templates::open(home.path(), home.path()).unwrap();
    let template = import(&templates, "t", tar_source(tar.finish())(), Existing::Refuse).unwrap();
    let root = templates.mount(&template).unwrap();
    assert_eq!(fs::read(root.join([long.as_str(); 15].join("/"))).unwrap(), b"text");
    assert!(root.join("d/".repeat(1000)).is_dir());
    Templates::unmount_all(home.path()).unwrap();
}

#[test]
fn name_that_no_image_holds_is_refused() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tar = Tar::default();
    tar.file(&"n".repeat(255), "");
    assert_eq!(refused(import_all(home.path(), tar_source(tar.finish()))), TreeLimit::Name);
    // As a folder on the way to a file, too.
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut tar = Tar::default();
    tar.file(&format!("{}/file", "n".repeat(255)), "");
    assert_eq!(refused(import_all(home.path(), tar_source(tar.finish()))), TreeLimit::Name);
}

#[test]
fn file_that_claims_to_be_endless_is_refused_before_the_disk_is_full() {
    struct Endless(io::Cursor<Vec<u8>>);

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Ok(buffer.len()),
                read => Ok(read),
            }
        }
    }

    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_path("bomb").unwrap();
    header.set_size(1 << 50);
    for set in [tar::Header::set_uid, tar::Header::set_gid, tar::Header::set_mtime] {
        set(&mut header, 0);
    }
    header.set_mode(0o644);
    header.set_cksum();
    let source = Endless(io::Cursor::new(header.as_bytes().to_vec()));
    let free = rustix::fs::statvfs(home.path()).unwrap();
    let reserve = free.f_bavail * free.f_frsize - (256 << 20);
    let templates = Templates::open(home.path(), home.path()).unwrap().with_reserve(reserve);
    let imported = import(&templates, "t", ImportSource::Tar(Box::new(source)), Existing::Refuse);
    assert!(matches!(imported, Err(ImportError::NoRoom { .. })), "{imported:?}");
}

#[test]
fn leftovers_that_cannot_be_removed_are_put_aside() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let leftover = home.path().join("templates/.staging-old");
    fs::create_dir_all(leftover.join("root")).unwrap();
    make_deep(&leftover.join("root"), 3000);
    fs::write(leftover.join("root/gone"), "").unwrap();
    let stuck = File::create(leftover.join("root/stuck")).unwrap();
    ioctl_setflags(&stuck, IFlags::IMMUTABLE).unwrap();
    fs::write(home.path().join("templates/.staging-file"), "odd").unwrap();

    Templates::open(home.path(), home.path()).unwrap();
    ioctl_setflags(&stuck, IFlags::empty()).unwrap();
    assert_eq!(count_aside(home.path()), 1);
    let kept = home.path().join("aside/templates-.staging-old.0/root");
    let left: Vec<_> = fs::read_dir(kept).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["stuck"], "the rest is removed");
    assert!(!leftover.exists());
}

#[test]
fn damaged_templates_are_left_out() {
    let home = tempfile::tempdir_in("/var/tmp").unwrap();
    let templates = Templates::open(home.path(), home.path()).unwrap();
    let mut tar = Tar::default();
    tar.file("file", "");
    let bytes = tar.finish();
    for name in ["sound", "damaged"] {
        import(&templates, name, tar_source(bytes.clone())(), Existing::Refuse).unwrap();
    }
    let mut description = File::create(home.path().join("templates/damaged/current/template.json")).unwrap();
    description.write_all(b"{").unwrap();
    fs::write(home.path().join("templates/file"), "odd").unwrap();
    fs::create_dir(home.path().join("templates/empty")).unwrap();

    let names = |found: Vec<Template>| found.iter().map(|template| template.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(templates.list().unwrap()), ["sound"]);
    let versions = templates.sound_versions().unwrap().into_iter().map(|(_, template)| template).collect();
    assert_eq!(names(versions), ["sound"]);
    // A sweep must not take an unreadable template for an unused one.
    assert!(templates.versions().is_err());
}
