//! Records as JSON in the column `body` of their table.

use rusqlite::{Connection, Params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Trouble;

pub(super) fn write(record: &impl Serialize) -> Result<String, Trouble> {
    serde_json::to_string(record)
        .map_err(|error| Trouble::Database(rusqlite::Error::ToSqlConversionFailure(error.into())))
}

/// Every record that `sql` selects as `id, body`; `what` it is goes into the error that names one nobody can read.
pub(super) fn all<T: DeserializeOwned>(
    connection: &Connection,
    what: &str,
    sql: &str,
    parameters: impl Params,
) -> Result<Vec<T>, Trouble> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        let body = row.get_ref("body")?.as_str().map_err(rusqlite::Error::from)?;
        match serde_json::from_str(body) {
            Ok(record) => records.push(record),
            Err(error) => return Err(Trouble::unreadable(format!("{what} `{}`", row.get::<_, String>("id")?), error)),
        }
    }
    Ok(records)
}
