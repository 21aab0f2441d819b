//! The format of the file, and the way from every older one.
//!
//! A format is a number in the file's header. A field added to a record's JSON needs no new format; a new column does,
//! and so does a new word where older builds know every word (phases, kinds of events, engines), because they must
//! refuse the file instead of tripping over it.

use std::path::Path;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::count;
use crate::StoreError;

/// Marks the file as ours: `Roos` in ASCII.
const APPLICATION_ID: i32 = 0x526f_6f73;

/// Each makes the next format from the one before. Only ever append.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE sandboxes (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL,
        phase TEXT NOT NULL,
        ended_at INTEGER, -- microseconds; null until terminated
        body TEXT NOT NULL -- the whole record; the columns before only repeat it
    ) STRICT;
    CREATE UNIQUE INDEX sandboxes_by_living_name ON sandboxes (name) WHERE phase <> 'terminated';
    CREATE INDEX sandboxes_living ON sandboxes (id) WHERE phase <> 'terminated';
    CREATE INDEX sandboxes_by_name ON sandboxes (name, id);
    CREATE INDEX sandboxes_by_end ON sandboxes (ended_at) WHERE ended_at IS NOT NULL;

    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- so that ids of pruned events are not given out again
        at INTEGER NOT NULL, -- microseconds
        sandbox TEXT NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT
    ) STRICT;
    CREATE INDEX events_by_sandbox ON events (sandbox);

    CREATE TABLE idempotency_keys (
        key TEXT PRIMARY KEY NOT NULL,
        fingerprint TEXT NOT NULL,
        sandbox TEXT NOT NULL,
        at INTEGER NOT NULL -- microseconds
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE tokens (
        id TEXT PRIMARY KEY NOT NULL,
        hash BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL,
        created_at TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    // With it came new words too: phases and kinds of events of sandboxes that keep their memory.
    "
    CREATE TABLE checkpoints (
        id TEXT PRIMARY KEY NOT NULL,
        sandbox TEXT NOT NULL, -- which may be gone
        body TEXT NOT NULL -- the whole record; the columns before only repeat it
    ) STRICT;
    CREATE INDEX checkpoints_by_sandbox ON checkpoints (sandbox, id);

    ALTER TABLE events ADD COLUMN receipt TEXT; -- as JSON
",
    super::leases::MIGRATION,
    POOLS,
    SLEEPS_THAT_STAY,
    SESSIONS_LIMITS_AND_KEYS,
    EVENTS_OF_THE_HOST,
];

/// Events about the host have no sandbox. SQLite cannot relax a column, so the log is copied; its numbering goes on.
const EVENTS_OF_THE_HOST: &str = "
    CREATE TABLE events_of_all (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- so that ids of pruned events are not given out again
        at INTEGER NOT NULL, -- microseconds
        sandbox TEXT, -- with name and state; all three are null in an event about the host
        name TEXT,
        kind TEXT NOT NULL,
        state TEXT,
        reason TEXT,
        receipt TEXT -- as JSON
    ) STRICT;
    INSERT INTO events_of_all SELECT id, at, sandbox, name, kind, state, reason, receipt FROM events;
    DELETE FROM sqlite_sequence WHERE name = 'events_of_all';
    INSERT INTO sqlite_sequence (name, seq) SELECT 'events_of_all', seq FROM sqlite_sequence WHERE name = 'events';
    DROP TABLE events;
    ALTER TABLE events_of_all RENAME TO events;
    CREATE INDEX events_by_sandbox ON events (sandbox);
";

/// Nothing new in the tables; but older builds would end a sandbox that shall sleep when its time to live is over, and wake
/// one that shall stay asleep.
const SLEEPS_THAT_STAY: &str = "";

/// With it came the engine `gvisor` too, and the phase and the event of a move to it, which older builds do not know. They
/// would also let the holder of a limited token do everything.
const SESSIONS_LIMITS_AND_KEYS: &str = "
    CREATE TABLE sessions (
        hash BLOB PRIMARY KEY NOT NULL,
        token TEXT, -- whose rights it has; null if it came from the owner of the socket
        expires_at INTEGER NOT NULL -- microseconds
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX sessions_by_token ON sessions (token);

    ALTER TABLE tokens ADD COLUMN access TEXT NOT NULL DEFAULT '{}'; -- as JSON

    CREATE TABLE keys (
        id TEXT PRIMARY KEY NOT NULL,
        fingerprint TEXT NOT NULL UNIQUE,
        body TEXT NOT NULL -- the whole record; the columns before only repeat it
    ) STRICT, WITHOUT ROWID;
";

/// With it came records of sandboxes that wait in a pool, which older builds would show to everybody.
const POOLS: &str = "
    CREATE TABLE pools (
        template TEXT NOT NULL,
        engine TEXT NOT NULL,
        least INTEGER NOT NULL,
        most INTEGER NOT NULL,
        PRIMARY KEY (template, engine)
    ) STRICT, WITHOUT ROWID;
";

/// Brings a file of any older format, or an empty one, to the current format.
pub(super) fn bring_up_to_date(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate(connection, path, MIGRATIONS)
}

fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), StoreError> {
    let failed = |error: rusqlite::Error| StoreError::Open { path: path.to_owned(), source: error.into() };

    // Nothing is changed, the journal mode included, before the file has proved to be ours.
    let looking = connection.transaction_with_behavior(TransactionBehavior::Deferred).map_err(failed)?;
    format_of(&looking, path, migrations)?;
    looking.commit().map_err(failed)?;
    // Answers with the mode it got; in memory there is no log and no need for one.
    let journal: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if !["wal", "memory"].contains(&journal.as_str()) {
        let source = format!("its filesystem allows no write-ahead log, only `{journal}`").into();
        return Err(StoreError::Open { path: path.to_owned(), source });
    }

    // All steps or none; and the format is read again under the lock, in case somebody else has just changed it.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = format_of(&transaction, path, migrations)?;
    if found == migrations.len() {
        return Ok(());
    }
    for step in &migrations[found..] {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", count(migrations.len())).map_err(failed)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.commit().map_err(failed)
}

/// How many of the migrations a file has behind it, if it is ours and we know them all. The transaction makes the answers
/// fit each other while somebody else opens the file for the first time too.
fn format_of(transaction: &Transaction<'_>, path: &Path, migrations: &[&str]) -> Result<usize, StoreError> {
    let number = |sql| {
        let answer = transaction.query_row(sql, [], |row| row.get::<_, i32>(0));
        answer.map_err(|error| StoreError::Open { path: path.to_owned(), source: error.into() })
    };
    let owner = number("PRAGMA application_id")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if owner != APPLICATION_ID && (owner != 0 || tables != 0) {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let found = number("PRAGMA user_version")?.cast_unsigned();
    match usize::try_from(found) {
        Ok(steps) if steps <= migrations.len() => Ok(steps),
        _ => {
            let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
            Err(StoreError::Newer { path: path.to_owned(), found, known })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: &str = "store.db";
    const FIRST: &str = "CREATE TABLE birds (name TEXT) STRICT";
    const SECOND: &str = "ALTER TABLE birds ADD COLUMN wings INTEGER NOT NULL DEFAULT 2";

    fn memory() -> Connection {
        Connection::open_in_memory().unwrap()
    }

    fn format_number(connection: &Connection) -> i32 {
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn each_step_is_taken_once_and_keeps_what_is_there() {
        let mut connection = memory();
        migrate(&mut connection, Path::new(NOWHERE), &[FIRST]).unwrap();
        connection.execute("INSERT INTO birds VALUES ('wren')", []).unwrap();
        for _ in 0..2 {
            migrate(&mut connection, Path::new(NOWHERE), &[FIRST, SECOND]).unwrap();
        }
        let bird = connection.query_row("SELECT name, wings FROM birds", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i32>(1)?))
        });
        assert_eq!(bird.unwrap(), ("wren".to_owned(), 2));
        assert_eq!(format_number(&connection), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_format() {
        let mut connection = memory();
        migrate(&mut connection, Path::new(NOWHERE), &[FIRST]).unwrap();
        let failed = migrate(&mut connection, Path::new(NOWHERE), &[FIRST, SECOND, "CREATE TABLE birds (x)"]);
        assert!(matches!(failed, Err(StoreError::Open { .. })));
        assert_eq!(format_number(&connection), 1);
        assert!(connection.prepare("SELECT wings FROM birds").is_err());
    }

    #[test]
    fn a_newer_format_is_refused_with_what_to_do() {
        let mut connection = memory();
        bring_up_to_date(&mut connection, Path::new(NOWHERE)).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let refused = bring_up_to_date(&mut connection, Path::new(NOWHERE)).unwrap_err();
        assert!(matches!(refused, StoreError::Newer { found: 99, .. }));
        assert!(refused.to_string().contains("run the newer roost"), "{refused}");
    }

    #[test]
    fn a_database_of_another_program_is_left_alone() {
        let mut connection = memory();
        connection.execute_batch(FIRST).unwrap();
        let refused = bring_up_to_date(&mut connection, Path::new(NOWHERE)).unwrap_err();
        assert!(matches!(refused, StoreError::Foreign { .. }));
        assert_eq!(format_number(&connection), 0);
    }
}
