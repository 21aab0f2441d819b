//! Files: every call, large ones, watches and archives.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::{Guest, refused};
use bytes::Bytes;
use futures_util::StreamExt;
use roost_wire::client::Connection;
use roost_wire::{
    ArchiveIn, ArchiveOut, Chmod, Chown, ErrorCode, EventKind, FileKind, FileStat, ListDir, MakeDir, MovePath, PathOf,
    ReadFile, RemovePath, Reply, Request, Symlink, Watch, WriteFile, WriteHow,
};
use tokio::net::TcpStream;

fn write(path: &str) -> WriteFile {
    WriteFile { path: path.to_owned(), ..WriteFile::default() }
}

fn read(path: &str) -> ReadFile {
    ReadFile { path: path.to_owned(), user: None, offset: 0, len: None }
}

fn of(path: &str) -> PathOf {
    PathOf { path: path.to_owned(), user: None }
}

async fn read_all(connection: Connection<TcpStream>, request: ReadFile) -> Vec<u8> {
    let mut stream = connection.read_file(request).await.unwrap();
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert!(stream.into_connection().is_some());
    all
}

async fn entries(guest: &Guest, path: &str, depth: u32) -> Vec<FileStat> {
    let request = ListDir { path: path.to_owned(), user: None, depth };
    let mut stream = guest.connect().await.list(request).await.unwrap();
    let mut all = Vec::new();
    while let Some(batch) = stream.next().await {
        all.extend(batch.unwrap().entries);
    }
    all
}

#[tokio::test]
async fn sixty_four_megabytes_survive_a_round_trip() {
    let guest = Guest::start();
    let block: Vec<u8> = (0..1_000_003u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()).collect();
    let block = Bytes::from(block);
    let (mut sent, mut pieces) = (blake3::Hasher::new(), Vec::new());
    for _ in 0..17 {
        sent.update(&block);
        pieces.push(Ok::<_, std::io::Error>(block.clone()));
    }
    let mut connection = guest.connect().await;
    let stat = connection.write_file(write("big"), futures_util::stream::iter(pieces)).await.unwrap();
    assert_eq!(stat.size, 17 * block.len() as u64);
    assert!(stat.size > 64 * 1024 * 1024);
    let mut received = blake3::Hasher::new();
    let mut stream = Box::pin(connection.read_file(read("big")).await.unwrap().into_stream());
    while let Some(piece) = stream.next().await {
        received.update(&piece.unwrap());
    }
    assert_eq!(received.finalize(), sent.finalize());
}

#[tokio::test]
async fn ways_to_write() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let path = guest.path("work/file");
    let stat = connection.write_bytes(write("file"), Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!((stat.path.as_str(), stat.size, stat.mode, stat.kind), (path.as_str(), 5, 0o644, FileKind::File));
    let how = |how| WriteFile { how, ..write("file") };
    connection.write_bytes(how(WriteHow::Append), Bytes::from_static(b" world")).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hello world");
    connection.write_bytes(how(WriteHow::At(6)), Bytes::from_static(b"W")).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hello World");
    let inode = std::fs::metadata(&path).unwrap().ino();
    connection.write_bytes(how(WriteHow::Truncate), Bytes::from_static(b"x")).await.unwrap();
    assert_eq!((std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().ino()), (b"x".to_vec(), inode));

    // Replacing keeps owner and permissions and leaves a link a link.
    std::os::unix::fs::chown(&path, Some(77), Some(88)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o4750)).unwrap();
    std::os::unix::fs::symlink("file", guest.path("work/link")).unwrap();
    let stat = connection.write_bytes(write("link"), Bytes::new()).await.unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode, stat.size), (77, 88, 0o4750, 0));
    assert!(std::fs::symlink_metadata(guest.path("work/link")).unwrap().is_symlink());

    let deep = WriteFile { create_parents: true, user: Some("55:66".into()), mode: Some(0o600), ..write("/") };
    let deep = WriteFile { path: guest.path("work/a/b/c"), ..deep };
    let stat = connection.write_bytes(deep, Bytes::from_static(b"deep")).await.unwrap();
    assert_eq!((stat.uid, stat.gid, stat.mode), (55, 66, 0o600));
    let parent = std::fs::metadata(guest.path("work/a/b")).unwrap();
    assert_eq!((parent.uid(), parent.mode() & 0o7777), (55, 0o755));
    connection.write_bytes(write("/dev/null"), Bytes::from_static(b"into the void")).await.unwrap();
}

#[tokio::test]
async fn writes_that_fail_leave_everything_as_it_was() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    connection.write_bytes(write("file"), Bytes::from_static(b"old")).await.unwrap();
    let big = Bytes::from(vec![0; 3_000_000]);
    for (request, code) in [
        (write("."), ErrorCode::IsADirectory),
        (write("missing/file"), ErrorCode::PathNotFound),
        (write("file/below"), ErrorCode::NotADirectory),
        (write("folder/"), ErrorCode::PathNotFound),
        (write(""), ErrorCode::BadRequest),
        (write("/dev/full"), ErrorCode::DiskFull),
        (WriteFile { user: Some("no-such-user".into()), ..write("x") }, ErrorCode::UserNotFound),
    ] {
        let result = connection.write_bytes(request.clone(), big.clone()).await;
        assert_eq!(refused(result), code, "{request:?}");
        assert!(connection.is_reusable());
    }
    // The sender's own source fails half-way.
    let pieces = [Ok(Bytes::from_static(b"new")), Err(std::io::Error::other("source failed"))];
    assert!(connection.write_file(write("file"), futures_util::stream::iter(pieces)).await.is_err());
    assert!(connection.is_reusable());
    connection.ping().await.unwrap();
    // The sender vanishes half-way.
    let never = futures_util::stream::iter([Ok(Bytes::from_static(b"new"))])
        .chain(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let limit = std::time::Duration::from_millis(100);
    assert!(tokio::time::timeout(limit, connection.write_file(write("file"), never)).await.is_err());
    assert!(!connection.is_reusable());
    drop(connection);
    assert_eq!(std::fs::read(guest.path("work/file")).unwrap(), b"old");
    let leftovers = || std::fs::read_dir(guest.path("work")).unwrap().count() - 1;
    for _ in 0..500 {
        if leftovers() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{} files are left over", leftovers());
}

#[tokio::test]
async fn parts_of_files_and_files_without_a_size() {
    let guest = Guest::start();
    std::fs::write(guest.path("work/file"), "0123456789").unwrap();
    for (offset, len, expected) in
        [(0, None, "0123456789"), (3, Some(4), "3456"), (8, Some(100), "89"), (50, None, ""), (0, Some(0), "")]
    {
        let request = ReadFile { offset, len, ..read("file") };
        assert_eq!(read_all(guest.connect().await, request).await, expected.as_bytes());
    }
    let version = read_all(guest.connect().await, read("/proc/version")).await;
    assert_eq!(version, std::fs::read("/proc/version").unwrap());
    let zeros = ReadFile { len: Some(300_000), ..read("/dev/zero") };
    assert_eq!(refused(guest.connect().await.read_file(zeros).await), ErrorCode::BadRequest);
    assert_eq!(refused(guest.connect().await.read_file(read(".")).await), ErrorCode::IsADirectory);
    assert_eq!(refused(guest.connect().await.read_file(read("nothing")).await), ErrorCode::PathNotFound);
}

#[tokio::test]
async fn folders_are_listed_in_order() {
    let guest = Guest::start();
    for path in ["work/b/y", "work/b/x/deep", "work/a", "work/c"] {
        std::fs::create_dir_all(guest.path(path)).unwrap();
    }
    std::fs::write(guest.path("work/b/file"), "text").unwrap();
    std::os::unix::fs::symlink("b", guest.path("work/d")).unwrap();
    let names = |entries: Vec<FileStat>| {
        let prefix = guest.path("work/");
        entries.into_iter().map(|entry| entry.path.strip_prefix(&prefix).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(entries(&guest, ".", 0).await), ["a", "b", "c", "d"]);
    assert_eq!(names(entries(&guest, ".", 2).await), ["a", "b", "b/file", "b/x", "b/y", "c", "d"]);
    let link = entries(&guest, ".", 1).await.pop().unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (FileKind::Symlink, Some("b")));
    assert_eq!(entries(&guest, "d", 1).await.len(), 3);
    for i in 0..3000 {
        std::fs::write(guest.path(&format!("work/c/{i:05}")), "").unwrap();
    }
    let many = entries(&guest, "c", 1).await;
    assert_eq!(many.len(), 3000);
    assert!(many.is_sorted_by_key(|entry| entry.path.clone()));
    let file = ListDir { path: "b/file".into(), user: None, depth: 1 };
    assert_eq!(refused(guest.connect().await.list(file).await), ErrorCode::NotADirectory);
}

#[tokio::test]
async fn changes_of_names_owners_and_permissions() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let made = MakeDir { user: Some("55:66".into()), mode: Some(0o700), parents: true, ..MakeDir::default() };
    let made = MakeDir { path: guest.path("work/a/b"), ..made };
    let stat = connection.call_stat(&Request::MakeDir(made.clone())).await.unwrap();
    assert_eq!((stat.uid, stat.mode, stat.kind), (55, 0o700, FileKind::Directory));
    connection.call_stat(&Request::MakeDir(made.clone())).await.unwrap();
    let again = MakeDir { parents: false, ..made };
    assert_eq!(refused(connection.call(&Request::MakeDir(again)).await), ErrorCode::Conflict);

    connection.write_bytes(write("a/file"), Bytes::from_static(b"text")).await.unwrap();
    let moved = |from: &str, to: &str, overwrite| {
        Request::Move(MovePath { from: from.into(), to: to.into(), overwrite, ..MovePath::default() })
    };
    connection.call_stat(&moved("a/file", "file", false)).await.unwrap();
    connection.write_bytes(write("a/file"), Bytes::from_static(b"other")).await.unwrap();
    assert_eq!(refused(connection.call(&moved("a/file", "file", false)).await), ErrorCode::Conflict);
    connection.call_stat(&moved("a/file", "file", true)).await.unwrap();
    assert_eq!(std::fs::read(guest.path("work/file")).unwrap(), b"other");
    assert_eq!(refused(connection.call(&moved("a", "a/b/c", false)).await), ErrorCode::BadRequest);
    // To another filesystem and back.
    let elsewhere = format!("/dev/shm/roost-guest-test-{}", guest.pid());
    connection.call_stat(&moved("a", &elsewhere, false)).await.unwrap();
    assert_eq!(std::fs::metadata(format!("{elsewhere}/b")).unwrap().uid(), 55);
    connection.call_stat(&moved(&elsewhere, "a", false)).await.unwrap();
    assert!(!std::path::Path::new(&elsewhere).exists());

    let chmod = Request::Chmod(Chmod { path: "file".into(), user: None, mode: 0o6711 });
    assert_eq!(connection.call_stat(&chmod).await.unwrap().mode, 0o6711);
    let chown =
        Chown { path: "a".into(), user: None, owner: Some("root".into()), group: Some("99".into()), recursive: true };
    connection.call_stat(&Request::Chown(chown)).await.unwrap();
    let inner = std::fs::metadata(guest.path("work/a/b")).unwrap();
    assert_eq!((inner.uid(), inner.gid()), (0, 99));

    let link = Symlink { path: "link".into(), target: "../../nowhere".into(), user: None };
    assert_eq!(connection.call_stat(&Request::Symlink(link)).await.unwrap().kind, FileKind::Symlink);
    assert_eq!(connection.call(&Request::ReadLink(of("link"))).await.unwrap(), Reply::Link("../../nowhere".into()));

    let remove = |path: &str, recursive| Request::Remove(RemovePath { path: path.into(), user: None, recursive });
    assert_eq!(refused(connection.call(&remove("a", false)).await), ErrorCode::Conflict);
    for (path, recursive) in [("a", true), ("link", true), ("file", false)] {
        connection.call_done(&remove(path, recursive)).await.unwrap();
        assert_eq!(refused(connection.call(&Request::Stat(of(path))).await), ErrorCode::PathNotFound);
    }
    assert_eq!(refused(connection.call(&remove("file", false)).await), ErrorCode::PathNotFound);
    assert_eq!(refused(connection.call(&remove("/", true)).await), ErrorCode::BadRequest);
    let home = connection.call_stat(&Request::Stat(of("~"))).await.unwrap();
    assert_eq!((home.path.as_str(), home.user.as_deref()), ("/root", Some("root")));
}

#[tokio::test]
async fn a_folder_travels_as_an_archive() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    std::fs::create_dir_all(guest.path("work/from/sub")).unwrap();
    let content: Vec<u8> = (0..1_000_000u32).map(|i| (i / 3) as u8).collect();
    std::fs::write(guest.path("work/from/sub/data"), &content).unwrap();
    std::os::unix::fs::symlink("sub/data", guest.path("work/from/link")).unwrap();
    let packed = guest.connect().await.archive_out(ArchiveOut { path: "from".into(), user: None }).await.unwrap();
    let unpack = ArchiveIn { path: "new/to".into(), user: None, keep_owners: false };
    let stat = connection.archive_in(unpack, packed.into_stream()).await.unwrap();
    assert_eq!(stat.path, guest.path("work/new/to"));
    assert_eq!(std::fs::read(guest.path("work/new/to/link")).unwrap(), content);

    let garbage = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![1; 700_000]))]);
    let into = ArchiveIn { path: "x".into(), user: None, keep_owners: false };
    assert_eq!(refused(connection.archive_in(into, garbage).await), ErrorCode::BadRequest);
    assert!(connection.is_reusable());
    let missing = guest.connect().await.archive_out(ArchiveOut { path: "none".into(), user: None }).await;
    assert_eq!(refused(missing), ErrorCode::PathNotFound);
}

#[tokio::test]
async fn a_watch_tells_what_happens() {
    let guest = Guest::start();
    let root = guest.path("work");
    std::fs::create_dir(guest.path("work/old")).unwrap();
    let watch = Watch { path: ".".into(), recursive: true, ..Watch::default() };
    let mut events = guest.connect().await.watch(watch).await.unwrap();
    let mut seen = Vec::new();
    let mut until = async |kind: EventKind, name: &str| loop {
        let event = events.next().await.unwrap().unwrap();
        let found = event.kind == kind && event.path == format!("{root}/{name}");
        seen.push(event.clone());
        if found {
            return event;
        }
    };
    std::fs::write(guest.path("work/old/file"), "text").unwrap();
    until(EventKind::Created, "old/file").await;
    until(EventKind::Modified, "old/file").await;
    std::fs::set_permissions(guest.path("work/old/file"), PermissionsExt::from_mode(0o600)).unwrap();
    until(EventKind::Attrib, "old/file").await;
    std::fs::rename(guest.path("work/old"), guest.path("work/new")).unwrap();
    let moved = until(EventKind::Moved, "new").await;
    assert_eq!((moved.moved_from, moved.is_dir), (Some(format!("{root}/old")), true));
    std::fs::create_dir_all(guest.path("work/new/a/b/c")).unwrap();
    until(EventKind::Created, "new/a/b/c").await;
    std::fs::write(guest.path("work/new/a/b/c/deep"), "").unwrap();
    until(EventKind::Created, "new/a/b/c/deep").await;
    std::fs::remove_file(guest.path("work/new/file")).unwrap();
    until(EventKind::Removed, "new/file").await;
    assert!(seen.iter().all(|event| event.kind != EventKind::Overflow));
    let missing = Watch { path: "none".into(), ..Watch::default() };
    assert_eq!(refused(guest.connect().await.watch(missing).await), ErrorCode::PathNotFound);
}
