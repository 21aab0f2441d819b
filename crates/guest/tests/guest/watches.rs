//! Watches: which changes are told, how often, and by watches that go on by themselves.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Guest, refused};
use bytes::Bytes;
use roost_wire::client::{Connection, WatchStream};
use roost_wire::{
    ErrorCode, EventKind, KeepWatch, MakeDir, MovePath, Request, SetAttributes, Watch, WatchEvent, WatchId, WriteFile,
    WriteHow,
};
use tokio::net::TcpStream;

fn write(path: &str) -> WriteFile {
    WriteFile { path: path.to_owned(), how: WriteHow::Truncate, ..WriteFile::default() }
}

fn keep(id: &str, watch: Watch) -> Request {
    Request::KeepWatch(KeepWatch { id: id.to_owned(), watch })
}

fn below(path: &str) -> Watch {
    Watch { path: path.to_owned(), recursive: true, ..Watch::default() }
}

/// Events up to the one that a last change makes; their kinds and paths below the guest's folder.
async fn told(guest: &Guest, events: &mut WatchStream<TcpStream>, folder: &str) -> Vec<(EventKind, String)> {
    let last = guest.path(&format!("{folder}/last"));
    fs::create_dir(&last).unwrap();
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap();
        if event.path == last {
            fs::remove_dir(&last).unwrap();
            assert_eq!(events.next().await.unwrap().unwrap().path, last);
            return seen;
        }
        let path = event.path.strip_prefix(&guest.path("work/")).unwrap().to_owned();
        if let Some(from) = event.moved_from {
            seen.push((EventKind::Removed, from.strip_prefix(&guest.path("work/")).unwrap().to_owned()));
        }
        seen.push((event.kind, path));
    }
}

/// What a kept watch has seen by now.
async fn seen(guest: &Guest, id: &str) -> Vec<WatchEvent> {
    let mut all = Vec::new();
    let mut events = guest.connect().await.watch_events(id.to_owned()).await.unwrap();
    assert_eq!(events.stat().unwrap().path, guest.path("work"));
    while let Some(event) = events.next().await {
        all.push(event.unwrap());
    }
    assert!(events.into_connection().is_some());
    all
}

async fn put(connection: &mut Connection<TcpStream>, path: &str) {
    connection.write_bytes(write(path), Bytes::from_static(b"text")).await.unwrap();
}

#[tokio::test]
async fn a_new_file_is_three_events_also_far_below() {
    use EventKind::{Attrib, Created, Modified, Moved, Removed};
    let guest = Guest::start();
    fs::create_dir_all(guest.path("work/a/b")).unwrap();
    let mut connection = guest.connect().await;
    let mut events = guest.connect().await.watch(below(".")).await.unwrap();
    for path in ["file", "a/b/file"] {
        put(&mut connection, path).await;
        let expected = [Created, Attrib, Modified].map(|kind| (kind, path.to_owned()));
        assert_eq!(told(&guest, &mut events, "work").await, expected);
    }
    // Nothing of it makes a change that is none: the same owner, no attributes.
    let again = WriteFile { attributes: Some(SetAttributes::default()), ..write("file") };
    connection.write_bytes(again, Bytes::new()).await.unwrap();
    assert_eq!(told(&guest, &mut events, "work").await, [(Modified, "file".to_owned())]);
    fs::rename(guest.path("work/file"), guest.path("work/a/moved")).unwrap();
    let moved = [(Removed, "file".to_owned()), (Moved, "a/moved".to_owned())];
    assert_eq!(told(&guest, &mut events, "work").await, moved);
    let folder = MakeDir { path: "new".into(), parents: true, ..MakeDir::default() };
    connection.call_stat(&Request::MakeDir(folder)).await.unwrap();
    let made = [Created, Attrib].map(|kind| (kind, "new".to_owned()));
    assert_eq!(told(&guest, &mut events, "work").await, made);
}

#[tokio::test]
async fn what_is_put_into_a_new_folder_is_told_once() {
    const ROUNDS: u32 = 400;
    let guest = Guest::start();
    let mut events = guest.connect().await.watch(below(".")).await.unwrap();
    for round in 0..ROUNDS {
        fs::create_dir_all(guest.path(&format!("work/{round}/x"))).unwrap();
        fs::write(guest.path(&format!("work/{round}/x/file")), "text").unwrap();
    }
    let seen = told(&guest, &mut events, "work").await;
    for round in 0..ROUNDS {
        for path in [format!("{round}"), format!("{round}/x"), format!("{round}/x/file")] {
            let times = seen.iter().filter(|event| **event == (EventKind::Created, path.clone())).count();
            assert_eq!(times, 1, "{path} in {seen:?}");
        }
        let written = (EventKind::Modified, format!("{round}/x/file"));
        assert_eq!(seen.iter().filter(|event| **event == written).count(), 1, "{written:?} in {seen:?}");
    }
}

#[tokio::test]
async fn what_moves_away_is_not_followed() {
    let guest = Guest::start();
    fs::create_dir_all(guest.path("work/in/sub")).unwrap();
    fs::create_dir_all(guest.path("work/out")).unwrap();
    let mut events = guest.connect().await.watch(below("in")).await.unwrap();
    fs::rename(guest.path("work/in/sub"), guest.path("work/out/sub")).unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!((event.kind, event.moved_away, event.is_dir), (EventKind::Removed, true, true));
    fs::write(guest.path("work/out/sub/file"), "text").unwrap();
    assert_eq!(told(&guest, &mut events, "work/in").await, []);
    fs::rename(guest.path("work/in"), guest.path("work/gone")).unwrap();
    let event = events.next().await.unwrap().unwrap();
    assert_eq!((event.kind, event.moved_away, event.path), (EventKind::Removed, true, guest.path("work/in")));
}

#[tokio::test]
async fn a_watch_goes_on_by_itself_and_keeps_what_it_sees() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let watch = Watch { with_stat: true, only_folder: true, only_local: true, ..below(".") };
    let stat = connection.call_stat(&keep("w1", watch)).await.unwrap();
    assert_eq!(stat.path, guest.path("work"));
    let attributes = SetAttributes { prefix: "e2b.".into(), values: [("k".into(), "v".into())].into() };
    let noted = WriteFile { attributes: Some(attributes), ..write("file") };
    connection.write_bytes(noted, Bytes::from_static(b"text")).await.unwrap();
    let events = seen(&guest, "w1").await;
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Created, EventKind::Attrib, EventKind::Modified, EventKind::Attrib]);
    let stat = events.last().unwrap().stat.as_ref().unwrap();
    assert_eq!((stat.size, stat.attributes.get("e2b.k").map(String::as_str)), (4, Some("v")));
    fs::remove_file(guest.path("work/file")).unwrap();
    let removed = seen(&guest, "w1").await;
    assert_eq!((removed.len(), removed[0].kind, &removed[0].stat), (1, EventKind::Removed, &None));
    // Whoever asks hears at once of all that was before.
    for round in 0..100 {
        fs::create_dir(guest.path(&format!("work/{round}"))).unwrap();
        fs::write(guest.path(&format!("work/{round}/file")), "text").unwrap();
        let events = seen(&guest, "w1").await;
        let path = guest.path(&format!("work/{round}/file"));
        assert!(events.iter().any(|event| event.kind == EventKind::Modified && event.path == path), "{events:?}");
    }

    assert_eq!(refused(connection.call(&keep("w1", below("."))).await), ErrorCode::BadRequest);
    fs::write(guest.path("work/plain"), "").unwrap();
    for (path, code) in [("plain", ErrorCode::NotADirectory), ("none", ErrorCode::PathNotFound)] {
        let watch = Watch { only_folder: true, ..below(path) };
        assert_eq!(refused(connection.call(&keep("w2", watch)).await), code, "{path}");
    }
    let which = || WatchId { id: "w1".into() };
    connection.call_done(&Request::EndWatch(which())).await.unwrap();
    assert_eq!(refused(connection.call(&Request::EndWatch(which())).await), ErrorCode::WatchNotFound);
    assert_eq!(refused(guest.connect().await.watch_events("w1".into()).await), ErrorCode::WatchNotFound);
    for number in 0..64 {
        connection.call_stat(&keep(&number.to_string(), below("."))).await.unwrap();
    }
    assert_eq!(refused(connection.call(&keep("more", below("."))).await), ErrorCode::LimitExceeded);
}

#[tokio::test]
async fn files_are_taken_over_moved_and_joined_with_their_folders() {
    let guest = Guest::start();
    let mut connection = guest.connect().await;
    let user = || Some("55:66".to_owned());
    put(&mut connection, "one").await;
    assert_eq!(fs::metadata(guest.path("work/one")).unwrap().uid(), 0);
    let taken = WriteFile { path: guest.path("work/one"), user: user(), take_over: true, ..write("") };
    let stat = connection.write_bytes(taken, Bytes::from_static(b"one")).await.unwrap();
    assert_eq!((stat.uid, stat.gid, stat.st_mode), (55, 66, 0o100_644));

    let new = MakeDir { path: "a/b".into(), parents: true, must_be_new: true, ..MakeDir::default() };
    connection.call_stat(&Request::MakeDir(new.clone())).await.unwrap();
    assert_eq!(refused(connection.call(&Request::MakeDir(new)).await), ErrorCode::Conflict);
    let file = MakeDir { path: "one".into(), parents: true, must_be_new: true, ..MakeDir::default() };
    assert_eq!(refused(connection.call(&Request::MakeDir(file)).await), ErrorCode::NotADirectory);

    let moved = |from: &str, to: &str| {
        let (from, to) = (guest.path(from), guest.path(to));
        Request::Move(MovePath { from, to, user: user(), create_parents: true, ..MovePath::default() })
    };
    connection.call_stat(&moved("work/one", "work/x/y/one")).await.unwrap();
    assert_eq!(fs::metadata(guest.path("work/x/y")).unwrap().uid(), 55);
    assert_eq!(refused(connection.call(&moved("work/none", "work/z/none")).await), ErrorCode::PathNotFound);
    assert!(!fs::exists(guest.path("work/z")).unwrap());

    put(&mut connection, "two").await;
    let join = |sources: &[&str], to: &str| {
        let sources = sources.iter().map(|source| guest.path(source)).collect();
        Request::Join(roost_wire::JoinFiles { sources, to: guest.path(to), user: user() })
    };
    for (sources, code) in [
        (["work/two", "work/none"], ErrorCode::PathNotFound),
        (["work/two", "work/x"], ErrorCode::BadRequest),
        (["work/two", "work/new/whole"], ErrorCode::PathNotFound),
    ] {
        assert_eq!(refused(connection.call(&join(&sources, "work/new/whole")).await), code);
    }
    assert!(!fs::exists(guest.path("work/new")).unwrap());
    let stat = connection.call_stat(&join(&["work/x/y/one", "work/two"], "work/new/whole")).await.unwrap();
    assert_eq!((stat.uid, stat.mode, stat.size), (55, 0o644, 7));
    assert_eq!(fs::read(guest.path("work/new/whole")).unwrap(), b"onetext");
    assert!(!fs::exists(guest.path("work/two")).unwrap());
}
