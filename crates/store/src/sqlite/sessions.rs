//! Browsers that have logged in, known by the hashes of their cookies.

use jiff::Timestamp;
use roost_model::TokenId;
use rusqlite::{Connection, OptionalExtension, params};

use super::Trouble;
use crate::SessionRecord;

pub(super) fn insert(connection: &Connection, session: &SessionRecord, hash: &[u8; 32]) -> Result<(), Trouble> {
    let sql = "INSERT INTO sessions (hash, token, expires_at) VALUES (?1, ?2, ?3)";
    let token = session.token.as_ref().map(TokenId::as_str);
    connection.prepare_cached(sql)?.execute(params![hash, token, session.expires_at.as_microsecond()])?;
    Ok(())
}

pub(super) fn by_hash(connection: &Connection, hash: &[u8; 32]) -> Result<Option<SessionRecord>, Trouble> {
    let mut statement = connection.prepare_cached("SELECT token, expires_at FROM sessions WHERE hash = ?1")?;
    let row = statement.query_row([hash], |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?)));
    let Some((token, expires_at)) = row.optional()? else { return Ok(None) };
    let wrong = |error: Box<dyn std::error::Error + Send + Sync>| Trouble::unreadable("a session".to_owned(), error);
    let token = token.map(|id| id.parse()).transpose().map_err(|error: roost_model::IdError| wrong(error.into()))?;
    let expires_at = Timestamp::from_microsecond(expires_at).map_err(|error| wrong(error.into()))?;
    Ok(Some(SessionRecord { token, expires_at }))
}

pub(super) fn delete(connection: &Connection, hash: &[u8; 32]) -> Result<bool, Trouble> {
    Ok(connection.prepare_cached("DELETE FROM sessions WHERE hash = ?1")?.execute([hash])? > 0)
}

/// Those of a token that is taken back.
pub(super) fn delete_of(connection: &Connection, token: &TokenId) -> Result<(), Trouble> {
    connection.prepare_cached("DELETE FROM sessions WHERE token = ?1")?.execute([token.as_str()])?;
    Ok(())
}

pub(super) fn forget(connection: &Connection, expired_by: Timestamp) -> Result<(), Trouble> {
    let mut statement = connection.prepare_cached("DELETE FROM sessions WHERE expires_at <= ?1")?;
    statement.execute([expired_by.as_microsecond()])?;
    Ok(())
}
