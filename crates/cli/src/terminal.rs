//! The person's terminal: raw while a remote one is shown in it, and always put back.

use std::io;
use std::sync::{Mutex, PoisonError};

use roost_model::TerminalSize;
use rustix::termios::{self, OptionalActions, Termios};

/// What the terminal was like; taken by whoever restores first.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the terminal raw until dropped.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Makes the terminal on standard input raw.
    pub(crate) fn enter() -> io::Result<Self> {
        let stdin = rustix::stdio::stdin();
        let before = termios::tcgetattr(stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let guard = Self(());
        termios::tcsetattr(stdin, OptionalActions::Drain, &raw)?;
        Ok(guard)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back as it was; does nothing if nobody changed it.
pub(crate) fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // Nothing can be done about a terminal that is gone.
        termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &before).unwrap_or_default();
    }
}

/// Puts the terminal back before a panic is printed, or its message would be a staircase.
pub(crate) fn restore_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        print(panic);
    }));
}

/// The size of whichever standard stream is a terminal.
pub(crate) fn size() -> Option<TerminalSize> {
    let streams = [rustix::stdio::stdout(), rustix::stdio::stdin(), rustix::stdio::stderr()];
    let size = streams.into_iter().find_map(|stream| termios::tcgetwinsize(stream).ok())?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(TerminalSize { cols: size.ws_col, rows: size.ws_row })
}
