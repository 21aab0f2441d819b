//! A remote process in the place of this one: its output here, our input and signals there.

mod input;
mod remote;

use std::io::{self, IsTerminal};

use anyhow::Context;
use roost_client::ExecEvent;
use roost_model::ExecState;
use tokio::signal::unix::{SignalKind, signal};

use self::input::pass_input;
use self::remote::Input;
pub(crate) use self::remote::Remote;
use crate::failure::{BROKEN_PIPE, INTERRUPTED, hinted};
use crate::pipes::Output;
use crate::terminal::{self, Raw};

/// Ended by SIGTERM.
const TERMINATED: u8 = 128 + 15;
/// The terminal went away.
const HUNG_UP: u8 = 128 + 1;

/// How standing in for a process ended.
#[derive(Debug)]
enum End {
    /// It ended, with a code.
    Exited(u8),
    /// We leave it, with a code of ours and perhaps a last signal to it.
    Left { code: u8, farewell: Option<&'static str> },
}

/// What is passed on besides output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    /// Read our standard input.
    pub(crate) stdin: bool,
    /// The process has a terminal.
    pub(crate) terminal: bool,
}

/// Stands in for the process until it ends, and returns the exit code to end with.
pub(crate) async fn attach(mut remote: Remote, wishes: Wishes) -> anyhow::Result<u8> {
    let input = remote.input();
    let interactive = wishes.stdin && wishes.terminal && io::stdin().is_terminal();
    let _raw = if interactive { Some(Raw::enter().context("failed to make the terminal raw")?) } else { None };
    let outcome = tokio::select! {
        code = show_output(&mut remote) => code,
        code = pass_signals(input.clone(), wishes.terminal) => code,
        code = pass_input(input, wishes, interactive) => code,
    };
    match outcome? {
        End::Exited(code) => Ok(code),
        End::Left { code, farewell } => {
            if let Some(signal) = farewell {
                remote.farewell(signal).await;
            }
            Ok(code)
        }
    }
}

async fn show_output(remote: &mut Remote) -> anyhow::Result<End> {
    let mut output = Output::start().context("failed to start the output thread")?;
    while let Some(event) = remote.next().await? {
        let written = match event {
            ExecEvent::Output { stream, bytes, .. } => output.write(stream, bytes).await,
            ExecEvent::Gap { stream, from, to } => {
                eprintln!("roost: {} bytes of {} are lost: they were not read in time", to - from, stream.as_str());
                Ok(())
            }
            ExecEvent::Exit(state) => {
                let code = exit_code(&state);
                return Ok(End::Exited(output.finish().await.map_or(BROKEN_PIPE, |()| code)));
            }
            ExecEvent::Created(_) | ExecEvent::Started(_) => Ok(()),
        };
        match written {
            Ok(()) => {}
            // Nobody reads: the command is told what it would be told if it wrote to that pipe itself.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(End::Left { code: BROKEN_PIPE, farewell: Some("PIPE") });
            }
            Err(error) => return Err(error).context("failed to write output"),
        }
    }
    Err(hinted("the daemon hung up before the command ended", "was the daemon stopped? see its log"))
}

fn exit_code(state: &ExecState) -> u8 {
    match state {
        ExecState::Running => 0,
        ExecState::Exited { exit_code, timed_out, .. } => {
            if *timed_out {
                eprintln!("roost: the command was ended by its timeout");
            }
            u8::try_from(exit_code & 0xff).unwrap_or(u8::MAX)
        }
    }
}

/// Passes signals on; returns when one of them means that we leave.
async fn pass_signals(input: Input, terminal: bool) -> anyhow::Result<End> {
    let listen = |kind| signal(kind).context("failed to listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut resized = listen(SignalKind::window_change())?;
    let mut interrupts = 0;
    loop {
        tokio::select! {
            _ = interrupt.recv() => {
                interrupts += 1;
                if interrupts > 1 {
                    return Ok(End::Left { code: INTERRUPTED, farewell: None });
                }
                // A daemon that is away must not keep the second Ctrl-C from being heard.
                let mut input = input.clone();
                tokio::spawn(async move { input.signal("INT").await });
            }
            _ = terminate.recv() => return Ok(End::Left { code: TERMINATED, farewell: Some("TERM") }),
            _ = hangup.recv() => return Ok(End::Left { code: HUNG_UP, farewell: None }),
            _ = resized.recv(), if terminal => {
                if let Some(size) = terminal::size() {
                    let mut input = input.clone();
                    tokio::spawn(async move { input.resize(size).await });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_the_command() {
        let exited = |exit_code| ExecState::Exited {
            exit_code,
            signal: None,
            timed_out: false,
            at: jiff::Timestamp::UNIX_EPOCH,
        };
        assert_eq!(exit_code(&exited(0)), 0);
        assert_eq!(exit_code(&exited(137)), 137);
        assert_eq!(exit_code(&exited(255)), 255);
    }
}
