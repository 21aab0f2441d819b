//! Calls from inside, as the host hears them.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::frame::{self, Kind};
use crate::{AnswerFrame, CallFrame, Reply, Request};

use super::{CallError, Connection};

/// A connection on which the guest asks and the host answers.
#[derive(Debug)]
pub struct Calls<S> {
    connection: Connection<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Asks the guest for the calls of processes inside.
    pub async fn calls(mut self) -> Result<Calls<S>, CallError> {
        self.begin(&Request::Calls).await?;
        match self.reply().await? {
            Reply::Done => Ok(Calls { connection: self }),
            other => Err(CallError::UnexpectedReply(Box::new(other))),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Calls<S> {
    /// The next call. Safe to cancel.
    pub async fn next(&mut self) -> Result<CallFrame, CallError> {
        let (frame, _turn) = self.connection.reader.next().await?;
        match frame {
            (Kind::Call, body) => Ok(frame::json_body(Kind::Call, &body)?),
            (other, _) => Err(CallError::UnexpectedFrame(other)),
        }
    }

    /// Answers one.
    pub async fn answer(&mut self, answer: &AnswerFrame) -> Result<(), CallError> {
        let mut bytes = Vec::new();
        frame::put_json(&mut bytes, Kind::Answer, answer)?;
        self.connection.writer.queue(&bytes);
        Ok(self.connection.writer.flush().await?)
    }
}
