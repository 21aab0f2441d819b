//! What happens, as it happens: sandboxes' events and changes of files.

use std::marker::PhantomData;

use roost_model::{Event, Page, WatchEvent};
use serde::de::DeserializeOwned;

use crate::answer::{Answer, parse};
use crate::route::Route;
use crate::sse::SseReader;
use crate::{Client, ClientError};

/// Which events are wanted.
#[derive(Debug, Clone, Default)]
pub struct EventsFilter {
    /// Only those after this id; everything that is kept if absent.
    pub after: Option<u64>,
    /// Only those of this sandbox.
    pub sandbox: Option<String>,
}

impl EventsFilter {
    fn route(&self) -> Route {
        Route::new("/v1/events").query_some("after", self.after).query_some("sandbox", self.sandbox.as_ref())
    }
}

/// A stream of typed Server-Sent Events.
#[derive(Debug)]
pub struct Sse<T> {
    reader: SseReader,
    kind: PhantomData<fn() -> T>,
}

/// Events of sandboxes; to go on after a break, ask again after the last id.
pub type EventStream = Sse<Event>;
/// Changes of files.
pub type WatchStream = Sse<WatchEvent>;

impl<T: DeserializeOwned> Sse<T> {
    pub(crate) fn new(answer: Answer) -> Self {
        Self { reader: SseReader::new(answer), kind: PhantomData }
    }

    /// The next one; nothing when the daemon ended the stream. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        match self.reader.next().await? {
            Some(data) => parse(self.reader.lines.attempt(), &data).map(Some),
            None => Ok(None),
        }
    }
}

impl Client {
    /// Follows events.
    pub async fn follow_events(&self, filter: &EventsFilter) -> Result<EventStream, ClientError> {
        Ok(EventStream::new(self.get(filter.route()).await?))
    }

    /// The events there are.
    pub async fn list_events(&self, filter: &EventsFilter) -> Result<Vec<Event>, ClientError> {
        let page: Page<Event> = self.get_json(filter.route().query("follow", false)).await?;
        Ok(page.items)
    }
}
