//! What is particular to a store in a file.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use roost_model::EventKind;
use rusqlite::Connection;

use super::samples::{event, record};
use crate::{Durability, SqliteStore, Store, StoreError};

#[test]
fn a_file_of_format_zero_becomes_a_store_and_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    // As an interrupted first start leaves it: a database with nothing in it.
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 0; VACUUM").unwrap();
    let web = record("web", 1);
    for round in 0..3 {
        let store = SqliteStore::open(&path).unwrap();
        if round == 0 {
            store.insert_sandbox(&web, event(EventKind::Creating, 0), None).unwrap();
        }
        assert_eq!(store.living().unwrap(), std::slice::from_ref(&web));
    }
    let plain = Connection::open(&path).unwrap();
    plain.execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::Newer { found: 99, .. })));
}

#[test]
fn what_is_no_store_is_refused_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    std::fs::write(&path, "a shopping list ".repeat(100)).unwrap();
    for wrong in [path.as_path(), folder.path(), &folder.path().join("no/such/folder")] {
        let refused = SqliteStore::open(wrong).unwrap_err();
        assert!(matches!(refused, StoreError::Open { .. }));
        assert!(refused.to_string().contains(wrong.to_str().unwrap()), "{refused}");
    }
}

#[test]
fn nobody_else_can_read_the_keys() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("store.db")).unwrap();
    store.insert_sandbox(&record("web", 1), event(EventKind::Creating, 0), None).unwrap();
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
    assert!(files.len() > 1, "the log is a file of its own");
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", file.path());
    }
}

#[test]
fn writers_with_connections_of_their_own_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let first = SqliteStore::open(&path).unwrap();
    std::thread::scope(|scope| {
        for number in 0..2 {
            let path = &path;
            scope.spawn(move || {
                let store: Arc<dyn Store> = Arc::new(SqliteStore::open(path).unwrap());
                let one = record(&format!("n{number}"), number);
                store.insert_sandbox(&one, event(EventKind::Creating, 0), None).unwrap();
                for _ in 0..50 {
                    store.save_sandbox(&one, Some(event(EventKind::Changed, 0)), Durability::Process).unwrap();
                }
            });
        }
    });
    assert_eq!(first.last_event().unwrap(), 102);
}

#[test]
fn a_body_that_makes_no_sense_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let web = record("web", 1);
    store.insert_sandbox(&web, event(EventKind::Creating, 0), None).unwrap();
    Connection::open(&path).unwrap().execute("UPDATE sandboxes SET body = '{}'", []).unwrap();
    let refused = store.living().unwrap_err();
    assert!(matches!(refused, StoreError::Unreadable { .. }));
    assert!(refused.to_string().contains(web.id.as_str()), "{refused}");
}
