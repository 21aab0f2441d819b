//! A listener inside, as the host holds it.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::frame::{self, Kind};
use crate::{Arrival, Endpoint, Listen, Listening, Reply, Request};

use super::{CallError, Connection};

/// A connection for as long as which the guest listens.
#[derive(Debug)]
pub struct Arrivals<S> {
    connection: Connection<S>,
    listening: Listening,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Has the guest listen until what is returned is dropped.
    pub async fn listen(mut self, at: Endpoint) -> Result<Arrivals<S>, CallError> {
        self.begin(&Request::Listen(Listen { at })).await?;
        match self.reply().await? {
            Reply::Listening(listening) => Ok(Arrivals { connection: self, listening }),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Arrivals<S> {
    /// The listener.
    pub fn listening(&self) -> Listening {
        self.listening
    }

    /// The next one who has connected inside. Safe to cancel.
    pub async fn next(&mut self) -> Result<Arrival, CallError> {
        let (frame, _turn) = self.connection.reader.next().await?;
        match frame {
            (Kind::Arrival, body) => Ok(frame::json_body(Kind::Arrival, &body)?),
            (other, _) => Err(CallError::UnexpectedFrame(other)),
        }
    }
}
