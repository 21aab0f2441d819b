//! Stores of every older format are carried along.

use std::path::Path;

use roost_lifecycle::Phase;
use roost_model::{Access, EngineKind, EventKind, Level, TokenId};
use rusqlite::Connection;

use super::samples::{checkpoint, event, record, standing_on};
use crate::{IdempotencyKey, InsertOutcome, SandboxRecord, ServiceRecords, SqliteStore, Store};

const FORMAT_1: &str = include_str!("fixtures/format-1.sql");

fn laid_out(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("store.db");
    Connection::open(&path).unwrap().execute_batch(FORMAT_1).unwrap();
    path
}

/// A sandbox as the first format knew it.
fn of_format_1(name: &str, number: u64) -> SandboxRecord {
    let services = ServiceRecords::default();
    SandboxRecord {
        boot: 0,
        engine: EngineKind::Native,
        parent: None,
        services,
        capabilities: None,
        ..record(name, number)
    }
}

#[test]
fn nothing_of_format_1_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&laid_out(folder.path())).unwrap();

    let services = ServiceRecords::default();
    let web = SandboxRecord { phase: Phase::Active, boot: 0, services, capabilities: None, ..record("web", 2) };
    let files = SandboxRecord { phase: Phase::Suspended(Level::Files), slot: None, ..of_format_1("files", 3) };
    assert_eq!(store.living().unwrap(), [web.clone(), files, of_format_1("new", 4)]);
    let gone = store.terminated(None, 10).unwrap();
    assert_eq!(gone.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["gone"]);

    let log = store.events_after(0, 100, None).unwrap();
    assert!(log.iter().map(|event| event.id).eq(3..=12));
    assert_eq!((log[6].kind, log[6].reason.as_deref()), (EventKind::Crashed, Some("its processes ended")));
    assert!(log.iter().all(|event| event.receipt.is_none()));

    let key = IdempotencyKey { key: "key-2".to_owned(), fingerprint: "body-2".to_owned() };
    let replayed = store.insert_sandbox(&record("other", 7), event(EventKind::Creating, 20), Some(&key)).unwrap();
    assert_eq!(replayed, InsertOutcome::Replayed(web.id));
    let token = store.token_by_hash(&[7; 32]).unwrap().unwrap();
    assert_eq!((token.id, token.access), (TokenId::from_parts(1, 1), Access::default()), "what was given stays");
    assert_eq!(store.all_checkpoints().unwrap(), []);
}

#[test]
fn a_store_of_format_1_goes_on_as_a_current_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = laid_out(folder.path());
    let web = SqliteStore::open(&path).unwrap().sandbox(&record("web", 2).id).unwrap().unwrap();
    let first = checkpoint(&web, 1);
    {
        let store = SqliteStore::open(&path).unwrap();
        let told = store.insert_checkpoint(&first, &standing_on(&web, &first), event(EventKind::Checkpointed, 20));
        assert_eq!(told.unwrap().id, 13, "the log goes on where it was");
    }
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.checkpoint(&first.id).unwrap(), Some(first.clone()));
    assert_eq!(store.sandbox(&web.id).unwrap(), Some(standing_on(&web, &first)));
    let format = Connection::open(&path).unwrap().query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0));
    assert_eq!(format.unwrap(), 7, "builds that know less must refuse it");
}

/// The steps to a format are not changed any more once there are files of it.
#[test]
fn a_carried_along_store_is_like_a_new_one() {
    let shape = |path: &Path| -> Vec<(String, Option<String>)> {
        drop(SqliteStore::open(path).unwrap());
        let connection = Connection::open(path).unwrap();
        let mut statement = connection.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(shape(&laid_out(folder.path())), shape(&folder.path().join("new.db")));
}
