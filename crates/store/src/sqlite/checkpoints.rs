//! Checkpoints.

use roost_model::{CheckpointId, SandboxId};
use rusqlite::{Connection, Params, params};

use super::{Trouble, body};
use crate::{CheckpointRecord, StoreError};

pub(super) fn insert(connection: &Connection, record: &CheckpointRecord) -> Result<(), Trouble> {
    let sql = "INSERT INTO checkpoints (id, sandbox, body) VALUES (?1, ?2, ?3)";
    let columns = params![record.id.as_str(), record.origin.id.as_str(), body::write(record)?];
    connection.prepare_cached(sql)?.execute(columns)?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, id: &CheckpointId) -> Result<(), Trouble> {
    match connection.prepare_cached("DELETE FROM checkpoints WHERE id = ?1")?.execute([id.as_str()])? {
        0 => Err(Trouble::Answer(StoreError::NoCheckpoint { id: id.clone() })),
        _ => Ok(()),
    }
}

fn read(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Vec<CheckpointRecord>, Trouble> {
    body::all(connection, "checkpoint", sql, parameters)
}

pub(super) fn by_id(connection: &Connection, id: &CheckpointId) -> Result<Option<CheckpointRecord>, Trouble> {
    Ok(read(connection, "SELECT id, body FROM checkpoints WHERE id = ?1", [id.as_str()])?.pop())
}

pub(super) fn of(connection: &Connection, sandbox: &SandboxId) -> Result<Vec<CheckpointRecord>, Trouble> {
    read(connection, "SELECT id, body FROM checkpoints WHERE sandbox = ?1 ORDER BY id", [sandbox.as_str()])
}

pub(super) fn all(connection: &Connection) -> Result<Vec<CheckpointRecord>, Trouble> {
    read(connection, "SELECT id, body FROM checkpoints ORDER BY id", [])
}
