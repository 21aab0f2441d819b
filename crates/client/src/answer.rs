//! An answer of the daemon, whose connection goes back to the pool once it is read to its end.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::http::response::Parts;
use serde::de::DeserializeOwned;

use crate::ClientError;
use crate::connector::{Connector, Sender};

/// Refusals are short; more than this is not one of ours.
const LONGEST_REFUSAL: usize = 1 << 20;

/// A connection that can be used again after the body.
pub(crate) struct Lease {
    pub(crate) sender: Sender,
    pub(crate) home: Arc<Connector>,
}

/// The head of an answer and its body still to come.
pub(crate) struct Answer {
    head: Parts,
    body: Incoming,
    lease: Option<Lease>,
    attempt: String,
}

impl Answer {
    /// Takes an answer; one that is no success is read and returned as the refusal it is.
    pub(crate) async fn accept(
        head: Parts,
        body: Incoming,
        lease: Option<Lease>,
        attempt: String,
    ) -> Result<Self, ClientError> {
        let mut answer = Self { head, body, lease, attempt };
        if answer.body.is_end_stream() {
            answer.give_back();
        }
        if answer.head.status.is_success() {
            return Ok(answer);
        }
        let mut text = BytesMut::new();
        while let Some(piece) = answer.chunk().await? {
            text.extend_from_slice(&piece);
            if text.len() > LONGEST_REFUSAL {
                break;
            }
        }
        Err(ClientError::from_body(answer.head.status.as_u16(), &text))
    }

    pub(crate) fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub(crate) fn attempt(&self) -> &str {
        &self.attempt
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn header_number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }

    /// The next piece of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                None => {
                    self.give_back();
                    return Ok(None);
                }
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(source)) => {
                    return Err(ClientError::Broken { attempt: self.attempt.clone(), source: source.into() });
                }
            }
        }
    }

    /// Reads the whole body as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(mut self) -> Result<T, ClientError> {
        let mut text = BytesMut::new();
        while let Some(piece) = self.chunk().await? {
            text.extend_from_slice(&piece);
        }
        parse(&self.attempt, &text)
    }

    /// Reads the body to its end, which frees the connection for the next call.
    pub(crate) async fn drain(mut self) -> Result<(), ClientError> {
        while self.chunk().await?.is_some() {}
        Ok(())
    }

    fn give_back(&mut self) {
        if let Some(Lease { sender, home }) = self.lease.take() {
            home.park(sender);
        }
    }
}

pub(crate) fn parse<T: DeserializeOwned>(attempt: &str, text: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(text)
        .map_err(|error| ClientError::Answer { attempt: attempt.to_owned(), problem: error.to_string() })
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("attempt", &self.attempt)
            .field("status", &self.head.status)
            .finish_non_exhaustive()
    }
}
