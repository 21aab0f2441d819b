//! Commands in the background: started, read by offset, signalled, fed.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use roost_host::{ExecFrame, Handle, OutputStart};
use roost_model::{ErrorCode, ExecId, ExecState, ExecView, SignalExec, StartExec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::run::Which;
use super::sandboxes::Youngest;
use super::{Effect, Entry, tool, youngest};
use crate::answer::{Answer, Failure};
use crate::call::Call;
use crate::text::whole_characters;

const PIECE: usize = 8_000;
const LARGEST_PIECE: usize = 100_000;
const LONGEST_WAIT: u64 = 600;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        tool(
            "exec_start",
            "Start a command in the background",
            Effect::Destroys,
            "Start a shell command and leave it running, for servers and other long work. Returns its id; read its output with \
             exec_output, end it with exec_signal.",
            start,
        ),
        tool(
            "exec_list",
            "List commands",
            Effect::Reads,
            "List the commands of a sandbox, the youngest last, with their state.",
            list,
        ),
        tool(
            "exec_output",
            "Read the output of a command",
            Effect::Reads,
            "Read output of a command by absolute byte offset; without an offset, its last part. The result has next_offset, \
             from which to read on. With wait_seconds it waits for more while the command runs.",
            output,
        ),
        tool(
            "exec_signal",
            "Send a signal to a command",
            Effect::Destroys,
            "Send a signal to a command: TERM asks it to end, KILL ends it, INT is Ctrl-C.",
            signal,
        ),
        tool(
            "exec_input",
            "Write to a command's standard input",
            Effect::Changes,
            "Write text to the standard input of a command that was started with stdin=true, and close it if asked.",
            input,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Start {
    /// The sandbox's name or id
    sandbox: String,
    /// A line for `sh -c`
    command: String,
    /// Working folder; the user's home if absent
    cwd: Option<String>,
    /// User to run as; the template's if absent
    user: Option<String>,
    /// Environment variables over the sandbox's
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Keep its standard input open for exec_input
    #[serde(default)]
    stdin: bool,
}

async fn start(call: Call, wanted: Start) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let start = StartExec {
        shell: Some(wanted.command),
        cwd: wanted.cwd,
        user: wanted.user,
        env: wanted.env,
        stdin: wanted.stdin,
        ..StartExec::default()
    };
    let exec = handle.start_exec(start, None).await?;
    let text = format!("started {}; exec_output sandbox={} exec={} reads its output", exec.id, wanted.sandbox, exec.id);
    Ok(Answer::new(text, facts(&exec)))
}

async fn list(call: Call, wanted: Youngest) -> Result<Answer, Failure> {
    let execs = call.living(&wanted.sandbox)?.execs().await?;
    let (shown, mut text) = youngest(&execs, wanted.limit);
    let truncated = shown.len() < execs.len();
    text.extend(shown.iter().map(|exec| format!("{} {} {}\n", exec.id, state(exec), command(exec))));
    let all: Vec<Value> = shown.iter().map(facts).collect();
    let text = if execs.is_empty() { "no commands".to_owned() } else { text };
    Ok(Answer::new(text, json!({"execs": all, "truncated": truncated})))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Output {
    /// The sandbox's name or id
    sandbox: String,
    /// The command's id, `exe_…`
    exec: String,
    /// `stdout` or `stderr`; standard output if absent
    #[serde(default)]
    stream: Which,
    /// Absolute offset of the first byte wanted; the last part if absent
    offset: Option<u64>,
    /// How many bytes at most; 8000 if absent
    limit: Option<usize>,
    /// Seconds to wait for `limit` bytes or the command's end; does not wait if absent
    wait_seconds: Option<u64>,
}

async fn output(call: Call, wanted: Output) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let id = exec_id(&wanted.exec)?;
    let limit = wanted.limit.unwrap_or(PIECE).clamp(1, LARGEST_PIECE);
    let exec = handle.exec(&id, false).await?;
    let (kept_from, end) = ends(&exec, wanted.stream);
    let from = wanted.offset.unwrap_or_else(|| end.saturating_sub(limit as u64)).max(kept_from);
    let wait = Duration::from_secs(wanted.wait_seconds.unwrap_or(0).min(LONGEST_WAIT));
    let mut bytes = tokio::select! {
        read = read(&handle, &id, wanted.stream, from, limit, wait) => read?,
        () = call.cancelled() => return Err(Failure::new(ErrorCode::Conflict, "nobody waits for it any more")),
    };
    // After the bytes: whoever sees that it has ended has seen how far its output goes.
    let exec = handle.exec(&id, false).await?;
    let end = ends(&exec, wanted.stream).1;
    if from + (bytes.len() as u64) < end || exec.status == ExecState::Running {
        bytes.truncate(whole_characters(&bytes));
    }
    let next = from + bytes.len() as u64;
    let mut text = format!("bytes {from} to {next} of {end}; {}", state(&exec));
    if wanted.offset.is_some_and(|offset| offset < kept_from) {
        text.extend([format!("; what was before {kept_from} is gone")]);
    }
    if next < end {
        text.extend([format!("; the rest: offset={next}")]);
    }
    text.push_str("\n\n");
    text.push_str(&String::from_utf8_lossy(&bytes));
    let mut about = facts(&exec);
    about["offset"] = from.into();
    about["next_offset"] = next.into();
    about["end_offset"] = end.into();
    Ok(Answer::new(text, about))
}

fn ends(exec: &ExecView, which: Which) -> (u64, u64) {
    match which {
        Which::Stdout => (exec.output.stdout_start, exec.output.stdout_end),
        Which::Stderr => (exec.output.stderr_start, exec.output.stderr_end),
    }
}

/// Reads from an offset on: what is there, or what comes within a time.
async fn read(
    handle: &Handle,
    id: &ExecId,
    which: Which,
    from: u64,
    limit: usize,
    wait: Duration,
) -> Result<Vec<u8>, Failure> {
    let follow = !wait.is_zero();
    let start = OutputStart {
        stdout: (which == Which::Stdout).then_some(from),
        stderr: (which == Which::Stderr).then_some(from),
        follow,
        lossless: false,
    };
    let attachment = handle.attach(id, start).await?;
    let mut frames = Box::pin(stream::unfold(attachment, |mut attachment| async move {
        let frame = attachment.stream.next().await?;
        Some((frame.map_err(|error| attachment.guest.failed(error)), attachment))
    }));
    let mut bytes = Vec::new();
    let gather = async {
        while let Some(frame) = frames.next().await.transpose()? {
            match frame {
                ExecFrame::Output { stream, bytes: piece, .. } if which.is(stream) => bytes.extend_from_slice(&piece),
                ExecFrame::End(_) => break,
                _ => {}
            }
            if bytes.len() >= limit {
                break;
            }
        }
        Ok::<(), Failure>(())
    };
    if follow {
        // What has come by then is what there is.
        tokio::time::timeout(wait, gather).await.unwrap_or(Ok(()))?;
    } else {
        gather.await?;
    }
    bytes.truncate(limit);
    Ok(bytes)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Signal {
    /// The sandbox's name or id
    sandbox: String,
    /// The command's id, `exe_…`
    exec: String,
    /// Name or number of the signal; TERM if absent
    signal: Option<String>,
}

async fn signal(call: Call, wanted: Signal) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let signal = SignalExec { signal: wanted.signal.unwrap_or_else(|| "TERM".to_owned()) };
    let exec = handle.signal_exec(&exec_id(&wanted.exec)?, &signal).await?;
    Ok(Answer::new(format!("sent {} to {}", signal.signal, exec.id), facts(&exec)))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The sandbox's name or id
    sandbox: String,
    /// The command's id, `exe_…`
    exec: String,
    /// The text
    text: String,
    /// Close it afterwards, so that the command sees its end
    #[serde(default)]
    close: bool,
}

async fn input(call: Call, wanted: Input) -> Result<Answer, Failure> {
    let handle = call.living(&wanted.sandbox)?;
    let bytes = Bytes::from(wanted.text);
    let length = bytes.len();
    let exec = handle.write_stdin(&exec_id(&wanted.exec)?, bytes, wanted.close).await?;
    Ok(Answer::new(format!("wrote {length} bytes to {}", exec.id), facts(&exec)))
}

fn exec_id(text: &str) -> Result<ExecId, Failure> {
    let unknown =
        || Failure::new(ErrorCode::ExecNotFound, format!("no exec `{text}`")).with_hint("exec_list lists them");
    text.parse().map_err(|_| unknown())
}

fn state(exec: &ExecView) -> String {
    match &exec.status {
        ExecState::Running => "runs".to_owned(),
        ExecState::Exited { exit_code, .. } => format!("ended with exit code {exit_code}"),
    }
}

/// The command in a few words.
fn command(exec: &ExecView) -> String {
    const LONGEST: usize = 100;
    exec.argv.join(" ").chars().take(LONGEST).collect()
}

fn facts(exec: &ExecView) -> Value {
    let exit_code = match exec.status {
        ExecState::Exited { exit_code, .. } => Some(exit_code),
        ExecState::Running => None,
    };
    json!({"exec": exec.id, "running": exit_code.is_none(), "exit_code": exit_code, "command": command(exec)})
}
