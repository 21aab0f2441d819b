//! Commands of a build: how one is started, and its output in the build's log.

use roost_model::{ErrorCode, ExecState, StartExec};
use roost_wire::Stream;
use roost_wire::client::ExecFrame;

use super::{Trouble, Work, trouble};
use crate::builds::plan::Standing;
use crate::builds::{BuildLevel, BuildPart};
use crate::execs::ExecAttachment;
use crate::handle::Handle;
use crate::{HostError, exec_state};

/// Lines of a command's output that are repeated where it failed.
const LAST_LINES: usize = 10;
/// A piece of output without an end of line that is taken for a line.
const LONGEST_PIECE: usize = 4096;

impl Work<'_> {
    /// Runs a command to its end, with its output in the log; anything but success is the end of the build.
    pub(super) async fn done(
        &self,
        handle: &Handle,
        part: BuildPart,
        exec: StartExec,
        what: &str,
    ) -> Result<(), Trouble> {
        let failing = trouble(part);
        let attachment = handle.start_attached(exec, None).await.map_err(&failing)?;
        let mut tail = Vec::new();
        let code = self.follow(part, attachment, &mut tail).await.map_err(&failing)?;
        if code == 0 {
            return Ok(());
        }
        let said = tail.join("\n");
        let message = format!("{what} failed with exit code {code}{}{said}", if said.is_empty() { "" } else { ":\n" });
        Err(Trouble { part, message })
    }

    /// Writes a process's output to the log until it ends.
    pub(super) async fn follow(
        &self,
        part: BuildPart,
        mut attachment: ExecAttachment,
        tail: &mut Vec<String>,
    ) -> Result<i32, HostError> {
        let mut pieces = [Vec::new(), Vec::new()];
        let mut say = |level, line: &[u8]| {
            let text = String::from_utf8_lossy(line);
            let text = text.trim_end_matches(['\r', '\n']).rsplit('\r').next().unwrap_or_default();
            self.build.say(part, level, text);
            if tail.len() == LAST_LINES {
                tail.remove(0);
            }
            tail.push(text.to_owned());
        };
        while let Some(frame) = attachment.stream.next().await {
            match frame.map_err(|error| attachment.guest.failed(error))? {
                ExecFrame::Output { stream, bytes, .. } => {
                    let (place, level) = match stream {
                        Stream::Stdout => (0, BuildLevel::Info),
                        _ => (1, BuildLevel::Warn),
                    };
                    pieces[place].extend_from_slice(&bytes);
                    take_lines(&mut pieces[place], |line| say(level, line));
                }
                ExecFrame::Gap(_) => {}
                ExecFrame::End(info) => {
                    for (piece, level) in pieces.iter().zip([BuildLevel::Info, BuildLevel::Warn]) {
                        if !piece.is_empty() {
                            say(level, piece);
                        }
                    }
                    return match exec_state(&info.state) {
                        ExecState::Exited { exit_code, .. } => Ok(exit_code),
                        ExecState::Running => {
                            let message = "the guest ended the output of a process that it says runs".to_owned();
                            Err(HostError::GuestReply { too_large: false, message })
                        }
                    };
                }
            }
        }
        Err(HostError::Internal("the output ended before the process did".to_owned()))
    }

    /// A line for a login shell: bash where there is one.
    pub(super) async fn shell(
        &self,
        handle: &Handle,
        line: &str,
        user: &str,
        standing: &Standing,
    ) -> Result<StartExec, HostError> {
        let shell = match handle.stat("/bin/bash").await {
            Ok(_) => "/bin/bash",
            Err(error) if error.code() == ErrorCode::PathNotFound => "/bin/sh",
            Err(error) => return Err(error),
        };
        Ok(StartExec {
            argv: [shell, "-l", "-c", line].map(str::to_owned).to_vec(),
            user: Some(user.to_owned()),
            cwd: standing.workdir.clone(),
            env: standing.env.clone(),
            ..StartExec::default()
        })
    }
}

/// Takes whole lines off the front of what has come.
fn take_lines(piece: &mut Vec<u8>, mut take: impl FnMut(&[u8])) {
    while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = piece.drain(..=end).collect();
        take(&line);
    }
    if piece.len() > LONGEST_PIECE {
        take(piece);
        piece.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_into_lines_however_it_comes() {
        let mut lines: Vec<String> = Vec::new();
        let mut piece = Vec::new();
        for part in ["on", "e\ntwo\n", "", "\nthr", "ee"] {
            piece.extend_from_slice(part.as_bytes());
            take_lines(&mut piece, |line| lines.push(String::from_utf8_lossy(line).into_owned()));
        }
        assert_eq!(lines, ["one\n", "two\n", "\n"]);
        assert_eq!(piece, b"three");
        piece.resize(LONGEST_PIECE + 1, b'x');
        take_lines(&mut piece, |line| assert_eq!(line.len(), LONGEST_PIECE + 1));
        assert!(piece.is_empty());
    }
}
