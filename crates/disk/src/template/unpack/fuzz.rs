//! Damaged archives and images: refused, or unpacked, and nothing of them outside of their tree.

use std::fs;

use tar::{Builder, EntryType, Header};

use super::*;
use crate::template::oci::Image;

const BLOCK: usize = 512;

fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1);
    header
}

/// A small root with everything that archives can hold.
fn root() -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for folder in ["etc/", "usr/", "usr/bin/"] {
        archive.append_data(&mut header(EntryType::Directory, 0), folder, io::empty()).unwrap();
    }
    archive.append_pax_extensions([("SCHILY.xattr.user.a", b"1".as_slice()), ("mtime", b"12.5")]).unwrap();
    archive.append_data(&mut header(EntryType::Regular, 5), "etc/name", &b"hello"[..]).unwrap();
    archive.append_link(&mut header(EntryType::Symlink, 0), "bin", "usr/bin").unwrap();
    archive.append_link(&mut header(EntryType::Symlink, 0), "etc/out", "/../../..").unwrap();
    archive.append_link(&mut header(EntryType::Link, 0), "etc/same", "etc/name").unwrap();
    archive.append_data(&mut header(EntryType::Fifo, 0), "etc/pipe", io::empty()).unwrap();
    archive.append_data(&mut header(EntryType::Regular, 1), "etc/.wh.name", &b"x"[..]).unwrap();
    archive.append_data(&mut header(EntryType::Regular, 2), format!("etc/{}", "long".repeat(60)), &b"ab"[..]).unwrap();
    archive.into_inner().unwrap()
}

/// An image of `docker save` with that root for a layer.
fn image() -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    let layer = root();
    let manifest = br#"[{"Config":"config.json","RepoTags":["a:1"],"Layers":["layer.tar","layer.tar"]}]"#;
    let config = br#"{"config":{"Env":["A=1"],"WorkingDir":"/","User":"0:0","Cmd":["sh"]}}"#;
    for (name, bytes) in [("manifest.json", &manifest[..]), ("config.json", &config[..]), ("layer.tar", &layer[..])] {
        archive.append_data(&mut header(EntryType::Regular, bytes.len()), name, bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Makes the checksums of headers right again: what is behind them is to be read too.
fn mend_checksums(archive: &mut [u8]) {
    for block in archive.chunks_exact_mut(BLOCK) {
        if block[257..].starts_with(b"ustar") {
            let block: &mut [u8; BLOCK] = block.try_into().unwrap();
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
            block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
    }
}

/// Unpacks as an import does; whether there is a tree afterwards is not what counts.
fn import(archive: &[u8]) {
    let home = tempfile::tempdir().unwrap();
    let canary = home.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    let [first, second] = ["first", "second"].map(|name| home.path().join(name));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let tree = Tree::open(&first).unwrap();
    let quiet = |_: super::super::import::Progress<'_>| {};
    let mut meter = Meter::new(&first, 0, &quiet).unwrap();
    // What a compressing tool makes of damage is the tool's own.
    if unpacker(archive).is_none() {
        let source = Box::new(io::Cursor::new(archive.to_vec()));
        if unpack(source, &tree, &mut meter, Whiteouts::Plain).is_ok()
            && let Ok(Some(image)) = Image::find(&tree)
        {
            drop(image.defaults());
            drop(image.command());
            drop(image.apply(&tree, &Tree::open(&second).unwrap(), &mut meter));
        }
    }
    assert_eq!(fs::read(&canary).unwrap(), b"untouched");
    let mut left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["canary", "first", "second"]);
}

#[test]
fn fuzz_damaged_archives_stay_inside() {
    roost_fuzz::attack_slow(&[root(), image()], |archive| {
        let mut mended = archive.to_vec();
        mend_checksums(&mut mended);
        import(&mended);
    });
}

#[test]
fn fuzz_archives_are_read_to_their_end_or_refused() {
    roost_fuzz::attack(&[root(), image()], |bytes| {
        let mut archive = Archive::new(bytes);
        let mut read = 0_u64;
        while let Ok(Some(member)) = archive.next() {
            // Skipping to the next is what the reader does anyway.
            drop(member);
            read += 1;
        }
        assert!(read <= (bytes.len() / BLOCK) as u64 + 1);
    });
}
