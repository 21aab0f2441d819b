//! Public keys that are let in, known by their fingerprints.

use roost_model::{KeyId, KeyView};
use rusqlite::{Connection, params};

use super::{Trouble, body};

pub(super) fn put(connection: &Connection, key: &KeyView) -> Result<(), Trouble> {
    let sql = "INSERT INTO keys (id, fingerprint, body) VALUES (?1, ?2, ?3)
        ON CONFLICT (id) DO UPDATE SET fingerprint = excluded.fingerprint, body = excluded.body";
    connection.prepare_cached(sql)?.execute(params![key.id.as_str(), key.fingerprint, body::write(key)?])?;
    Ok(())
}

pub(super) fn all(connection: &Connection) -> Result<Vec<KeyView>, Trouble> {
    body::all(connection, "key", "SELECT id, body FROM keys ORDER BY id", [])
}

pub(super) fn by_fingerprint(connection: &Connection, fingerprint: &str) -> Result<Option<KeyView>, Trouble> {
    Ok(body::all(connection, "key", "SELECT id, body FROM keys WHERE fingerprint = ?1", [fingerprint])?.pop())
}

pub(super) fn delete(connection: &Connection, id: &KeyId) -> Result<bool, Trouble> {
    Ok(connection.prepare_cached("DELETE FROM keys WHERE id = ?1")?.execute([id.as_str()])? > 0)
}
