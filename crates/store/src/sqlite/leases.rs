//! Holds and alarms.

use roost_model::{Name, SandboxId};
use rusqlite::{Connection, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Trouble, body};

/// The step of the format that made these tables.
pub(super) const MIGRATION: &str = "
    CREATE TABLE holds (
        sandbox TEXT NOT NULL,
        id TEXT NOT NULL, -- unique for its sandbox
        body TEXT NOT NULL,
        PRIMARY KEY (sandbox, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE alarms (
        sandbox TEXT NOT NULL,
        id TEXT NOT NULL, -- unique for its sandbox
        body TEXT NOT NULL,
        PRIMARY KEY (sandbox, id)
    ) STRICT, WITHOUT ROWID;
";

/// One of the two tables, which are alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    put: &'static str,
    delete: &'static str,
    all: &'static str,
    forget: &'static str,
    what: &'static str,
}

pub(super) const HOLDS: Table = Table {
    put: "INSERT INTO holds (sandbox, id, body) VALUES (?1, ?2, ?3) \
          ON CONFLICT (sandbox, id) DO UPDATE SET body = excluded.body",
    delete: "DELETE FROM holds WHERE sandbox = ?1 AND id = ?2",
    all: "SELECT sandbox, id, body FROM holds ORDER BY sandbox, id",
    forget: "DELETE FROM holds WHERE sandbox = ?1",
    what: "hold",
};

pub(super) const ALARMS: Table = Table {
    put: "INSERT INTO alarms (sandbox, id, body) VALUES (?1, ?2, ?3) \
          ON CONFLICT (sandbox, id) DO UPDATE SET body = excluded.body",
    delete: "DELETE FROM alarms WHERE sandbox = ?1 AND id = ?2",
    all: "SELECT sandbox, id, body FROM alarms ORDER BY sandbox, id",
    forget: "DELETE FROM alarms WHERE sandbox = ?1",
    what: "alarm",
};

impl Table {
    pub(super) fn put(
        self,
        connection: &Connection,
        sandbox: &SandboxId,
        id: &Name,
        lease: &impl Serialize,
    ) -> Result<(), Trouble> {
        let columns = params![sandbox.as_str(), id.as_str(), body::write(lease)?];
        connection.prepare_cached(self.put)?.execute(columns)?;
        Ok(())
    }

    pub(super) fn delete(self, connection: &Connection, sandbox: &SandboxId, id: &Name) -> Result<bool, Trouble> {
        let gone = connection.prepare_cached(self.delete)?.execute([sandbox.as_str(), id.as_str()])?;
        Ok(gone > 0)
    }

    pub(super) fn forget(self, connection: &Connection, sandbox: &SandboxId) -> Result<(), Trouble> {
        connection.prepare_cached(self.forget)?.execute([sandbox.as_str()])?;
        Ok(())
    }

    pub(super) fn all<T: DeserializeOwned>(self, connection: &Connection) -> Result<Vec<(SandboxId, T)>, Trouble> {
        let mut statement = connection.prepare_cached(self.all)?;
        let mut rows = statement.query([])?;
        let mut leases = Vec::new();
        while let Some(row) = rows.next()? {
            let (sandbox, id): (String, String) = (row.get(0)?, row.get(1)?);
            let named = || format!("{} `{id}` of `{sandbox}`", self.what);
            let owner = sandbox.parse().map_err(|error: roost_model::IdError| Trouble::unreadable(named(), error))?;
            let body = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
            let lease = serde_json::from_str(body).map_err(|error| Trouble::unreadable(named(), error))?;
            leases.push((owner, lease));
        }
        Ok(leases)
    }
}
