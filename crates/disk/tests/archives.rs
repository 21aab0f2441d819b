//! Templates of archives: hostile, damaged, packed. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use roost_disk::{ImportError, Templates};
use support::Home;
use support::archive::{Tar, assert_only, gzip, import_tar, xattr};
use tar::EntryType;

#[test]
fn a_hostile_archive_stays_inside() {
    let home = Home::new();
    let templates = home.templates();
    let canary = home.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    let outside = canary.to_str().unwrap();

    let mut tar = Tar::default();
    tar.add("./", EntryType::Directory, "", 0, 0o755, b"");
    tar.link("a", "/").file("a/etc/passwd", "by link");
    tar.file("../../../../../../../../tmp/up", "by dots");
    tar.file("/absolute", "by root");
    tar.link("b", "../../../../..").file("b/c/../d/deep", "by both");
    tar.link("direct", outside).file("direct", "replaced");
    tar.link("to-canary", outside);
    tar.link("dev", "/etc").file("dev/null", "in the place of a device");
    tar.link("etc/resolv.conf", "/etc/shadow");
    tar.add("disk", EntryType::Block, "", 0, 0o666, b"");
    tar.add("disk-again", EntryType::Link, "disk", 0, 0o666, b"");
    tar.add("dev/mem", EntryType::Char, "", 0, 0o666, b"");
    tar.file("proc", "not a folder");
    tar.link("tmp2", "tmp");
    tar.file(".wh.file", "no whiteout");
    let template = import_tar(&templates, "hostile", tar.finish()).unwrap();

    assert_eq!(fs::read(&canary).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3, "canary, data and run");
    let root = templates.mount(&template).unwrap();
    let text = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(text("etc/passwd"), "by link");
    assert_eq!(text("tmp/up"), "by dots");
    assert_eq!(text("absolute"), "by root");
    assert_eq!(text("d/deep"), "by both");
    assert_eq!(text("direct"), "replaced");
    assert_eq!(text("etc/resolv.conf"), "nameserver 10.0.0.1\n");
    assert_eq!(text(".wh.file"), "no whiteout");
    assert_eq!(fs::read_link(root.join("to-canary")).unwrap(), canary);
    for gone in ["disk", "disk-again", "dev/mem"] {
        assert!(root.join(gone).symlink_metadata().is_err(), "{gone}");
    }
    for folder in ["proc", "sys", "dev", "run", "tmp", "dev/pts", "dev/shm"] {
        assert!(root.join(folder).symlink_metadata().unwrap().is_dir(), "{folder}");
    }
    assert_eq!(root.join("tmp").metadata().unwrap().mode() & 0o7777, 0o1777);
    let null = root.join("dev/null").symlink_metadata().unwrap();
    assert!(null.file_type().is_char_device() && null.mode() & 0o777 == 0o666);
    assert_eq!(null.rdev(), rustix::fs::makedev(1, 3));
}

#[test]
fn a_link_that_leads_nowhere_inside_is_refused() {
    let home = Home::new();
    let templates = home.templates();
    fs::write(home.path().join("canary"), "untouched").unwrap();
    for target in [home.path().to_str().unwrap(), "/proc/self/root", "/evil"] {
        let mut tar = Tar::default();
        tar.link("evil", target).file("evil/canary", "written through");
        let error = import_tar(&templates, "t", tar.finish()).unwrap_err();
        assert!(matches!(&error, ImportError::File { path, .. } if path == Path::new("evil/canary")), "{error}");
    }
    assert_eq!(fs::read(home.path().join("canary")).unwrap(), b"untouched");
    assert_only(&home, &[]);
}

#[test]
fn hardlinks_do_not_reach_out() {
    let home = Home::new();
    let templates = home.templates();
    let canary = home.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    let refused = |link: &str| {
        let mut tar = Tar::default();
        tar.link("up", "../../../../../../..").add("stolen", EntryType::Link, link, 0, 0o644, b"");
        import_tar(&templates, "t", tar.finish()).unwrap_err()
    };
    for link in [canary.to_str().unwrap(), "../../../../../../../../../etc/passwd", "up/etc/passwd", "missing", ".."] {
        let error = refused(link);
        assert!(matches!(&error, ImportError::File { path, .. } if path == Path::new("stolen")), "{link}: {error}");
    }
    assert_eq!(canary.metadata().unwrap().nlink(), 1);
    assert_only(&home, &[]);
}

#[test]
fn what_a_file_is_survives() {
    let home = Home::new();
    let templates = home.templates();
    // A capability whose bytes hold a newline.
    let capability = [1, 0, 0, 2, b'\n', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = format!("deep/{}", "long/".repeat(40));
    let mut tar = Tar::default();
    tar.pax(&[
        ("SCHILY.xattr.security.capability", &capability),
        ("SCHILY.xattr.user.note", b"two\nlines"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
    ]);
    tar.add("ping", EntryType::Regular, "", 0, 0o755, b"tool");
    tar.add("su", EntryType::Regular, "", 0, 0o4755, b"tool");
    tar.add("home", EntryType::Directory, "", 1000, 0o750, b"").add(
        "home/f",
        EntryType::Regular,
        "",
        1000,
        0o600,
        b"x",
    );
    tar.add("second", EntryType::Link, "home/f", 0, 0o600, b"");
    tar.add("pipe", EntryType::Fifo, "", 0, 0o600, b"");
    tar.pax(&[("path", format!("{long}end").as_bytes())]).file("short", "long name");
    let template = import_tar(&templates, "t", tar.finish()).unwrap();
    let root = templates.mount(&template).unwrap();

    assert_eq!(xattr(&root.join("ping"), "security.capability").unwrap(), capability);
    assert_eq!(xattr(&root.join("ping"), "user.note").unwrap(), b"two\nlines");
    assert_eq!(xattr(&root.join("ping"), "trusted.overlay.opaque"), None);
    assert_eq!(root.join("su").metadata().unwrap().mode() & 0o7777, 0o4755);
    let file = root.join("home/f").metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.nlink(), file.mtime()), (1000, 1000, 2, 1_000_000_000));
    assert_eq!(root.join("second").metadata().unwrap().ino(), file.ino());
    let folder = root.join("home").metadata().unwrap();
    assert_eq!((folder.uid(), folder.mode() & 0o7777, folder.mtime()), (1000, 0o750, 1_000_000_000));
    assert!(root.join("pipe").metadata().unwrap().file_type().is_fifo());
    assert_eq!(fs::read_to_string(root.join(long).join("end")).unwrap(), "long name");
}

#[test]
fn bad_archives_are_refused_and_leave_nothing() {
    let home = Home::new();
    let templates = home.templates();
    let mut stranger = Tar::default();
    stranger.add("f", EntryType::Regular, "", 70_000, 0o644, b"");
    let mut odd = Tar::default();
    odd.add("f", EntryType::GNUSparse, "", 0, 0o644, b"");
    let mut good = Tar::default();
    good.file("f", &"x".repeat(5000));
    let good = good.finish();

    let owner = import_tar(&templates, "t", stranger.finish()).unwrap_err();
    assert_eq!(owner.to_string(), "`f` belongs to 70000:70000, owners must be below 65536");
    for bytes in [odd.finish(), good[..3000].to_vec(), vec![], vec![0; 1024], b"not a tar".repeat(100)] {
        let error = import_tar(&templates, "t", bytes).unwrap_err();
        assert!(matches!(error, ImportError::Archive { .. }), "{error}");
    }
    let full = Templates::open(&home.data(), &home.run()).unwrap().with_reserve(u64::MAX);
    assert!(matches!(import_tar(&full, "t", good).unwrap_err(), ImportError::NoRoom { .. }));
    assert_only(&home, &[]);
}

#[test]
fn packed_archives_are_unpacked() {
    let home = Home::new();
    let templates = home.templates();
    let mut tar = Tar::default();
    tar.file("f", "packed");
    let packed = gzip(&tar.finish());

    let template = import_tar(&templates, "t", packed.clone()).unwrap();
    let root = templates.mount(&template).unwrap();
    assert_eq!(fs::read_to_string(root.join("f")).unwrap(), "packed");

    let cut = packed[..packed.len() - 6].to_vec();
    let error = import_tar(&templates, "cut", cut).unwrap_err();
    assert!(matches!(error, ImportError::Tool { tool: "gzip", .. } | ImportError::Archive { .. }), "{error}");
    let mut damaged = packed;
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    let error = import_tar(&templates, "damaged", damaged).unwrap_err();
    assert!(matches!(error, ImportError::Tool { tool: "gzip", .. }), "{error}");
    assert_only(&home, &["t"]);
}
