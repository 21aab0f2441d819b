//! A writer that is killed at any moment has lost nothing it had acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use roost_model::EventKind;

use super::samples::{event, record};
use crate::{Durability, SqliteStore, Store};

/// Tells the test, when it is run again as a child, which store to write to.
const WRITE_TO: &str = "ROOST_STORE_TEST_WRITE_TO";
const ROUNDS: u32 = 8;
/// More writes than any child lives to make.
const ENOUGH: u64 = 1_000_000;

/// Ends the child also when the test fails.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            drop(self.0.wait());
        }
    }
}

#[test]
fn a_killed_writer_loses_nothing_it_has_acknowledged() {
    if let Some(path) = std::env::var_os(WRITE_TO) {
        return write_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let one = record("web", 1);
    {
        let store = SqliteStore::open(&path).unwrap();
        store.insert_sandbox(&one, event(EventKind::Creating, 0), None).unwrap();
    }
    let mut before = one.generation;
    for round in 0..ROUNDS {
        let acknowledged = kill_after(&path, 20 + 61 * round).unwrap();
        let store = SqliteStore::open(&path).unwrap();
        let found = store.sandbox(&one.id).unwrap().unwrap();
        // One more may have been committed and not yet told.
        assert!((acknowledged..=acknowledged + 1).contains(&found.generation), "{acknowledged}: {}", found.generation);
        assert!(acknowledged > before, "the child went on where the last one was killed");
        assert_eq!(store.last_event().unwrap(), found.generation, "a record and its event go together");
        let log = store.events_after(0, usize::MAX, None).unwrap();
        assert!(log.iter().map(|event| event.id).eq(1..=found.generation));
        before = found.generation;
    }
}

/// Kills a child that writes once it has told of so many writes; returns the last one it told of.
fn kill_after(path: &Path, writes: u32) -> Option<u64> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::crash::a_killed_writer_loses_nothing_it_has_acknowledged", "--nocapture"])
        .env(WRITE_TO, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Writer(child);
    let output = BufReader::new(child.0.stdout.take().unwrap());
    // The test harness talks too. What is still in the pipe after the kill was acknowledged as well.
    let told = output.lines().map_while(Result::ok).filter_map(|line| line.strip_prefix("wrote ")?.parse().ok());
    let mut last = None;
    for (count, generation) in (1..).zip(told) {
        last = Some(generation);
        if count == writes {
            child.0.kill().unwrap();
        }
    }
    last
}

/// Writes the record's generation and an event, over and over, and tells of each.
fn write_until_killed(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let mut one = store.living().unwrap().remove(0);
    let mut out = std::io::stdout();
    for _ in 0..ENOUGH {
        one.generation += 1;
        let durability = if one.generation.is_multiple_of(16) { Durability::Synced } else { Durability::Process };
        store.save_sandbox(&one, Some(event(EventKind::Changed, 0)), durability).unwrap();
        // Past the harness's capture, and in one write, so that a kill cannot tear it.
        out.write_all(format!("\nwrote {}\n", one.generation).as_bytes()).unwrap();
    }
}
