//! Templates of images with layers, as other tools save them. Needs root.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

#[expect(dead_code, reason = "each test file uses its part")]
mod support;

use std::{fs, io};

use roost_disk::{Existing, ImportSource};
use roost_model::TemplateDefaults;
use support::Home;
use support::archive::{Tar, gzip, name};
use tar::EntryType;

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
