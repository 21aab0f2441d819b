//! An attachment to a process, and all that it wrote.

use std::time::{Duration, Instant};

use bytes::Bytes;
use roost_model::{ExecId, ExecOutput, ExecState, ExecView};
use roost_wire::client::{ExecFrame, ExecStream};
use roost_wire::{ExecInfo, Stream};
use tokio_util::sync::CancellationToken;

use crate::HostError;
use crate::convert::{exec_state, exec_view};
use crate::guards::Busy;
use crate::guest::{Guest, GuestSocket};
use crate::handle::Handle;

/// Most bytes of each stream that a waiting start returns.
const ANSWER_LIMIT: usize = 8 << 20;
/// How long a process that lives on may be out of reach once its connection is known to be lost: as long as it takes to write
/// much memory. What is longer is a sandbox that has cut itself off.
const AWAY: Duration = Duration::from_secs(20);

/// From where on output is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputStart {
    /// Absolute offset in standard output, or nothing to leave it out.
    pub stdout: Option<u64>,
    /// Absolute offset in standard error, or nothing to leave it out.
    pub stderr: Option<u64>,
    /// Go on until the process ends.
    pub follow: bool,
    /// Hold the process back rather than lose output.
    pub lossless: bool,
}

impl OutputStart {
    /// Everything, from the first byte to the end.
    pub const WHOLE: Self = Self { stdout: Some(0), stderr: Some(0), follow: true, lossless: true };
    /// Nothing but the end.
    pub(super) const NOTHING: Self = Self { stdout: None, stderr: None, follow: true, lossless: false };

    /// Moves on behind a frame.
    fn pass(&mut self, frame: &ExecFrame) {
        let (stream, end) = match frame {
            ExecFrame::Output { stream, offset, bytes } => (*stream, offset.saturating_add(bytes.len() as u64)),
            ExecFrame::Gap(gap) => (gap.stream, gap.to),
            ExecFrame::End(_) => return,
        };
        let place = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
        if let Some(at) = place {
            *at = end;
        }
    }
}

/// An attachment to a process: its output, and the way to its input.
#[derive(Debug)]
pub struct ExecAttachment {
    /// The process when the attachment began.
    pub exec: ExecView,
    /// Frames of both directions.
    pub stream: ExecStream<GuestSocket>,
    /// Whose guest it is.
    pub guest: Guest,
    /// Keeps the sandbox awake while somebody is attached.
    pub busy: Busy,
    pub(crate) handle: Handle,
    /// That of the processes it is one of.
    pub(crate) life: CancellationToken,
}

impl Handle {
    /// Attaches again to a process to which the way has broken, if it lives on, as it does when its memory is saved where
    /// connections do not outlive that; else it is lost.
    pub(super) async fn attach_on(
        &self,
        id: &ExecId,
        start: OutputStart,
        life: &CancellationToken,
        lost: HostError,
    ) -> Result<ExecAttachment, HostError> {
        if !matches!(lost, HostError::GuestLost { .. }) {
            return Err(lost);
        }
        let again = async {
            loop {
                match self.attach_again(id, start).await {
                    // Nobody answers while much memory is written.
                    Err(HostError::GuestLost { .. }) => {}
                    other => return other,
                }
            }
        };
        tokio::select! {
            biased;
            () = life.cancelled() => Err(lost),
            again = tokio::time::timeout(AWAY, again) => again.unwrap_or(Err(lost)),
        }
    }
}

impl ExecAttachment {
    /// Gives it its input and reads to the end, at most `limit` bytes of each stream.
    pub(crate) async fn run_out(self, stdin: Option<Bytes>, limit: usize) -> Result<ExecOutput, HostError> {
        let Some(stdin) = stdin else { return self.gather(limit, OutputStart::WHOLE).await };
        // Of input that was on its way when a connection broke nobody knows how far it came.
        let (mut output, mut input) = self.stream.split();
        let guest = &self.guest;
        let read = async {
            let mut gathered = Gathered::up_to(limit);
            while let Some(frame) = output.next().await {
                if let Some(info) = gathered.take(frame.map_err(|error| guest.failed(error))?) {
                    return gathered.finish(&info);
                }
            }
            Err(cut_off())
        };
        let write = async {
            // One that has ended or closed its input does not want the rest.
            if input.stdin(&stdin).await.is_ok() {
                drop(input.close_stdin().await);
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            outcome = read => outcome,
            never = write => never,
        }
    }

    /// Reads everything to the end.
    pub async fn collect(self) -> Result<ExecOutput, HostError> {
        self.gather(ANSWER_LIMIT, OutputStart::WHOLE).await
    }

    /// Reads to the end, from where it began, on another connection where one breaks.
    pub(super) async fn gather(mut self, limit: usize, mut start: OutputStart) -> Result<ExecOutput, HostError> {
        let mut gathered = Gathered::up_to(limit);
        // Since when connections have broken before they brought anything.
        let mut broken: Option<Instant> = None;
        while let Some(frame) = self.stream.next().await {
            match frame {
                Ok(frame) => {
                    broken = None;
                    start.pass(&frame);
                    if let Some(info) = gathered.take(frame) {
                        self.guest.note_reply(gathered.bytes());
                        self.release();
                        return gathered.finish(&info);
                    }
                }
                Err(error) => {
                    let lost = self.guest.failed(error);
                    if broken.get_or_insert_with(Instant::now).elapsed() > AWAY {
                        return Err(lost);
                    }
                    let again = self.handle.attach_on(&self.exec.id, start, &self.life, lost).await?;
                    (self.stream, self.guest) = (again.stream, again.guest);
                }
            }
        }
        Err(cut_off())
    }

    /// Leaves the process. A connection on which all was read is kept for the next call.
    pub fn release(self) {
        if let Some(connection) = self.stream.into_connection() {
            self.guest.give_back(connection);
        }
    }
}

fn cut_off() -> HostError {
    HostError::Internal("the output ended before the process did".to_owned())
}

/// Output up to a limit.
#[derive(Debug)]
struct Gathered {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
    limit: usize,
}

impl Gathered {
    fn up_to(limit: usize) -> Self {
        Self { stdout: Vec::new(), stderr: Vec::new(), truncated: false, limit }
    }

    /// Takes a frame in; the last one is given back.
    fn take(&mut self, frame: ExecFrame) -> Option<ExecInfo> {
        match frame {
            ExecFrame::Output { stream, bytes, .. } => {
                let into = if stream == Stream::Stdout { &mut self.stdout } else { &mut self.stderr };
                let room = self.limit.saturating_sub(into.len());
                self.truncated |= bytes.len() > room;
                into.extend_from_slice(&bytes[..bytes.len().min(room)]);
                None
            }
            ExecFrame::Gap(_) => {
                self.truncated = true;
                None
            }
            ExecFrame::End(info) => Some(info),
        }
    }

    fn bytes(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }

    fn finish(self, info: &ExecInfo) -> Result<ExecOutput, HostError> {
        let ExecState::Exited { exit_code, .. } = exec_state(&info.state) else {
            let message = "the guest ended the output of a process that it says runs".to_owned();
            return Err(HostError::GuestReply { too_large: false, message });
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(self.stdout), text(self.stderr));
        Ok(ExecOutput { exec: exec_view(info)?, exit_code, stdout, stderr, truncated: self.truncated })
    }
}

#[cfg(test)]
mod tests {
    use roost_wire::Gap;

    use super::*;

    #[test]
    fn another_attachment_begins_behind_what_was_read() {
        let mut start = OutputStart::WHOLE;
        let bytes = Bytes::from_static(b"abc");
        start.pass(&ExecFrame::Output { stream: Stream::Stdout, offset: 4, bytes });
        start.pass(&ExecFrame::Gap(Gap { stream: Stream::Stderr, from: 0, to: 9 }));
        assert_eq!((start.stdout, start.stderr), (Some(7), Some(9)));
        let mut nothing = OutputStart::NOTHING;
        nothing.pass(&ExecFrame::Gap(Gap { stream: Stream::Stderr, from: 0, to: 9 }));
        assert_eq!(nothing, OutputStart::NOTHING);
    }
}
