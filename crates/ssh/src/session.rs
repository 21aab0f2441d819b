//! One session channel: what it asks for before it starts something, and the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use roost_host::Handle;
use roost_model::{StartExec, TerminalSize};
use russh::server::{Handle as Line, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf};

use crate::carry::{self, Kind};
use crate::channel::Out;
use crate::place::{Place, Visit};
use crate::{attach, lobby, words};

/// The one subsystem there is.
pub(crate) const SFTP: &str = "sftp";
/// Marks terminals that `attach` finds again.
pub(crate) const TAG: &str = "ssh";
/// The program that speaks SFTP, which every sandbox has.
const SFTP_SERVER: [&str; 2] = ["/run/roost/bin/roost-guest", "sftp-server"];
/// A login as it would be at a console: the user's own shell, with what it reads at the beginning.
const LOGIN: &str = "exec \"${SHELL:-/bin/sh}\" -l";
const MOST_VARIABLES: usize = 64;
const LONGEST_VARIABLE: usize = 32 * 1024;

/// What was asked for before something is started.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    pub(crate) terminal: Option<Terminal>,
    pub(crate) env: BTreeMap<String, String>,
}

/// A terminal at the client's end.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    pub(crate) term: String,
    pub(crate) size: TerminalSize,
}

/// What is started.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    Shell,
    Command(String),
    Sftp,
}

/// A size that a terminal can have; clients without one say 0.
pub(crate) fn size(columns: u32, rows: u32) -> TerminalSize {
    let within = |number: u32, usual: u16| match u16::try_from(number) {
        Ok(0) => usual,
        Ok(number) => number,
        Err(_) => u16::MAX,
    };
    TerminalSize { cols: within(columns, 80), rows: within(rows, 24) }
}

/// Serves a session to its end.
pub(crate) async fn serve(visit: Arc<Visit>, channel: Channel<Msg>, line: Line) {
    let (mut read, write) = channel.split();
    let mut out = Out::new(write, line);
    let mut wish = Wish::default();
    let start = loop {
        match read.wait().await {
            Some(ChannelMsg::RequestPty { term, col_width, row_height, .. }) => {
                out.on_terminal();
                wish.terminal = Some(Terminal { term, size: size(col_width, row_height) });
            }
            Some(ChannelMsg::SetEnv { variable_name, variable_value, .. }) => {
                let fits = wish.env.len() < MOST_VARIABLES
                    && variable_name.len() + variable_value.len() < LONGEST_VARIABLE
                    && !variable_name.is_empty()
                    && !variable_name.contains(['=', '\0'])
                    && !variable_value.contains('\0');
                if fits {
                    wish.env.insert(variable_name, variable_value);
                }
            }
            Some(ChannelMsg::WindowChange { col_width, row_height, .. }) => {
                if let Some(terminal) = &mut wish.terminal {
                    terminal.size = size(col_width, row_height);
                }
            }
            Some(ChannelMsg::RequestShell { .. }) => break Start::Shell,
            Some(ChannelMsg::Exec { command, .. }) => match String::from_utf8(command) {
                Ok(command) => break Start::Command(command),
                Err(_) => return out.fail("a command is UTF-8 text").await,
            },
            Some(ChannelMsg::RequestSubsystem { name, .. }) if name == SFTP => break Start::Sftp,
            Some(ChannelMsg::Close) | None => return,
            Some(_) => {}
        }
    };
    if visit.place != Place::Lobby {
        return enter(&visit, start, wish, read, out).await;
    }
    match start {
        Start::Shell => lobby::talk(&visit, wish, read, out).await,
        Start::Command(command) => {
            let code = lobby::once(&visit, &command, &out).await;
            out.end(code).await;
        }
        Start::Sftp => out.fail("there are no files in the lobby: put the name of a sandbox before the @").await,
    }
}

/// Starts something in a sandbox and stays with it.
async fn enter(visit: &Arc<Visit>, start: Start, wish: Wish, read: ChannelReadHalf, out: Out) {
    let found = match visit.sandbox().await {
        Ok(found) => found,
        Err(error) => return out.fail(&words::of(&error)).await,
    };
    let handle = found.handle;
    if found.is_new {
        let name = handle.view().name;
        // Not into what a program reads.
        let how = if start == Start::Sftp { "" } else { "; it stays until `ssh roost@… rm` or `roost rm`" };
        out.say(&format!("roost: this is `{name}`, made just now{how}")).await;
    }
    if let Start::Command(command) = &start
        && let Some(which) = attach::wanted(command)
    {
        return attach::attach(visit, &handle, which, wish, read, out).await;
    }
    let kind = if wish.terminal.is_some() { Kind::Terminal } else { Kind::Pipes };
    let exec = exec(visit, &handle, start, &wish);
    match handle.start_attached(exec, None).await {
        Ok(attachment) => carry::carry(visit, &handle, attachment, kind, read, out).await,
        Err(error) => out.fail(&words::of(&error)).await,
    }
}

fn exec(visit: &Visit, handle: &Handle, start: Start, wish: &Wish) -> StartExec {
    let mut env = wish.env.clone();
    env.extend(visit.environment());
    if let Some(terminal) = wish.terminal.as_ref().filter(|terminal| !terminal.term.is_empty()) {
        env.insert("TERM".to_owned(), terminal.term.clone());
    }
    tracing::debug!(sandbox = %handle.id(), ?start, "over SSH");
    let mut exec = StartExec {
        env,
        stdin: true,
        login: true,
        pty: wish.terminal.as_ref().map(|terminal| terminal.size),
        tag: wish.terminal.is_some().then(|| TAG.to_owned()),
        ..StartExec::default()
    };
    match start {
        Start::Shell => exec.shell = Some(LOGIN.to_owned()),
        Start::Command(command) => exec.shell = Some(command),
        Start::Sftp => exec.argv = SFTP_SERVER.map(str::to_owned).to_vec(),
    }
    exec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_ones_that_terminals_have() {
        assert_eq!(size(0, 0), TerminalSize { cols: 80, rows: 24 });
        assert_eq!(size(132, 50), TerminalSize { cols: 132, rows: 50 });
        assert_eq!(size(1 << 20, 1), TerminalSize { cols: u16::MAX, rows: 1 });
    }
}
