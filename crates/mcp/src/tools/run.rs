//! Running a command to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use roost_host::{ExecAttachment, ExecFrame, HostError, Stream, exec_view};
use roost_model::{ExecId, ExecState, ExecView, Span, StartExec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Effect, Entry, tool};
use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::text::Tail;

const TIME: u64 = 120;
const LONGEST_TIME: u64 = 3600;
const TAIL: usize = 8_000;
const LONGEST_TAIL: usize = 100_000;
/// How often is told how far a command has come.
const NEWS: Duration = Duration::from_millis(500);

pub(super) fn tools() -> Vec<Entry> {
    vec![tool(
        "run",
        "Run a command",
        Effect::Destroys,
        "Run a shell command in a sandbox and wait for its end. Returns the exit code and the last part of the output, standard \
         output and standard error together; exec_output reads the rest by offset. After `timeout_seconds` the command is killed, or \
         goes on in the background with on_timeout=leave. Cancelling the call ends the wait only: the command goes on, and exec_list \
         finds it. Use exec_start for servers.",
        run,
    )]
}

/// What becomes of a command whose time is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OnTimeout {
    #[default]
    Kill,
    Leave,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Run {
    /// The sandbox's name or id
    sandbox: String,
    /// A line for `sh -c`
    command: String,
    /// Working folder; the user's home if absent
    cwd: Option<String>,
    /// User to run as, such as `root`; the template's if absent
    user: Option<String>,
    /// Environment variables over the sandbox's
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Text for its standard input
    stdin: Option<String>,
    /// Seconds it may take, 1 to 3600; 120 if absent
    timeout_seconds: Option<u64>,
    /// What happens then: `kill` ends it, `leave` lets it go on in the background
    #[serde(default)]
    on_timeout: OnTimeout,
    /// How many bytes of the end of its output to return; 8000 if absent
    tail_bytes: Option<usize>,
}

async fn run(call: Call, wanted: Run) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let seconds = wanted.timeout_seconds.unwrap_or(TIME);
    if !(1..=LONGEST_TIME).contains(&seconds) {
        let message = format!("timeout_seconds is {seconds}, and may be 1 to {LONGEST_TIME}");
        return Err(Failure::bad_request(message).with_hint("exec_start starts what takes longer"));
    }
    let leave = wanted.on_timeout == OnTimeout::Leave;
    let start = StartExec {
        shell: Some(wanted.command),
        cwd: wanted.cwd,
        user: wanted.user,
        env: wanted.env,
        stdin: wanted.stdin.is_some(),
        timeout: (!leave).then(|| Span::seconds(seconds)),
        ..StartExec::default()
    };
    let began = Instant::now();
    let attachment = handle.start_attached(start, None).await?;
    let exec = attachment.exec.id.clone();
    if let Some(stdin) = wanted.stdin {
        // One that does not read it has ended, or will say so itself.
        let line = handle.write_stdin(&exec, Bytes::from(stdin), true).await;
        line.map_or_else(|error| tracing::debug!(%error, "a command did not take its input"), drop);
    }
    let mut watched = Watched { exec, tail: Tail::of(wanted.tail_bytes.unwrap_or(TAIL).min(LONGEST_TAIL)), news: 0 };
    let deadline = leave.then(|| began + Duration::from_secs(seconds));
    let ended = watched.follow(&call, attachment, deadline).await?;
    Ok(watched.told(&wanted.sandbox, ended.as_ref(), began.elapsed()))
}

/// A command and what is kept of its output.
struct Watched {
    exec: ExecId,
    tail: Tail,
    /// How much of the output was told of.
    news: u64,
}

impl Watched {
    /// Follows a command to its end, or until nobody waits any more; nothing if it goes on.
    async fn follow(
        &mut self,
        call: &Call,
        attachment: ExecAttachment,
        deadline: Option<Instant>,
    ) -> Result<Option<ExecView>, Failure> {
        // Held in a stream, so that a frame of which a part has come is not lost when something else happens first.
        let mut frames = Box::pin(stream::unfold(attachment, |mut attachment| async move {
            let frame = attachment.stream.next().await?;
            Some((frame.map_err(|error| attachment.guest.failed(error)), attachment))
        }));
        let mut news = tokio::time::interval(NEWS);
        news.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = call.cancelled() => {
                    let message = format!("nobody waits for it any more; {} goes on", self.exec);
                    call.progress(self.tail.seen(), message.clone()).await;
                    return Err(Failure::new(roost_model::ErrorCode::Conflict, message));
                }
                frame = frames.next() => match frame.transpose()? {
                    Some(ExecFrame::Output { bytes, .. }) => self.tail.push(&bytes),
                    Some(ExecFrame::Gap(_)) => {}
                    Some(ExecFrame::End(info)) => return Ok(Some(exec_view(&info)?)),
                    None => return Err(HostError::Internal("the output ended before the command did".to_owned()).into()),
                },
                _ = news.tick() => if self.tail.seen() > self.news {
                    self.news = self.tail.seen();
                    let message = self.tail.last_line();
                    call.progress(self.news, message).await;
                },
                () = at(deadline) => return Ok(None),
            }
        }
    }

    fn told(mut self, sandbox: &str, ended: Option<&ExecView>, took: Duration) -> Answer {
        let exec = &self.exec;
        let (lost, shown) = (self.tail.lost(), self.tail.text());
        let status = match ended.map(|exec| &exec.status) {
            Some(ExecState::Exited { timed_out: true, .. }) => "killed when its time was over".to_owned(),
            Some(ExecState::Exited { exit_code, .. }) => format!("exit code {exit_code}"),
            _ => format!("still runs; exec_output sandbox={sandbox} exec={exec} reads on, exec_signal ends it"),
        };
        let mut text = format!("{status} ({:.1} s, {exec})", took.as_secs_f64());
        if lost > 0 {
            text.extend([format!(
                "\nthe last {} of {} bytes of output; all of it: exec_output sandbox={sandbox} exec={exec} offset=0, and \
                 stream=stderr",
                shown.len(),
                self.tail.seen()
            )]);
        }
        if !shown.is_empty() {
            text.push_str("\n\n");
            text.push_str(&shown);
        }
        let (exit_code, timed_out) = match ended.map(|exec| &exec.status) {
            Some(ExecState::Exited { exit_code, timed_out, .. }) => (Some(*exit_code), *timed_out),
            _ => (None, false),
        };
        let output = ended.map(|exec| &exec.output);
        let facts = json!({
            "exec": exec, "running": exit_code.is_none(), "exit_code": exit_code, "timed_out": timed_out,
            "output_bytes": self.tail.seen(), "truncated": lost > 0,
            "stdout_bytes": output.map(|output| output.stdout_end), "stderr_bytes": output.map(|output| output.stderr_end),
        });
        Answer::new(text, facts)
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// One of the two streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Which {
    #[default]
    Stdout,
    Stderr,
}

impl Which {
    pub(super) fn is(self, stream: Stream) -> bool {
        (self == Self::Stdout) == (stream == Stream::Stdout)
    }
}
