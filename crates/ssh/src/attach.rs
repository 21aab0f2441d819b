//! `attach`: back to a terminal whose line was cut.

use std::sync::Arc;

use jiff::Timestamp;
use roost_host::{ExecFilter, Handle, HostError, OutputStart, WindowSize};
use roost_model::{ExecView, words::lasted};
use russh::{ChannelMsg, ChannelReadHalf};

use crate::carry::{Kind, carry};
use crate::channel::Out;
use crate::place::Visit;
use crate::session::{TAG, Terminal, Wish};
use crate::words;

/// How much of what a terminal showed last is shown again.
const REPLAYED: u64 = 64 * 1024;

/// Which terminal is meant, if a command asks for one: `attach`, `attach exe_01…`, `attach 2`.
pub(crate) fn wanted(command: &str) -> Option<Option<String>> {
    let mut words = command.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("attach"), which, None) => Some(which.map(str::to_owned)),
        _ => None,
    }
}

/// Goes back to a terminal; asks which if several are left.
pub(crate) async fn attach(
    visit: &Arc<Visit>,
    handle: &Handle,
    which: Option<String>,
    wish: Wish,
    mut read: ChannelReadHalf,
    out: Out,
) {
    let Some(terminal) = wish.terminal else {
        return out.fail("a terminal is attached to a terminal: `ssh -t`").await;
    };
    let left = match left(visit, handle).await {
        Ok(left) => left,
        Err(error) => return out.fail(&words::of(&error)).await,
    };
    let chosen = match (which, left.as_slice()) {
        (_, []) => return out.fail("no session is left to go back to").await,
        (Some(which), left) => find(left, &which),
        (None, [only]) => Some(only),
        (None, left) => match choose(left, &mut read, &out).await {
            Some(answer) => find(left, &answer),
            None => return out.end(1).await,
        },
    };
    let Some(chosen) = chosen else { return out.fail(&format!("no such session\n{}", list(&left))).await };
    match again(handle, chosen, &terminal).await {
        Ok(attachment) => carry(visit, handle, attachment, Kind::Terminal, read, out).await,
        Err(error) => out.fail(&words::of(&error)).await,
    }
}

/// Terminals that nobody is at.
async fn left(visit: &Visit, handle: &Handle) -> Result<Vec<ExecView>, HostError> {
    let filter = ExecFilter { running: true, tag: Some(TAG.to_owned()), ..ExecFilter::default() };
    let mut left = Vec::new();
    for exec in handle.find_execs(filter).await? {
        let exec = roost_host::exec_view(&exec)?;
        if exec.pty && !visit.door.is_attached(&exec.id) {
            left.push(exec);
        }
    }
    Ok(left)
}

async fn again(handle: &Handle, exec: &ExecView, terminal: &Terminal) -> Result<roost_host::ExecAttachment, HostError> {
    let from = exec.output.stdout_end.saturating_sub(REPLAYED).max(exec.output.stdout_start);
    let start = OutputStart { stdout: Some(from), stderr: None, follow: true, lossless: true };
    let mut attachment = handle.attach(&exec.id, start).await?;
    let size = WindowSize { cols: terminal.size.cols, rows: terminal.size.rows };
    // Two changes, so that there is one also for a terminal of the same size: what fills the screen draws it anew.
    let other = WindowSize { rows: size.rows.saturating_sub(1).max(1), ..size };
    for size in [other, size] {
        attachment.stream.input().resize(size).await.map_err(|error| attachment.guest.failed(error))?;
    }
    Ok(attachment)
}

fn find<'a>(left: &'a [ExecView], which: &str) -> Option<&'a ExecView> {
    let by_number = which.parse::<usize>().ok().and_then(|number| left.get(number.checked_sub(1)?));
    by_number.or_else(|| left.iter().find(|exec| exec.id.as_str() == which))
}

fn list(left: &[ExecView]) -> String {
    let now = Timestamp::now();
    let line = |(place, exec): (usize, &ExecView)| {
        let age = u64::try_from(now.duration_since(exec.started_at).as_millis()).unwrap_or(0);
        let command = exec.argv.last().map_or("", String::as_str);
        format!("  {}  {}  {command}  started {} ago\n", place + 1, exec.id, lasted(age))
    };
    left.iter().enumerate().map(line).collect()
}

/// The number that somebody types; nothing if the client leaves or calls it off.
async fn choose(left: &[ExecView], read: &mut ChannelReadHalf, out: &Out) -> Option<String> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    out.print(&list(left)).await;
    drop(out.stdout(format!("which one? [1-{}] ", left.len())).await);
    let mut typed = String::new();
    loop {
        let data = match read.wait().await {
            Some(ChannelMsg::Data { data }) => data,
            Some(ChannelMsg::Eof | ChannelMsg::Close) | None => return None,
            Some(_) => continue,
        };
        for byte in data {
            match byte {
                b'\r' | b'\n' => {
                    out.print("\n").await;
                    return Some(typed);
                }
                INTERRUPT | END => {
                    out.print("\n").await;
                    return None;
                }
                b' '..=b'~' => {
                    typed.push(char::from(byte));
                    drop(out.stdout(vec![byte]).await);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_itself_attaches() {
        assert_eq!(wanted("attach"), Some(None));
        assert_eq!(wanted(" attach 2 "), Some(Some("2".to_owned())));
        assert_eq!(wanted("attach a b"), None);
        assert_eq!(wanted("attachments"), None);
        assert_eq!(wanted("command attach"), None);
    }
}
