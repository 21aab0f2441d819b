//! Standard input, or typing at a terminal.

use bytes::Bytes;
use roost_host::{Handle, HostError, StdinLine};
use roost_model::ErrorCode;

use super::message::{Empty, Input, Selected, Selector, SendInput, StreamInput};
use super::select::{self, Found};
use crate::envd::connect::{Code, ConnectError, Incoming};

/// A process that takes input.
struct Line {
    line: StdinLine,
    pty: bool,
}

impl Line {
    async fn open(handle: &Handle, selector: &Selector) -> Result<Self, ConnectError> {
        let Found { id, info } = select::find_running(handle, selector).await?;
        Ok(Self { line: handle.stdin_line(&id).await?, pty: info.pty })
    }

    async fn write(&mut self, input: Input) -> Result<(), ConnectError> {
        let bytes = bytes_of(input, self.pty)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.line.write(bytes, false).await.map_err(refusal)?;
        Ok(())
    }
}

/// Writes once.
pub(super) async fn send(handle: &Handle, wanted: SendInput) -> Result<Empty, ConnectError> {
    Line::open(handle, &wanted.process).await?.write(wanted.input).await?;
    Ok(Empty {})
}

/// Writes what comes, in its order. The process's pipe sets the pace.
pub(super) async fn stream(handle: &Handle, mut incoming: Incoming<StreamInput>) -> Result<Empty, ConnectError> {
    let mut line: Option<Line> = None;
    while let Some(message) = incoming.next().await? {
        match (message.start, message.data, &mut line) {
            (Some(start), None, None) => line = Some(Line::open(handle, &start.process).await?),
            (None, Some(data), Some(line)) => line.write(data.input).await?,
            (None, None, _) => {}
            (Some(_), _, _) => return Err(ConnectError::invalid("`start` comes once, before everything else")),
            (None, Some(_), None) => return Err(ConnectError::invalid("`start` comes before the first `data`")),
        }
    }
    Ok(Empty {})
}

/// Ends standard input.
pub(super) async fn close(handle: &Handle, wanted: &Selected) -> Result<Empty, ConnectError> {
    let mut line = Line::open(handle, &wanted.process).await?;
    if line.pty {
        let message = "a terminal has no standard input to close: send the character 4 to it";
        return Err(ConnectError::new(Code::FailedPrecondition, message));
    }
    line.line.write(Bytes::new(), true).await.map_err(refusal)?;
    Ok(Empty {})
}

fn bytes_of(input: Input, pty: bool) -> Result<Bytes, ConnectError> {
    let refused = |message: &str| Err(ConnectError::new(Code::FailedPrecondition, message));
    match (input.stdin, input.pty) {
        (Some(bytes), None) if !pty => Ok(Bytes::from(bytes.0)),
        (None, Some(bytes)) if pty => Ok(Bytes::from(bytes.0)),
        (Some(_), None) => refused("the process has a terminal: its input is `pty`"),
        (None, Some(_)) => refused("the process has no terminal: its input is `stdin`"),
        _ => Err(ConnectError::invalid("input is either `stdin` or `pty`")),
    }
}

fn refusal(error: HostError) -> ConnectError {
    match error.code() {
        ErrorCode::Conflict => ConnectError::new(Code::FailedPrecondition, "stdin not enabled or closed"),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envd::connect::json::Base64;

    #[test]
    fn input_goes_where_it_is_meant_to() {
        let some = || Some(Base64(b"x".to_vec()));
        let code = |stdin, to_pty, pty| bytes_of(Input { stdin, pty: to_pty }, pty).map_err(|error| error.code);
        assert_eq!(code(some(), None, false), Ok(Bytes::from_static(b"x")));
        assert_eq!(code(None, some(), true), Ok(Bytes::from_static(b"x")));
        assert_eq!(code(some(), None, true), Err(Code::FailedPrecondition));
        assert_eq!(code(None, some(), false), Err(Code::FailedPrecondition));
        assert_eq!(code(None, None, false), Err(Code::InvalidArgument));
        assert_eq!(code(some(), some(), false), Err(Code::InvalidArgument));
    }
}
