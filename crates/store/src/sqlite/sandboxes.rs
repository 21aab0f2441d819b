//! Sandboxes and the idempotency keys that made them.

use jiff::Timestamp;
use roost_lifecycle::Phase;
use roost_model::{Name, SandboxId};
use rusqlite::{Connection, OptionalExtension, Params, params};

use super::{Trouble, body, count};
use crate::{IdempotencyKey, SandboxRecord, StoreError};

pub(super) fn insert(connection: &Connection, record: &SandboxRecord) -> Result<(), Trouble> {
    let sql = "INSERT INTO sandboxes (id, name, phase, ended_at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    put(connection, sql, record).map(drop)
}

pub(super) fn update(connection: &Connection, record: &SandboxRecord) -> Result<(), Trouble> {
    let sql = "UPDATE sandboxes SET name = ?2, phase = ?3, ended_at = ?4, body = ?5 WHERE id = ?1";
    match put(connection, sql, record)? {
        0 => Err(Trouble::Answer(StoreError::Missing { id: record.id.clone() })),
        _ => Ok(()),
    }
}

fn put(connection: &Connection, sql: &str, record: &SandboxRecord) -> Result<usize, Trouble> {
    let ended_at = (record.phase == Phase::Terminated)
        .then(|| record.tombstone.as_ref().map_or(record.state_since, |tombstone| tombstone.at).as_microsecond());
    let columns =
        params![record.id.as_str(), record.name.as_str(), record.phase.to_string(), ended_at, body::write(record)?];
    connection.prepare_cached(sql)?.execute(columns).map_err(|error| match &error {
        // The id breaks the primary key; the one other thing that must be unique is a living sandbox's name.
        rusqlite::Error::SqliteFailure(cause, _) if cause.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE => {
            Trouble::Answer(StoreError::NameTaken { name: record.name.clone() })
        }
        _ => Trouble::Database(error),
    })
}

fn all(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Vec<SandboxRecord>, Trouble> {
    body::all(connection, "sandbox", sql, parameters)
}

pub(super) fn by_id(connection: &Connection, id: &SandboxId) -> Result<Option<SandboxRecord>, Trouble> {
    Ok(all(connection, "SELECT id, body FROM sandboxes WHERE id = ?1", [id.as_str()])?.pop())
}

pub(super) fn living(connection: &Connection) -> Result<Vec<SandboxRecord>, Trouble> {
    all(connection, "SELECT id, body FROM sandboxes WHERE phase <> 'terminated' ORDER BY id", [])
}

pub(super) fn newest_by_name(connection: &Connection, name: &Name) -> Result<Option<SandboxRecord>, Trouble> {
    let sql = "SELECT id, body FROM sandboxes WHERE id = coalesce(
        (SELECT id FROM sandboxes WHERE name = ?1 AND phase <> 'terminated'),
        (SELECT max(id) FROM sandboxes WHERE name = ?1))";
    Ok(all(connection, sql, [name.as_str()])?.pop())
}

pub(super) fn by_id_prefix(connection: &Connection, prefix: &str, limit: usize) -> Result<Vec<SandboxRecord>, Trouble> {
    // Nothing sorts after the last character there is, so this is every text that starts with the prefix.
    let end = format!("{prefix}{}", char::MAX);
    let sql = "SELECT id, body FROM sandboxes WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    all(connection, sql, params![prefix, end, count(limit)])
}

pub(super) fn terminated(
    connection: &Connection,
    after: Option<&SandboxId>,
    limit: usize,
) -> Result<Vec<SandboxRecord>, Trouble> {
    let after = after.map_or("", SandboxId::as_str);
    let sql = "SELECT id, body FROM sandboxes WHERE phase = 'terminated' AND id > ?1 ORDER BY id LIMIT ?2";
    all(connection, sql, params![after, count(limit)])
}

pub(super) fn forget_terminated(connection: &Connection, before: Timestamp) -> Result<usize, Trouble> {
    let sql = "DELETE FROM sandboxes WHERE ended_at < ?1";
    Ok(connection.prepare_cached(sql)?.execute([before.as_microsecond()])?)
}

/// The sandbox that the same request has made before.
pub(super) fn made_before(connection: &Connection, key: &IdempotencyKey) -> Result<Option<SandboxId>, Trouble> {
    let sql = "SELECT fingerprint, sandbox FROM idempotency_keys WHERE key = ?1";
    let found = connection
        .prepare_cached(sql)?
        .query_row([&key.key], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    match found {
        None => Ok(None),
        Some((fingerprint, sandbox)) if fingerprint == key.fingerprint => sandbox
            .parse()
            .map(Some)
            .map_err(|error| Trouble::unreadable(format!("idempotency key `{}`", key.key), error)),
        Some(_) => Err(Trouble::Answer(StoreError::KeyConflict { key: key.key.clone() })),
    }
}

pub(super) fn remember_key(
    connection: &Connection,
    key: &IdempotencyKey,
    sandbox: &SandboxId,
    at: Timestamp,
) -> Result<(), Trouble> {
    let sql = "INSERT INTO idempotency_keys (key, fingerprint, sandbox, at) VALUES (?1, ?2, ?3, ?4)";
    let columns = params![key.key, key.fingerprint, sandbox.as_str(), at.as_microsecond()];
    connection.prepare_cached(sql)?.execute(columns)?;
    Ok(())
}

pub(super) fn forget_keys(connection: &Connection, before: Timestamp) -> Result<usize, Trouble> {
    let sql = "DELETE FROM idempotency_keys WHERE at < ?1";
    Ok(connection.prepare_cached(sql)?.execute([before.as_microsecond()])?)
}
