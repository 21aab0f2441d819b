//! Templates for real: EROFS images, mounts, what is left of them. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::cell::Cell;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::process::Command;

use roost_disk::{Existing, ImportError, ImportSource, TemplateError, Templates, build_mini};
use roost_model::TemplateDefaults;
use support::Home;
use support::archive::{Tar, assert_only, import, name, xattr};

#[test]
fn a_folder_is_copied_as_it_is() {
    let home = Home::new();
    let templates = home.templates();
    let source = home.path().join("source");
    fs::create_dir_all(source.join("bin")).unwrap();
    fs::write(home.path().join("secret"), "secret").unwrap();
    fs::write(source.join("bin/tool"), "tool").unwrap();
    fs::hard_link(source.join("bin/tool"), source.join("bin/alias")).unwrap();
    chown(source.join("bin/tool"), Some(1000), Some(1000)).unwrap();
    symlink(home.path().join("secret"), source.join("out")).unwrap();
    symlink(home.path(), source.join("out-folder")).unwrap();
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    rustix::fs::fsetxattr(&sparse, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    let strange = std::ffi::OsStr::from_bytes(b"na\xffme\n");
    fs::write(source.join(strange), "odd").unwrap();
    let status = Command::new("mknod").arg(source.join("sda")).args(["b", "8", "0"]).status().unwrap();
    assert!(status.success());
    let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();

    let template = import(&templates, "t", ImportSource::folder(source.clone()).unwrap(), Existing::Refuse).unwrap();
    let root = templates.mount(&template).unwrap();
    let tool = root.join("bin/tool").metadata().unwrap();
    assert_eq!((tool.uid(), tool.nlink()), (1000, 2));
    assert_eq!(root.join("bin/alias").metadata().unwrap().ino(), tool.ino());
    assert_eq!(fs::read_link(root.join("out")).unwrap(), home.path().join("secret"));
    assert!(root.join("out-folder").symlink_metadata().unwrap().is_symlink());
    assert_eq!(root.join("sparse").metadata().unwrap().len(), 64 << 20);
    assert_eq!(xattr(&root.join("sparse"), "user.note").unwrap(), b"kept");
    assert_eq!(fs::read_to_string(root.join(strange)).unwrap(), "odd");
    assert!(root.join("sda").symlink_metadata().is_err());
    assert!(root.join("socket").symlink_metadata().is_err());
    assert!(template.size < 1 << 20, "a hole is not stored: {}", template.size);

    assert!(matches!(ImportSource::folder(home.path().join("missing")), Err(ImportError::Folder { .. })));
    let file = ImportSource::folder(home.path().join("secret")).unwrap();
    assert!(matches!(import(&templates, "x", file, Existing::Refuse), Err(ImportError::Folder { .. })));
}

#[test]
fn an_interrupted_import_leaves_nothing() {
    struct Breaks(io::Cursor<Vec<u8>>, bool);
    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 if self.1 => panic!("the client is gone"),
                0 => Err(io::ErrorKind::ConnectionReset.into()),
                read => Ok(read),
            }
        }
    }
    let home = Home::new();
    let templates = home.templates();
    let mut tar = Tar::default();
    tar.file("a", "first").file("b", &"x".repeat(100_000));
    let half = tar.finish()[..50_000].to_vec();

    let reader = Box::new(Breaks(io::Cursor::new(half.clone()), false));
    let error = import(&templates, "t", ImportSource::Tar(reader), Existing::Refuse).unwrap_err();
    assert!(matches!(error, ImportError::Archive { .. }), "{error}");
    assert_only(&home, &[]);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let reader = Box::new(Breaks(io::Cursor::new(half), true));
        import(&templates, "t", ImportSource::Tar(reader), Existing::Refuse)
    }));
    assert!(panicked.is_err());
    assert_only(&home, &[]);

    // What a killed maker leaves is swept at the next start; what a living one works on is not.
    fs::create_dir_all(home.data().join("templates/.staging-killed/root/etc")).unwrap();
    let during = Cell::new(0);
    let source = ImportSource::Tar(Box::new(io::Cursor::new(tar.finish())));
    let look = |_: roost_disk::Progress<'_>| {
        let again = home.templates();
        assert!(again.list().unwrap().is_empty());
        during.set(during.get() + 1);
    };
    templates.import(name("t"), source, TemplateDefaults::default(), Existing::Refuse, &look).unwrap();
    assert!(during.get() >= 3, "copy, pack and publish were told");
    assert_only(&home, &["t"]);
}

#[test]
fn images_in_use_outlive_their_names() {
    let home = Home::new();
    let templates = home.templates();
    let version = |text: &str| {
        let mut tar = Tar::default();
        tar.file("version", text);
        ImportSource::Tar(Box::new(io::Cursor::new(tar.finish())))
    };
    let old = import(&templates, "t", version("old"), Existing::Refuse).unwrap();
    let refused = import(&templates, "t", version("new"), Existing::Refuse).unwrap_err();
    assert_eq!(refused.to_string(), "template `t` exists");
    let old_root = templates.mount(&old).unwrap();
    assert_eq!(templates.mount(&old).unwrap(), old_root, "mounting twice is mounting once");
    let new = import(&templates, "t", version("new"), Existing::Replace).unwrap();
    assert_eq!(templates.get(&name("t")).unwrap().unwrap(), new);
    assert_eq!(templates.list().unwrap(), std::slice::from_ref(&new));
    assert_eq!(fs::read_to_string(old_root.join("version")).unwrap(), "old");

    let needs_old = |digest: &str| digest == old.digest;
    templates.sweep(&needs_old).unwrap();
    templates.remove(&name("t").into(), &needs_old).unwrap();
    assert!(templates.get(&name("t")).unwrap().is_none());
    assert!(templates.find_digest(&new.digest).unwrap().is_none());
    assert!(matches!(templates.remove(&name("t").into(), &needs_old), Err(TemplateError::NotFound { .. })));

    // A host that was started anew mounts it again from what is left.
    Templates::unmount_all(&home.run()).unwrap();
    assert!(old_root.symlink_metadata().is_err());
    let found = home.templates().find_digest(&old.digest).unwrap().unwrap();
    assert_eq!(fs::read_to_string(templates.mount(&found).unwrap().join("version")).unwrap(), "old");
    // The name is free, and an image in use is no obstacle to it.
    import(&templates, "t", version("newer"), Existing::Refuse).unwrap();

    let held = fs::File::open(old_root.join("version")).unwrap();
    templates.sweep(&|_| false).unwrap();
    assert!(templates.find_digest(&old.digest).unwrap().is_some(), "a busy image waits for the next sweep");
    drop(held);
    templates.sweep(&|_| false).unwrap();
    assert!(templates.find_digest(&old.digest).unwrap().is_none());
    assert!(old_root.symlink_metadata().is_err(), "its mount is gone too");
    templates.remove(&name("t").into(), &|_| false).unwrap();
    assert_only(&home, &[]);
}

#[test]
fn mini_is_a_small_system() {
    let home = Home::new();
    let templates = home.templates();
    let mini = "mini".parse().unwrap();
    let template = build_mini(&templates, &mini, Existing::Refuse, &|_| {}).unwrap();
    let refused = build_mini(&templates, &mini, Existing::Refuse, &|_| {});
    assert!(matches!(refused, Err(ImportError::Exists { .. })));
    let again = build_mini(&templates, &mini, Existing::Replace, &|_| {}).unwrap();
    assert_eq!(templates.list().unwrap(), [again]);
    let root = templates.mount(&template).unwrap();
    let script = "id -un && ls -ld /home/user | awk '{print $3}' && cat /etc/resolv.conf && echo x > /dev/null";
    let output = Command::new("chroot").arg(&root).args(["/bin/sh", "-ec", script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "root\nuser\nnameserver 10.0.0.1\n");
    assert!(fs::write(root.join("new"), "x").is_err(), "an image is read-only");
}
