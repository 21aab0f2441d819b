//! Pools: how many sandboxes of which template wait.

use roost_model::EngineKind;
use rusqlite::{Connection, params};

use super::Trouble;
use crate::PoolRecord;

pub(super) fn all(connection: &Connection) -> Result<Vec<PoolRecord>, Trouble> {
    let sql = "SELECT template, engine, least, most FROM pools ORDER BY template, engine";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut pools = Vec::new();
    while let Some(row) = rows.next()? {
        let (template, engine): (String, String) = (row.get(0)?, row.get(1)?);
        let engine = engine.parse::<EngineKind>();
        let engine = engine.map_err(|error| Trouble::unreadable(format!("the pool of `{template}`"), error))?;
        pools.push(PoolRecord { template, engine, min: row.get(2)?, max: row.get(3)? });
    }
    Ok(pools)
}

pub(super) fn save(connection: &Connection, pool: &PoolRecord) -> Result<(), Trouble> {
    if pool.max == 0 {
        let sql = "DELETE FROM pools WHERE template = ?1 AND engine = ?2";
        connection.prepare_cached(sql)?.execute(params![pool.template, pool.engine.as_str()])?;
        return Ok(());
    }
    let sql = "INSERT INTO pools (template, engine, least, most) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (template, engine) DO UPDATE SET least = ?3, most = ?4";
    let columns = params![pool.template, pool.engine.as_str(), pool.min, pool.max];
    connection.prepare_cached(sql)?.execute(columns)?;
    Ok(())
}
