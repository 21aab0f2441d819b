//! Access tokens, known by the hashes of their secrets.

use roost_model::{TokenId, TokenView};
use rusqlite::{Connection, Params, params};

use super::{Trouble, body};

pub(super) fn insert(connection: &Connection, view: &TokenView, hash: &[u8; 32]) -> Result<(), Trouble> {
    let sql = "INSERT INTO tokens (id, hash, name, created_at, access) VALUES (?1, ?2, ?3, ?4, ?5)";
    let access = body::write(&view.access)?;
    let columns = params![view.id.as_str(), hash, view.name, view.created_at.to_string(), access];
    connection.prepare_cached(sql)?.execute(columns)?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, id: &TokenId) -> Result<bool, Trouble> {
    Ok(connection.prepare_cached("DELETE FROM tokens WHERE id = ?1")?.execute([id.as_str()])? > 0)
}

pub(super) fn all(connection: &Connection) -> Result<Vec<TokenView>, Trouble> {
    read(connection, "SELECT id, name, created_at, access FROM tokens ORDER BY id", [])
}

pub(super) fn by_hash(connection: &Connection, hash: &[u8; 32]) -> Result<Option<TokenView>, Trouble> {
    Ok(read(connection, "SELECT id, name, created_at, access FROM tokens WHERE hash = ?1", [hash])?.pop())
}

fn read(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Vec<TokenView>, Trouble> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, name): (String, String) = (row.get(0)?, row.get(1)?);
        let (created_at, access): (String, String) = (row.get(2)?, row.get(3)?);
        let wrong =
            |error: Box<dyn std::error::Error + Send + Sync>| Trouble::unreadable(format!("token `{id}`"), error);
        tokens.push(TokenView {
            id: id.parse().map_err(|error: roost_model::IdError| wrong(error.into()))?,
            name,
            created_at: created_at.parse().map_err(|error: jiff::Error| wrong(error.into()))?,
            access: serde_json::from_str(&access).map_err(|error| wrong(error.into()))?,
        });
    }
    Ok(tokens)
}
