//! The lobby, `ssh roost@host`: no sandbox, but all that are within reach.

mod command;
mod editor;
mod line;
mod table;

use std::sync::Arc;

use roost_model::Level;
use russh::{ChannelMsg, ChannelReadHalf};

use crate::channel::Out;
use crate::place::Visit;
use crate::session::Wish;
use command::Outcome;
use editor::{Editor, Key, Keys};

const PROMPT: &str = "roost> ";
/// The longest line that is taken from a client without a terminal.
const LONGEST_LINE: usize = 64 * 1024;

/// Does one thing; returns the exit code.
pub(crate) async fn once(visit: &Visit, command: &str, out: &Out) -> u32 {
    let outcome = match line::words(command) {
        Ok(words) => command::run(&visit.visitor, words).await,
        Err(unfinished) => Outcome::wrong(&unfinished.to_string()),
    };
    out.print(&outcome.output).await;
    if !outcome.errors.is_empty() {
        out.say(&outcome.errors).await;
    }
    outcome.code
}

/// Talks until somebody leaves.
pub(crate) async fn talk(visit: &Arc<Visit>, wish: Wish, read: ChannelReadHalf, out: Out) {
    tokio::select! {
        () = async {
            match wish.terminal {
                Some(_) => on_terminal(visit, read, &out).await,
                None => on_pipes(visit, read, &out).await,
            }
        } => out.end(0).await,
        () = visit.door.closing.cancelled() => {}
        () = visit.gone.cancelled() => {}
    }
}

async fn on_terminal(visit: &Visit, mut read: ChannelReadHalf, out: &Out) {
    let there = visit.visitor.handles().len();
    let are = if there == 1 { "1 sandbox".to_owned() } else { format!("{there} sandboxes") };
    out.print(&format!("{are}; `help` shows what can be done here, `exit` leaves\n")).await;
    let (mut editor, mut keys) = (Editor::new(PROMPT), Keys::default());
    drop(out.stdout(editor.draw()).await);
    loop {
        let data = match read.wait().await {
            Some(ChannelMsg::Data { data }) => data,
            Some(ChannelMsg::Eof | ChannelMsg::Close) | None => return,
            Some(_) => continue,
        };
        for key in keys.read(&data) {
            match key {
                Key::Enter => {
                    let typed = editor.enter();
                    out.print("\n").await;
                    if ["exit", "quit", "logout"].contains(&typed.trim()) {
                        return;
                    }
                    if !typed.trim().is_empty() {
                        once(visit, &typed, out).await;
                    }
                    drop(out.stdout(editor.draw()).await);
                }
                Key::Leave if editor.is_empty() => return out.print("\n").await,
                Key::Tab => {
                    let names = names(visit);
                    if let Some(choices) = editor.complete(|before, word| command::completions(&names, before, word)) {
                        out.print(&format!("\n{}\n", choices.join("  "))).await;
                    }
                    drop(out.stdout(editor.draw()).await);
                }
                other => drop(out.stdout(editor.press(other)).await),
            }
        }
    }
}

/// Without a terminal every line is a command, as in a script.
async fn on_pipes(visit: &Visit, mut read: ChannelReadHalf, out: &Out) {
    let mut waiting: Vec<u8> = Vec::new();
    loop {
        let ended = match read.wait().await {
            Some(ChannelMsg::Data { data }) => {
                waiting.extend_from_slice(&data);
                false
            }
            Some(ChannelMsg::Eof | ChannelMsg::Close) | None => true,
            Some(_) => continue,
        };
        if ended && !waiting.is_empty() {
            waiting.push(b'\n');
        }
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            if !line.trim().is_empty() {
                once(visit, line.trim(), out).await;
            }
        }
        if ended || waiting.len() > LONGEST_LINE {
            return;
        }
    }
}

/// What can be named on a line.
#[derive(Debug, Default)]
struct Names {
    sandboxes: Vec<String>,
    templates: Vec<String>,
}

fn names(visit: &Visit) -> Names {
    let sandboxes = visit.visitor.handles().iter().map(|handle| handle.view().name.to_string()).collect();
    let templates = visit.visitor.templates().unwrap_or_default();
    Names { sandboxes, templates: templates.into_iter().map(|template| template.name).collect() }
}

/// State and level in one word: `active`, `suspended(ram)`.
fn state(state: roost_model::State, level: Option<Level>) -> String {
    level.map_or_else(|| state.to_string(), |level| format!("{state}({level})"))
}
