//! The event log: the store holds it, a watch channel says that it grew.
//!
//! Readers always read from the store, in the order of ids, so that nothing is missed or doubled however slowly they
//! read and however the actors that write are scheduled.

use std::sync::Arc;

use jiff::Timestamp;
use roost_model::{Event, EventKind, SandboxId};
use roost_store::{NewEvent, Store};
use tokio::sync::watch;

use crate::{HostError, Visitor, blocking};

const BATCH: usize = 256;

/// Announces and replays events.
#[derive(Debug, Clone)]
pub struct EventLog {
    store: Arc<dyn Store>,
    newest: watch::Sender<u64>,
}

/// Reads events from a point on, for ever.
#[derive(Debug)]
pub struct EventReader {
    log: EventLog,
    seen: watch::Receiver<u64>,
    after: u64,
    sandbox: Option<SandboxId>,
    batch: std::vec::IntoIter<Event>,
    /// Whose eyes read, if they do not see everything.
    reader: Option<Visitor>,
}

impl EventLog {
    pub(crate) fn open(store: Arc<dyn Store>) -> Result<Self, HostError> {
        let newest = watch::Sender::new(store.last_event()?);
        Ok(Self { store, newest })
    }

    /// Says that an event has been stored.
    pub(crate) fn announce(&self, id: u64) {
        self.newest.send_if_modified(|newest| {
            let grew = id > *newest;
            *newest = (*newest).max(id);
            grew
        });
    }

    /// Logs an event about the host. An event that cannot be stored is a warning in the daemon's log.
    pub async fn log_host(&self, kind: EventKind, reason: String) {
        let event = NewEvent { at: Timestamp::now(), kind, reason: Some(reason), receipt: None };
        let store = self.store.clone();
        match blocking(move || store.log_host_event(event)).await {
            Ok(event) => self.announce(event.id),
            Err(error) => tracing::warn!(%error, kind = kind.as_str(), "failed to log an event about the host"),
        }
    }

    /// The id of the newest event.
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Up to `limit` events after `after`.
    pub fn after(&self, after: u64, limit: usize, sandbox: Option<&SandboxId>) -> Result<Vec<Event>, HostError> {
        Ok(self.store.events_after(after, limit, sandbox)?)
    }

    /// Reads from `after` on and waits for more.
    pub fn follow(&self, after: u64, sandbox: Option<SandboxId>) -> EventReader {
        let batch = Vec::new().into_iter();
        EventReader { log: self.clone(), seen: self.newest.subscribe(), after, sandbox, batch, reader: None }
    }
}

impl EventReader {
    /// Only what a visitor sees.
    pub(crate) fn seen_by(self, visitor: Visitor) -> Self {
        Self { reader: Some(visitor), ..self }
    }

    /// The next event, as soon as there is one.
    pub async fn next(&mut self) -> Result<Event, HostError> {
        loop {
            if let Some(event) = self.batch.next() {
                self.after = event.id;
                match &self.reader {
                    Some(reader) if !reader.sees_event(&event)? => continue,
                    _ => return Ok(event),
                }
            }
            // Mark the number as seen before reading: an event stored in between wakes us again.
            let newest = *self.seen.borrow_and_update();
            let mut batch = self.log.after(self.after, BATCH, self.sandbox.as_ref())?;
            // One that is stored and not yet announced would tell of something that is not to be seen yet.
            batch.retain(|event| event.id <= newest);
            if batch.is_empty() {
                if self.seen.changed().await.is_err() {
                    return Err(HostError::Internal("the event log closed".to_owned()));
                }
            } else {
                self.batch = batch.into_iter();
            }
        }
    }
}
