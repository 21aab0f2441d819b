//! Templates for real: hostile archives, EROFS images, mounts. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::cell::Cell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use roost_disk::{Existing, ImportError, ImportSource, TemplateError, Templates, build_mini};
use roost_model::{Name, TemplateDefaults};
use support::Home;
use tar::{EntryType, Header};

/// An archive that says whatever a test wants, unlike one made by a well-behaved builder.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn add(&mut self, name: &str, kind: EntryType, link: &str, owner: u64, mode: u32, data: &[u8]) -> &mut Self {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(1_000_000_000);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            header.set_device_major(8).unwrap();
            header.set_device_minor(0).unwrap();
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(&mut self, name: &str, text: &str) -> &mut Self {
        self.add(name, EntryType::Regular, "", 0, 0o644, text.as_bytes())
    }

    fn folder(&mut self, name: &str) -> &mut Self {
        self.add(name, EntryType::Directory, "", 0, 0o755, b"")
    }

    fn link(&mut self, name: &str, target: &str) -> &mut Self {
        self.add(name, EntryType::Symlink, target, 0, 0o777, b"")
    }

    fn pax(&mut self, records: &[(&str, &[u8])]) -> &mut Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = (1..).map(|digits| rest + digits).find(|n| n.to_string().len() + rest == *n).unwrap();
            write!(data, "{length} {key}=").unwrap();
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.add("pax", EntryType::XHeader, "", 0, 0o644, &data)
    }

    fn finish(&self) -> Vec<u8> {
        [self.0.as_slice(), &[0; 1024]].concat()
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gzip.stdin.take().unwrap().write_all(bytes).unwrap();
    gzip.wait_with_output().unwrap().stdout
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn import(
    templates: &Templates,
    template: &str,
    source: ImportSource,
    existing: Existing,
) -> Result<roost_disk::Template, ImportError> {
    templates.import(name(template), source, TemplateDefaults::default(), existing, &|_| {})
}

fn import_tar(templates: &Templates, template: &str, bytes: Vec<u8>) -> Result<roost_disk::Template, ImportError> {
    import(templates, template, ImportSource::Tar(Box::new(io::Cursor::new(bytes))), Existing::Refuse)
}

/// Nothing but the named templates lies in the store.
fn assert_only(home: &Home, names: &[&str]) {
    let mut found: Vec<_> = fs::read_dir(home.data().join("templates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, names);
}

fn xattr(path: &Path, key: &str) -> Option<Vec<u8>> {
    let mut value = vec![0_u8; 256];
    let length = rustix::fs::lgetxattr(path, key, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

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

    let template = import(&templates, "t", ImportSource::Folder(source.clone()), Existing::Refuse).unwrap();
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

    let missing = ImportSource::Folder(home.path().join("missing"));
    assert!(matches!(import(&templates, "x", missing, Existing::Refuse), Err(ImportError::Folder { .. })));
    let file = ImportSource::Folder(home.path().join("secret"));
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

/// The archive of an image with these layers, as `docker save` or as an OCI layout would write it.
fn image_archive(layers: &[Vec<u8>], layout: bool) -> Vec<u8> {
    let config = r#"{"config": {"Env": ["LANG=C"], "WorkingDir": "/srv", "User": "7:8", "Cmd": ["serve"]}}"#;
    let mut archive = Tar::default();
    let names: Vec<String> = (1..=layers.len()).map(|place| format!("blobs/sha256/{place:064}")).collect();
    for (name, layer) in names.iter().zip(layers) {
        archive.add(name, EntryType::Regular, "", 0, 0o644, layer);
    }
    let quoted = |texts: &[String]| texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(",");
    if layout {
        let digest = |name: &String| format!("{{\"digest\": \"{}\"}}", name.replace("blobs/sha256/", "sha256:"));
        let layers = names.iter().map(digest).collect::<Vec<_>>().join(",");
        archive
            .file("oci-layout", r#"{"imageLayoutVersion": "1.0.0"}"#)
            .file("index.json", r#"{"manifests": [{"digest": "sha256:aa", "mediaType": "x.manifest.v1+json"}]}"#)
            .file("blobs/sha256/aa", &format!(r#"{{"config": {{"digest": "sha256:bb"}}, "layers": [{layers}]}}"#))
            .file("blobs/sha256/bb", config);
    } else {
        let manifest = format!(r#"[{{"Config": "config.json", "RepoTags": ["x:1"], "Layers": [{}]}}]"#, quoted(&names));
        archive.file("manifest.json", &manifest).file("config.json", config);
    }
    archive.finish()
}

#[test]
fn layers_of_an_image_are_applied_in_order_with_what_they_remove() {
    let layers = [
        Tar::default()
            .folder("etc/")
            .file("etc/one", "first")
            .file("etc/gone", "x")
            .folder("opt/")
            .file("opt/old", "x")
            .folder("opt/kept/")
            .file("opt/kept/deep", "x")
            .file("data", "x")
            .finish(),
        // Removals are obeyed before what the same layer brings, wherever they stand in it.
        Tar::default()
            .file("opt/new", "second")
            .file("opt/.wh..wh..opq", "")
            .file("etc/one", "second")
            .file("etc/.wh.gone", "")
            .file(".wh.data", "")
            .file("data/inner", "a folder now")
            .file("none/.wh.what", "")
            .file("etc/.wh...", "")
            .finish(),
        gzip(&Tar::default().file("etc/last", "third").finish()),
        Tar::default().finish(),
    ];
    for layout in [false, true] {
        let home = Home::new();
        let templates = home.templates();
        let archive = image_archive(&layers, layout);
        let wanted = TemplateDefaults { workdir: Some("/mine".into()), ..TemplateDefaults::default() };
        let named: roost_model::TemplateRef = "app:v1".parse().unwrap();
        let source = ImportSource::Tar(Box::new(io::Cursor::new(archive)));
        let template = templates.import(named.clone(), source, wanted, Existing::Refuse, &|_| {}).unwrap();
        assert_eq!(templates.find(&named).unwrap().as_ref(), Some(&template));
        assert!(templates.get(&name("app")).unwrap().is_none());
        assert_eq!(
            (template.defaults.user.as_deref(), template.defaults.workdir.as_deref()),
            (Some("7:8"), Some("/mine"))
        );
        assert_eq!(template.defaults.env["LANG"], "C");
        assert_eq!(template.command(), ["serve"]);
        let root = templates.mount(&template).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        assert_eq!(read("etc/one").as_deref(), Some("second"));
        assert_eq!(read("etc/last").as_deref(), Some("third"));
        assert_eq!(read("data/inner").as_deref(), Some("a folder now"));
        assert_eq!(read("opt/new").as_deref(), Some("second"));
        for gone in ["etc/gone", "opt/old", "opt/kept", "etc/.wh.gone", "opt/.wh..wh..opq", "manifest.json", "blobs"] {
            assert!(!root.join(gone).exists(), "{gone}");
        }
    }
}

#[test]
fn an_image_that_is_not_whole_is_refused() {
    let layer = Tar::default().file("etc/one", "x").finish();
    let refused = |archive: Vec<u8>| {
        let home = Home::new();
        let source = ImportSource::Tar(Box::new(io::Cursor::new(archive)));
        let made = home.templates().import(name("t"), source, TemplateDefaults::default(), Existing::Refuse, &|_| {});
        let error = roost_model::chain(&made.unwrap_err());
        assert_eq!(fs::read_dir(home.data().join("templates")).unwrap().count(), 0, "{error}");
        error
    };
    let manifest = |text: &str| Tar::default().file("manifest.json", text).file("c", "{}").finish();
    let one = r#"{"Config": "c", "Layers": ["../../../etc/passwd"]}"#;
    assert!(refused(manifest(&format!("[{one}]"))).contains("etc/passwd"));
    assert!(refused(manifest(&format!("[{one}, {one}]"))).contains("2 images"));
    assert!(refused(manifest("[]")).contains("images"));
    assert!(refused(manifest("what")).contains("manifest.json"));
    assert!(refused(manifest(r#"[{"Config": "c", "Layers": []}]"#)).contains("0 layers"));
    let whole = image_archive(&[layer[..layer.len() - 1024].to_vec()], true);
    assert!(refused(whole).contains("cut short"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 24, ..Default::default() })]

    /// Whatever an archive says, it is refused or it makes a template, and nothing of it is outside.
    #[test]
    fn damaged_archives_do_no_harm(at in 0usize..6000, byte: u8, cut in 0usize..6000, layout: bool) {
        let layers = [Tar::default().folder("etc/").file("etc/one", "x").link("etc/l", "/../..").file("etc/.wh.one", "").finish()];
        let mut archive = image_archive(&layers, layout);
        let length = archive.len();
        archive[at % length] = byte;
        archive.truncate(length - cut % (length / 4));
        let home = Home::new();
        let source = ImportSource::Tar(Box::new(io::Cursor::new(archive)));
        let made = home.templates().import(name("t"), source, TemplateDefaults::default(), Existing::Refuse, &|_| {});
        let left = fs::read_dir(home.data().join("templates")).unwrap().count();
        proptest::prop_assert_eq!(left, usize::from(made.is_ok()));
    }
}
