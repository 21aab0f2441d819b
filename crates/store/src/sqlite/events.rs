//! The log of events.

use jiff::Timestamp;
use roost_model::{Event, EventKind, SandboxId, State};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};

use super::{Trouble, body, count};
use crate::{NewEvent, SandboxRecord};

pub(super) fn append(connection: &Connection, record: &SandboxRecord, event: NewEvent) -> Result<Event, Trouble> {
    insert(connection, Some(record), event)
}

pub(super) fn append_of_host(connection: &Connection, event: NewEvent) -> Result<Event, Trouble> {
    insert(connection, None, event)
}

fn insert(connection: &Connection, record: Option<&SandboxRecord>, event: NewEvent) -> Result<Event, Trouble> {
    let NewEvent { at, kind, reason, receipt } = event;
    let state = record.map(|record| record.phase.state());
    let sql =
        "INSERT INTO events (at, sandbox, name, kind, state, reason, receipt) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let at = at.as_microsecond();
    let id = connection.prepare_cached(sql)?.insert(params![
        at,
        record.map(|record| record.id.as_str()),
        record.map(|record| record.name.as_str()),
        kind.as_str(),
        state.map(State::as_str),
        reason,
        receipt.as_ref().map(body::write).transpose()?
    ])?;
    Ok(Event {
        id: id.cast_unsigned(),
        // As it will be read back: who follows the log live sees the same as who replays it.
        at: moment(at).map_err(|error| Trouble::unreadable(format!("event {id}"), error))?,
        sandbox: record.map(|record| record.id.clone()),
        name: record.map(|record| record.name.clone()),
        kind,
        state,
        reason,
        receipt,
    })
}

pub(super) fn after(
    connection: &Connection,
    after: u64,
    limit: usize,
    sandbox: Option<&SandboxId>,
) -> Result<Vec<Event>, Trouble> {
    match sandbox {
        None => {
            all(connection, "SELECT * FROM events WHERE id > ?1 ORDER BY id LIMIT ?2", [count(after), count(limit)])
        }
        Some(sandbox) => all(
            connection,
            "SELECT * FROM events WHERE sandbox = ?3 AND id > ?1 ORDER BY id LIMIT ?2",
            params![count(after), count(limit), sandbox.as_str()],
        ),
    }
}

pub(super) fn recent(connection: &Connection, sandbox: &SandboxId, limit: usize) -> Result<Vec<Event>, Trouble> {
    let sql = "SELECT * FROM events WHERE sandbox = ?1 ORDER BY id DESC LIMIT ?2";
    let mut newest_first = all(connection, sql, params![sandbox.as_str(), count(limit)])?;
    newest_first.reverse();
    Ok(newest_first)
}

fn all(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Vec<Event>, Trouble> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(read(row)?);
    }
    Ok(events)
}

fn read(row: &Row<'_>) -> Result<Event, Trouble> {
    let id: i64 = row.get("id")?;
    let text = |column| row.get::<_, Option<String>>(column);
    let (sandbox, name, state) = (text("sandbox")?, text("name")?, text("state")?);
    let kind: String = row.get("kind")?;
    let (at, reason, receipt) = (row.get("at")?, row.get("reason")?, row.get::<_, Option<String>>("receipt")?);
    let event = || -> Result<Event, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Event {
            id: id.cast_unsigned(),
            at: moment(at)?,
            sandbox: sandbox.map(|text| text.parse()).transpose()?,
            name: name.map(|text| text.parse()).transpose()?,
            kind: EventKind::deserialize(word(&kind))?,
            state: state.map(|text| State::deserialize(word(&text))).transpose()?,
            reason,
            receipt: receipt.map(|text| serde_json::from_str(&text)).transpose()?,
        })
    };
    event().map_err(|error| Trouble::unreadable(format!("event {id}"), error))
}

/// The words of the API are the words of the log.
fn word(text: &str) -> StrDeserializer<'_, WordError> {
    text.into_deserializer()
}

fn moment(microseconds: i64) -> Result<Timestamp, jiff::Error> {
    Timestamp::from_microsecond(microseconds)
}

pub(super) fn last(connection: &Connection) -> Result<u64, Trouble> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'events'";
    let last: Option<i64> = connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
    Ok(last.map_or(0, i64::cast_unsigned))
}

pub(super) fn forget(connection: &Connection, before: Timestamp) -> Result<usize, Trouble> {
    let sql = "DELETE FROM events WHERE id < coalesce(
        (SELECT id FROM events WHERE at >= ?1 ORDER BY id LIMIT 1),
        (SELECT max(id) + 1 FROM events))";
    Ok(connection.prepare_cached(sql)?.execute([before.as_microsecond()])?)
}
