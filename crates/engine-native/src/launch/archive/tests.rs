//! What one side packs the other unpacks, be it this program's or the system's.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use super::*;

/// Name, kind and mode, time, and content or target of all that is in a folder.
fn listing(folder: &Path) -> Vec<(String, u32, i64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(within) = folders.pop() {
        let path = folder.join(&within);
        let about = fs::symlink_metadata(&path).unwrap();
        let content = match about.file_type() {
            kind if kind.is_dir() => {
                let names = fs::read_dir(&path).unwrap().map(|entry| within.join(entry.unwrap().file_name()));
                folders.extend(names);
                Vec::new()
            }
            kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
            _ => fs::read(&path).unwrap(),
        };
        found.push((within.to_string_lossy().into_owned(), about.mode(), about.mtime(), content));
    }
    found.sort();
    found
}

/// What a sandbox has in its folders in memory.
fn usual() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("roost/bin")).unwrap();
    fs::create_dir(path("locked")).unwrap();
    fs::write(path("roost/name"), "box\n").unwrap();
    fs::write(path("roost/empty"), "").unwrap();
    fs::write(path("locked/block"), [7; 512]).unwrap();
    fs::write(path("locked/ blanks and ümlauts"), [8; 513]).unwrap();
    symlink("../guest", path("roost/bin/roost-guest")).unwrap();
    let modes = [("roost/name", 0o640), ("roost/empty", 0o4755), ("locked", 0o500), ("", 0o1777)];
    for (name, mode) in modes {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    File::open(path("roost/name")).unwrap().set_modified(past).unwrap();
    File::open(path("locked")).unwrap().set_modified(past).unwrap();
    folder
}

fn system(arguments: &[&str], folder: &Path, input: Stdio, output: Stdio) {
    let mut tar = Command::new("tar");
    let done = tar.args(arguments).arg("--directory").arg(folder).stdin(input).stdout(output);
    let done = if arguments.contains(&"--create") { done.arg(".") } else { done };
    assert!(done.status().unwrap().success());
}

fn begin(file: &File) {
    (&*file).seek(SeekFrom::Start(0)).unwrap();
}

fn is_unusual<T: std::fmt::Debug>(done: Result<T, Unfit>) -> bool {
    matches!(done.unwrap_err(), Unfit::Unusual)
}

#[test]
fn what_is_packed_here_comes_back_here_and_by_the_systems_own() {
    let (folder, archive) = (usual(), tempfile::tempfile().unwrap());
    pack::pack(folder.path(), archive.as_fd()).unwrap();
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    begin(&archive);
    unpack::unpack(archive.as_fd(), here.path()).unwrap();
    begin(&archive);
    system(&["--extract", "--preserve-permissions"], there.path(), archive.into(), Stdio::null());
    assert_eq!(listing(here.path()), listing(folder.path()));
    assert_eq!(listing(there.path()), listing(folder.path()));
}

#[test]
fn what_the_systems_own_packed_comes_back() {
    let (folder, archive) = (usual(), tempfile::tempfile().unwrap());
    let _listens = std::os::unix::net::UnixListener::bind(folder.path().join("roost/sock")).unwrap();
    let arguments = ["--create", "--one-file-system", "--check-links", "--sparse", "--numeric-owner"];
    system(&arguments, folder.path(), Stdio::null(), archive.try_clone().unwrap().into());
    begin(&archive);
    let here = tempfile::tempdir().unwrap();
    unpack::unpack(archive.as_fd(), here.path()).unwrap();
    fs::remove_file(folder.path().join("roost/sock")).unwrap();
    // The time of the folder that the socket was removed from is another now.
    let but_that = |folder: &Path| listing(folder).into_iter().filter(|(name, ..)| name != "roost").collect::<Vec<_>>();
    assert_eq!(but_that(here.path()), but_that(folder.path()));
}

#[test]
fn whatever_is_unusual_is_left_alone() {
    let cases: [fn(&Path); 5] = [
        |folder| fs::hard_link(folder.join("roost/name"), folder.join("again")).unwrap(),
        |folder| File::create(folder.join("hole")).unwrap().set_len(1 << 20).unwrap(),
        |folder| fs::write(folder.join("large"), vec![1; MOST]).unwrap(),
        |folder| fs::write(folder.join("n".repeat(120)), "").unwrap(),
        |folder| assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success()),
    ];
    for (number, change) in cases.into_iter().enumerate() {
        let (folder, archive) = (usual(), tempfile::tempfile().unwrap());
        change(folder.path());
        assert!(is_unusual(pack::pack(folder.path(), archive.as_fd())), "case {number}");
        assert_eq!(archive.metadata().unwrap().len(), 0, "case {number}");

        system(&["--create", "--sparse"], folder.path(), Stdio::null(), archive.try_clone().unwrap().into());
        begin(&archive);
        let here = tempfile::tempdir().unwrap();
        assert!(is_unusual(unpack::unpack(archive.as_fd(), here.path())), "case {number}");
        assert_eq!((&archive).stream_position().unwrap(), 0, "case {number}");
        assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "case {number}");
    }
}

#[test]
fn names_that_lead_out_and_damage_are_left_alone() {
    for name in ["../out", "./a/../../out", "/out"] {
        let header = header::Header {
            name: name.as_bytes().to_vec(),
            kind: header::Kind::File(0),
            mode: 0o644,
            user: 0,
            group: 0,
            time: 0,
        };
        let (mut block, here) = (header.write().unwrap(), tempfile::tempdir().unwrap());
        let unpacked = |block: &[u8]| {
            let archive = tempfile::tempfile().unwrap();
            std::io::Write::write_all(&mut &archive, &[block, &[0; 1024]].concat()).unwrap();
            begin(&archive);
            unpack::unpack(archive.as_fd(), here.path())
        };
        assert!(is_unusual(unpacked(&block)), "{name}");
        block[0] ^= 1;
        assert!(is_unusual(unpacked(&block)), "damaged {name}");
        assert!(is_unusual(unpacked(&block[..100])), "cut {name}");
    }
}

#[test]
fn a_link_in_an_archive_leads_nowhere() {
    let (archive, here, out) =
        (tempfile::tempfile().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let header = |name: &str, kind| header::Header {
        name: name.as_bytes().to_vec(),
        kind,
        mode: 0o644,
        user: 0,
        group: 0,
        time: 0,
    };
    let target = out.path().as_os_str().as_encoded_bytes().to_vec();
    let blocks = [header("./a", header::Kind::Link(target)), header("./a/out", header::Kind::File(0))];
    let blocks: Vec<u8> = blocks.iter().flat_map(|header| header.write().unwrap()).chain([0; 1024]).collect();
    std::io::Write::write_all(&mut &archive, &blocks).unwrap();
    begin(&archive);
    assert!(matches!(unpack::unpack(archive.as_fd(), here.path()), Err(Unfit::Failed(_))));
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn only_what_criu_says_is_done_here() {
    let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let pack = "--create --gzip --no-unquote --no-wildcards --one-file-system --check-links --preserve-permissions \
                --sparse --numeric-owner --directory /proc/self/fd/7 .";
    assert_eq!(Task::of(&words(pack)), Some(Task::Pack("/proc/self/fd/7".into())));
    let unpack = "--extract --gzip --no-unquote --no-wildcards --directory /run";
    assert_eq!(Task::of(&words(unpack)), Some(Task::Unpack("/run".into())));
    for other in ["--version", "--create --xattrs --directory /run .", "--create --directory /run a b", "--extract", ""]
    {
        assert_eq!(Task::of(&words(other)), None, "{other}");
    }
}
