//! The store of one node: a SQLite file in WAL mode.
//!
//! One connection writes and one reads, each behind its lock, so that a read never waits for a write's `fsync`. A write
//! that commits is in the log file, where the next process finds it whatever happened to this one; a synced write also
//! waits for the disk, and because the log is one file, everything before it is safe then too.

mod body;
mod calls;
mod checkpoints;
mod events;
mod keys;
mod leases;
mod pools;
mod sandboxes;
mod schema;
mod sessions;
mod tokens;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::{Durability, StoreError};

/// How long to wait for another process that has the file locked, such as somebody's backup.
const BUSY: Duration = Duration::from_secs(5);
/// More than there are statements, so that each is prepared once.
const STATEMENTS: usize = 48;

/// How long the log may grow before a commit has to wait until it is folded into the file: 16 MiB. The wait is for the disk
/// and hardly depends on the length, so it should be rare.
const LOG_PAGES: u32 = 4096;

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    /// Absent in memory, where every connection has a database of its own.
    // Declared first and so closed first: the writer, closing last, folds the log into the file.
    reader: Option<Mutex<Connection>>,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    connection: Connection,
    /// What the connection's next commit survives.
    durability: Durability,
}

/// What ends a piece of work on the database early.
#[derive(Debug)]
enum Trouble {
    /// An answer for the caller.
    Answer(StoreError),
    /// The database failed; the caller of the work knows what it was for.
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl Trouble {
    fn unreadable(what: String, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Answer(StoreError::Unreadable { what, source: source.into() })
    }

    fn during(self, attempt: impl FnOnce() -> String) -> StoreError {
        match self {
            Self::Answer(error) => error,
            Self::Database(error) => StoreError::Failed { attempt: attempt(), source: error.into() },
        }
    }
}

impl SqliteStore {
    /// Opens the store in the file `path`, making it or bringing it to the current format.
    ///
    /// The caller sees to it that two daemons do not open the same new file at the same time: one of them could be told
    /// that it is locked.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open { path: path.to_owned(), source };
        // It holds keys of guests; SQLite gives the log beside it the same mode. A file that exists must not be opened here:
        // closing it would take the locks away from another connection of this process.
        match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error.into())),
            _ => {}
        }
        let writer = Self::prepare(path, Connection::open(path))?;
        let reader = Connection::open(path).and_then(|connection| {
            tune(&connection)?;
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        });
        let reader = reader.map_err(|error| failed(error.into()))?;
        Ok(Self { reader: Some(Mutex::new(reader)), writer: Mutex::new(writer) })
    }

    /// A store that is gone when it is dropped, for tests.
    pub fn in_memory() -> Result<Self, StoreError> {
        let writer = Self::prepare(Path::new(":memory:"), Connection::open_in_memory())?;
        Ok(Self { reader: None, writer: Mutex::new(writer) })
    }

    fn prepare(path: &Path, connection: rusqlite::Result<Connection>) -> Result<Writer, StoreError> {
        let failed = |error: rusqlite::Error| StoreError::Open { path: path.to_owned(), source: error.into() };
        let mut connection = connection.map_err(failed)?;
        tune(&connection).map_err(failed)?;
        schema::bring_up_to_date(&mut connection, path)?;
        Ok(Writer { connection, durability: Durability::Process })
    }

    fn read<T>(
        &self,
        attempt: impl FnOnce() -> String,
        work: impl FnOnce(&Connection) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        let outcome = match &self.reader {
            Some(reader) => work(&lock(reader)),
            None => work(&lock(&self.writer).connection),
        };
        outcome.map_err(|trouble| trouble.during(attempt))
    }

    fn write<T>(
        &self,
        durability: Durability,
        attempt: impl FnOnce() -> String,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        lock(&self.writer).transact(durability, work).map_err(|trouble| trouble.during(attempt))
    }
}

impl Writer {
    fn transact<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        if self.durability != durability {
            self.connection.execute_batch(match durability {
                Durability::Process => "PRAGMA synchronous = NORMAL",
                Durability::Synced => "PRAGMA synchronous = FULL",
            })?;
            self.durability = durability;
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }
}

/// Settings that a connection has to make anew each time.
fn tune(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// A panic elsewhere leaves no half-done work behind: an unfinished transaction is rolled back as it is dropped.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SQLite counts with signed numbers; larger than its largest means the same as its largest here.
fn count(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}
