//! Following a process: where it starts, what it writes, how it ends.
//!
//! ```text
//! start -> data* -> end            the process ended
//!                -> deadline       its time was up
//!                -> broken off     the sandbox ended, or was put to sleep for good
//! ```
//! When the way to the guest breaks while the sandbox lives on, as it does when its memory is saved, the stream goes on
//! where it was: the guest keeps output under absolute offsets.

use bytes::Bytes;
use futures_util::{Stream, stream};
use roost_host::{ExecAttachment, ExecFrame, ExecInfo, Exit, Handle, OutputStart, Stream as Which};

use super::ending::ended;
use super::message::{Chunk, Data, Told, What};
use super::select::Found;
use crate::envd::Call;
use crate::envd::connect::{Broken, Code, ConnectError, Head};

/// Asks for the output that is kept, not only for what comes.
const OUTPUT_HEADER: &str = "roost-output";

/// A process that is being followed.
struct Following {
    handle: Handle,
    attachment: ExecAttachment,
    /// The next byte of each stream.
    at: [u64; 2],
    /// Whether output that is gone is a loss to this client: not what was before it came.
    begun: bool,
}

/// How far the telling of it has come.
enum Step {
    Start(Following),
    Output(Following),
    Over,
}

/// Follows a process that runs, or tells of the end of one that does not.
pub(super) async fn connect(
    call: &Call,
    exec: &Found,
    head: &Head,
) -> Result<impl Stream<Item = Result<Told, Broken>> + Send + use<>, ConnectError> {
    let kept = head.headers.get(OUTPUT_HEADER).is_some_and(|value| value == "kept");
    let at = first_byte(&exec.info, kept);
    let attachment = call.handle.attach(&exec.id, from(at)).await?;
    Ok(told(Following { handle: call.handle.clone(), attachment, at, begun: false }))
}

/// Where a client that comes late begins. One of a running process gets what comes from now on, as it expects; when
/// nothing more will come, it gets what there was. A terminal's past is not played again: it would be answered.
fn first_byte(exec: &ExecInfo, kept: bool) -> [u64; 2] {
    let past = kept || (exec.exit().is_some() && !exec.pty);
    [exec.stdout, exec.stderr].map(|range| if past { range.start } else { range.end })
}

fn from([stdout, stderr]: [u64; 2]) -> OutputStart {
    OutputStart { stdout: Some(stdout), stderr: Some(stderr), follow: true, lossless: true }
}

/// All that is told of a process that has just been started.
pub(super) fn follow(
    handle: Handle,
    attachment: ExecAttachment,
) -> impl Stream<Item = Result<Told, Broken>> + Send + use<> {
    told(Following { handle, attachment, at: [0, 0], begun: true })
}

fn told(following: Following) -> impl Stream<Item = Result<Told, Broken>> + Send + use<> {
    stream::unfold(Step::Start(following), |step| async {
        match step {
            Step::Start(following) => {
                let pid = following.attachment.exec.pid;
                Some((Ok(Told { event: What::Start { pid } }), Step::Output(following)))
            }
            Step::Output(following) => Some(following.output().await),
            Step::Over => None,
        }
    })
}

impl Following {
    async fn output(mut self) -> (Result<Told, Broken>, Step) {
        loop {
            match self.attachment.stream.next().await {
                Some(Ok(ExecFrame::Output { stream, offset, bytes })) => {
                    let told = self.data(stream, offset, bytes);
                    return (Ok(told), Step::Output(self));
                }
                Some(Ok(ExecFrame::Gap(_))) if !self.begun => {}
                Some(Ok(ExecFrame::Gap(gap))) => {
                    let lost = gap.to.saturating_sub(gap.from);
                    let message = format!("{lost} bytes of output were not read in time and are gone");
                    return (Err(ConnectError::new(Code::DataLoss, message).into()), Step::Over);
                }
                Some(Ok(ExecFrame::End(info))) => {
                    let told = end(&self.handle, &info);
                    self.attachment.release();
                    return (told, Step::Over);
                }
                // A guest that breaks the protocol would do so again on the next attachment.
                Some(Err(error)) if error.is_breach() => {
                    let refused = ConnectError::from(self.attachment.guest.failed(error));
                    return (Err(refused.into()), Step::Over);
                }
                Some(Err(error)) => {
                    tracing::debug!(sandbox = %self.handle.id(), %error, "the way to a process broke");
                    if let Err(broken) = self.attach_again().await {
                        return (Err(broken), Step::Over);
                    }
                }
                None => return (Err(Broken::Off), Step::Over),
            }
        }
    }

    fn data(&mut self, stream: Which, offset: u64, bytes: Bytes) -> Told {
        let place = usize::from(stream == Which::Stderr);
        if let Some(at) = self.at.get_mut(place) {
            *at = offset + bytes.len() as u64;
        }
        self.begun = true;
        let chunk = Chunk(bytes);
        let data = match stream {
            _ if self.attachment.exec.pty => Data::Pty(chunk),
            Which::Stdout => Data::Stdout(chunk),
            Which::Stderr => Data::Stderr(chunk),
        };
        Told { event: What::Data(data) }
    }

    async fn attach_again(&mut self) -> Result<(), Broken> {
        let attached = self.handle.attach_again(&self.attachment.exec.id, from(self.at)).await;
        self.attachment = attached.map_err(|error| {
            tracing::debug!(sandbox = %self.handle.id(), %error, "a process cannot be followed any further");
            Broken::Off
        })?;
        Ok(())
    }
}

fn end(handle: &Handle, info: &ExecInfo) -> Result<Told, Broken> {
    // Processes of a sandbox that ends are killed, which is not how they would have ended.
    if handle.living().is_err() {
        return Err(Broken::Off);
    }
    match info.exit() {
        Some(Exit { timed_out: true, .. }) => Err(ConnectError::out_of_time().into()),
        Some(exit) => Ok(Told { event: What::End(ended(exit)) }),
        None => Err(Broken::Off),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(pty: bool, ended: bool) -> ExecInfo {
        let state = if ended { serde_json::json!({"exited": {"code": 0}}) } else { "running".into() };
        serde_json::from_value(serde_json::json!({
            "id": "exe", "pid": 7, "argv": [], "started_at_ms": 1, "state": state, "pty": pty,
            "stdout": {"start": 3, "end": 9}, "stderr": {"start": 0, "end": 2},
        }))
        .unwrap()
    }

    #[test]
    fn late_clients_get_what_comes_and_the_past_only_if_it_is_all_there_is() {
        assert_eq!(first_byte(&exec(false, false), false), [9, 2]);
        assert_eq!(first_byte(&exec(false, true), false), [3, 0]);
        assert_eq!(first_byte(&exec(true, true), false), [9, 2]);
        assert_eq!(first_byte(&exec(false, false), true), [3, 0]);
    }
}
